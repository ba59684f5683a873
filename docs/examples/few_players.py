"""Few reasons: at most five players, and how much they carry."""

from dataclasses import replace

from graphsvx import GraphSVX, datasets, explain, zoo
from graphsvx.estimators import Lasso

dataset = datasets.load("ba-shapes")
model = zoo.train(dataset, settings=replace(zoo.settings_for(dataset), epochs=150)).model

few = explain(model, dataset.graph, node=400, method=GraphSVX(regression=Lasso(k=5)))
said = few.extra["selective"]
print({node: round(credit, 3) for node, credit in few.nodes.items() if credit})
print(f"{said['chosen']} of {said['of']} players carry {said['carried']:.0%} of the credit;")
print(f"with only them on, the model gives {said['alone']:.3f} (all: {few.prediction:.3f})")
assert said["chosen"] <= 5
assert abs(few.base + few.total - few.prediction) < 1e-6
