"""A group of nodes: why does the model say "cycle" about these six, on average?"""

from dataclasses import replace

from graphsvx import explain
from graphsvx_lab import datasets, zoo

dataset = datasets.load("tree-cycles")
model = zoo.train(dataset, settings=replace(zoo.settings_for(dataset), epochs=150)).model
cycle = sorted(dataset.node_truth.motif(511))

# The score is the average over the group; its own nodes do not play, all around it do.
explanation = explain(model, dataset.graph, nodes=cycle, class_names=dataset.class_names)
print(explanation)
print(f"average score {explanation.prediction:.3f}, without any neighbour {explanation.base:.3f}")
assert abs(explanation.base + explanation.total - explanation.prediction) < 1e-6
assert not set(explanation.nodes) & set(cycle)
