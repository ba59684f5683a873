"""Fitted to the audience: one side only, another balance, plain words."""

from dataclasses import replace

from graphsvx import GraphSVX, explain
from graphsvx_lab import datasets, zoo

dataset = datasets.load("ba-community")
graph = dataset.graph
model = zoo.train(dataset, settings=replace(zoo.settings_for(dataset), epochs=150)).model

for players in ("nodes", "features", "both"):
    explanation = explain(model, graph, node=405, method=GraphSVX(samples=300, players=players))
    print(f"{players}: {explanation.node_credit.players} nodes, "
          f"{explanation.feature_credit.players} features")  # fmt: skip

# Nodes carry 80 % of what there is to explain, features the rest.
balanced = explain(model, graph, node=405, method=GraphSVX(samples=300, balance=0.8))
gap = balanced.prediction - balanced.base
assert abs(float(balanced.node_values.sum()) - 0.8 * gap) < 1e-6
print(balanced.balance)

print(explain(model, graph, node=405, class_names=dataset.class_names).describe())
