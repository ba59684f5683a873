"""Why this rather than that: another node, a typical node of a class, another class."""

from dataclasses import replace

from graphsvx import GraphSVX, explain
from graphsvx_lab import datasets, zoo

dataset = datasets.load("ba-community")
graph = dataset.graph
model = zoo.train(dataset, settings=replace(zoo.settings_for(dataset), epochs=150)).model

# Switched-off features become those of node 1100, of a typical node of class 5, or given ones.
for reference in (1100, "class:5", graph.x[:700].mean(0)):
    method = GraphSVX(samples=300, reference=reference)
    explanation = explain(model, graph, node=400, method=method)
    first = explanation.top_features(1, "absolute")[0]
    name = reference if isinstance(reference, (int, str)) else "the first community"
    print(f"against {name}: feature {first.id} {first.value:+.3f}, base {explanation.base:.3f}")
    assert abs(explanation.base + explanation.total - explanation.prediction) < 1e-6

# Why class 1 rather than class 2?
every = explain(model, graph, node=400, targets="all", method=GraphSVX(samples=300))
rather = every.contrast(1, 2)
print(rather.title, f"{rather.prediction:+.3f}", rather.top_nodes(3, "absolute"))
