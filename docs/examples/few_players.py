"""Few reasons: at most five players, and how much they carry."""

from dataclasses import replace

from graphsvx import GraphSVX, explain
from graphsvx.estimators import Lasso
from graphsvx_lab import datasets, zoo

dataset = datasets.load("ba-shapes")
model = zoo.train(dataset, settings=replace(zoo.settings_for(dataset), epochs=150)).model

few = explain(model, dataset.graph, node=400, method=GraphSVX(estimator=Lasso(k=5)))
selection = few.selection
print({node: round(credit, 3) for node, credit in few.nodes.items() if credit})
print(f"{selection.chosen} of {selection.players} players carry {selection.carried:.0%};")
print(f"with only them on, the model gives {selection.alone:.3f} (all: {few.prediction:.3f})")
assert selection.chosen <= 5
assert abs(few.base + few.total - few.prediction) < 1e-6
