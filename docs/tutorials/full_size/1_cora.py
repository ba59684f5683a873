"""
A citation node, from question to page
======================================

Which neighbours and words make a GCN say that a paper of Cora belongs to its class?
"""

# %%
# The data set and a trained model. ``zoo.ensure`` trains it the first time (seconds) and loads
# it afterwards; any model of yours takes its place.

import tempfile
from pathlib import Path

import graphsvx
from graphsvx_lab import zoo

trained = zoo.ensure("cora", model="gcn")
data, model = trained.dataset.graph, trained.model
print(data)

# %%
# One question about one paper. The answer adds up: base + credit = prediction.

node = 1400
explanation = graphsvx.explain(model, data, node=node, class_names=trained.dataset.class_names)
print(explanation.describe())
print(explanation.certificate.line())

# %%
# The neighbourhood: red speaks for the class, blue against it.

explanation.plot()

# %%
# The same as numbers, with standard errors (0 where exact).

for player in explanation.top_nodes(5, "absolute"):
    print(f"paper {player.id}: {player.value:+.4f} ± {1.96 * player.error:.4f}")
for player in explanation.top_features(5, "absolute"):
    print(f"word {player.id}: {player.value:+.4f}")

# %%
# Why this class rather than the runner-up? All classes come from the same model calls.

every = graphsvx.explain(model, data, node=node, targets="all")
order = every.predictions.argsort(descending=True).tolist()
rather = every.contrast(order[0], order[1])
print(rather.title, f"{rather.prediction:+.3f}")
for player in rather.top_nodes(3, "absolute"):
    print(f"paper {player.id}: {player.value:+.4f}")

# %%
# A page in one file, for somebody else's browser.

explanation.to_html(Path(tempfile.mkdtemp()) / "why.html", data=data)
