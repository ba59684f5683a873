"""Edges as players, and players that switch on and off together."""

from dataclasses import replace

from graphsvx import GraphSVX, explain
from graphsvx_lab import datasets, zoo

dataset = datasets.load("ba-shapes")
graph, node = dataset.graph, 402
model = zoo.train(dataset, settings=replace(zoo.settings_for(dataset), epochs=150)).model

# Credit per edge, both directions together or apart.
edges = explain(model, graph, node=node, method=GraphSVX(players="edges", samples=400))
print("edge with the most credit:", max(edges.edges, key=edges.edges.get))
apart = GraphSVX(players="edges", directions="apart", samples=400)
print("directed edges:", explain(model, graph, node=node, method=apart).edge_credit.players)

# Groups: the house around the node against the rest. Who is in no group plays alone.
house = sorted(dataset.node_truth.motif(node) - {node})
rest = [i for i in range(graph.num_nodes) if i not in house and i != node]
groups = GraphSVX(groups={"house": house, "rest": rest})
explanation = explain(model, graph, node=node, method=groups)
names = explanation.node_credit.names
print(dict(zip(names, explanation.node_values.tolist(), strict=True)))
assert names == ("house", "rest")
assert explanation.certificate.exact
