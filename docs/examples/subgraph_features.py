"""Features of the whole neighbourhood: which columns matter to what surrounds the node?"""

from dataclasses import replace

from graphsvx import GraphSVX, explain
from graphsvx_lab import datasets, zoo

dataset = datasets.load("ba-community")
model = zoo.train(dataset, settings=replace(zoo.settings_for(dataset), epochs=150)).model
node = 400
truth = dataset.node_truth.informative_features

own = explain(model, dataset.graph, node=node)
around = explain(model, dataset.graph, node=node, method=GraphSVX(players="subgraph_features"))
print("informative features:", sorted(truth))
print("the node's own      :", [r.id for r in own.top_features(2)])
print("of its neighbourhood:", [r.id for r in around.top_features(2)])

# A feature falls to a mean of nodes that are drawn from the data, by the seed. Nodes get no credit.
assert around.node_credit.players == 0
assert abs(around.base + around.total - around.prediction) < 1e-6
