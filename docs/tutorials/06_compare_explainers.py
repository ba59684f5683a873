"""
Comparing explainers with ground truth and metrics
==================================================

In BA-Shapes the truth is known: a house is attached to a random graph, and the house explains the
class of its nodes. How well do explainers find it, and how faithful are they to the model?
"""

# %%
# Data and a trained model of the paper. ``datasets.load`` gives the truth along.

import matplotlib.pyplot as plt

import graphsvx
from graphsvx import GraphSVX, methods
from graphsvx.metrics import characterization, fidelity
from graphsvx_lab import metrics, zoo

trained = zoo.ensure("ba-shapes")
data, model = trained.dataset.graph, trained.model
nodes = metrics.scored_nodes(
    "strict",
    candidates=trained.dataset.node_truth.nodes()[::50],
    predicted=model(data.x, data.edge_index).argmax(-1),
    labels=data.y,
)
print(f"{len(nodes)} nodes of houses that the model classifies right")

# %%
# Every explainer is asked the same questions and returns the same record.

explainers = {
    "GraphSVX": GraphSVX(samples=1000),
    "GNNExplainer": methods.GNNExplainer(epochs=30),
    "saliency": methods.Saliency(),
    "greedy": methods.Greedy(players="nodes"),
    "random": methods.Random(players="nodes"),
}
rows = {}
for name, method in explainers.items():
    explanations = list(graphsvx.explain_many(model, data, nodes, method=method))
    accuracy = metrics.accuracy(explanations, trained.dataset.node_truth)
    fidelities = [fidelity(each, model, data, top=4) for each in explanations]
    plus = sum(each.plus for each in fidelities) / len(fidelities)
    minus = sum(each.minus for each in fidelities) / len(fidelities)
    rows[name] = (accuracy, characterization(plus, minus))
    print(f"{name:14} accuracy {accuracy:.2f}  fidelity+ {plus:.2f}  fidelity- {minus:.2f}")

# %%
# *Accuracy*: share of the house among the best-ranked nodes. *Characterization*: large if the
# prediction falls without the top nodes and stays with them alone.

figure, ax = plt.subplots(figsize=(6, 3))
positions = range(len(rows))
ax.bar([p - 0.2 for p in positions], [row[0] for row in rows.values()], 0.4, label="accuracy")
ax.bar(
    [p + 0.2 for p in positions], [row[1] for row in rows.values()], 0.4, label="characterization"
)
ax.set_xticks(list(positions), list(rows))
ax.legend(frameon=False)
figure.tight_layout()

# %%
# These are a few nodes of one model. :doc:`/results/index` has all data sets, seeds and
# intervals.
