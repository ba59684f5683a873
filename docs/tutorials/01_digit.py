"""
A handwritten digit, from question to page
==========================================

A network sees a digit and the images that look most alike. Which pixels, and which of these
images, make it say "nine"?
"""

# %%
# 1,797 images, each joined to the five nearest ones, and a trained GCN. ``zoo.ensure`` trains it
# the first time (seconds) and loads it afterwards; any model of yours takes its place. Everything
# comes with graphsvx: nothing is downloaded.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch

import graphsvx
from graphsvx_lab import zoo

trained = zoo.ensure("digits")
dataset, data, model = trained.dataset, trained.dataset.graph, trained.model
print(data)

# %%
# An image of the test part that the model gets wrong; if there is none, the first one.

predicted = model(data.x, data.edge_index).argmax(-1)
test = dataset.split.test.tolist()
node = next((image for image in test if predicted[image] != data.y[image]), test[0])
print(f"image {node} is a {int(data.y[node])}; the model says {int(predicted[node])}")

# %%
# One question. The answer adds up: base + credit = prediction. The base is the score of an image
# without neighbours, whose unusual pixels are set to the average.

names = {"class_names": dataset.class_names, "feature_names": dataset.feature_names}
explanation = graphsvx.explain(model, data, node=node, **names)
print(explanation)

# %%
# Credit of pixels as a picture: red speaks for the answer, blue against it. Pixels that are close
# to their average do not play and stay white.

figure, (left, right) = plt.subplots(1, 2, figsize=(6, 3))
left.imshow(data.x[node].reshape(8, 8).numpy(), cmap="gray_r")
left.set_title(f"a {int(data.y[node])}")
pixels = torch.zeros(64, dtype=torch.float64)
pixels[explanation.feature_ids] = explanation.feature_values
limit = float(pixels.abs().max())
right.imshow(pixels.reshape(8, 8).numpy(), cmap="RdBu_r", vmin=-limit, vmax=limit)
right.set_title(f'why "{int(predicted[node])}"')
for ax in (left, right):
    ax.set_xticks([])
    ax.set_yticks([])

# %%
# The images nearby: the fill is their class, the ring their credit.

explanation.plot()

# %%
# The same as numbers, with standard errors (0 where exact).

for player in explanation.top_nodes(3, "absolute"):
    print(f"image {player.id}: {player.value:+.4f} ± {1.96 * player.error:.4f}")
for player in explanation.top_features(3, "absolute"):
    print(f"{dataset.feature_names[player.id]}: {player.value:+.4f} ± {1.96 * player.error:.4f}")

# %%
# Why this class rather than the true one, or the runner-up? All classes come from the same model
# calls.

every = graphsvx.explain(model, data, node=node, targets="all", **names)
order = every.predictions.argsort(descending=True).tolist()
other = int(data.y[node]) if int(data.y[node]) != order[0] else order[1]
rather = every.contrast(order[0], other)
print(rather.title, f"{rather.prediction:+.3f}")
for player in rather.top_features(3, "absolute"):
    print(f"{dataset.feature_names[player.id]}: {player.value:+.4f}")

# %%
# A page in one file, for somebody else's browser.

explanation.to_html(Path(tempfile.mkdtemp()) / "why.html", data=data)
