"""A whole graph: which nodes, edges or features make the model say that?"""

from dataclasses import replace

from graphsvx import GraphSVX, explain
from graphsvx_lab import datasets, zoo

dataset = datasets.load("ba-2motifs")
model = zoo.train(dataset, settings=replace(zoo.settings_for(dataset), epochs=10)).model
graph = dataset.graphs[600]  # a tree with a ring of five on nodes 20 to 24

# All nodes play: a switched-off node loses its edges.
by_nodes = explain(model, graph, graph=True, target=1, class_names=dataset.class_names)
print(by_nodes)
print("nodes of the ring in the top 5:", sum(r.id >= 20 for r in by_nodes.top_nodes(5)))

# Or all edges, both directions of an edge together.
by_edges = explain(model, graph, graph=True, target=1, method=GraphSVX(players="edges"))
print("edges with the most credit:", sorted(by_edges.edges, key=by_edges.edges.get)[-5:])

# Or all features: feature j of every node goes to its mean. Here all are constant: none plays.
by_features = explain(model, graph, graph=True, target=1, method=GraphSVX(players="features"))
print("features that play:", by_features.feature_credit.players)
for e in (by_nodes, by_edges, by_features):
    assert abs(e.base + e.total - e.prediction) < 1e-6
