"""A class or the whole model: what matters on the whole, and how much does it vary?"""

from dataclasses import replace

from graphsvx import GraphSVX, explain_many
from graphsvx.results import summary
from graphsvx_lab import datasets, zoo

dataset = datasets.load("ba-community")
model = zoo.train(dataset, settings=replace(zoo.settings_for(dataset), epochs=150)).model
nodes = dataset.node_truth.nodes()[::80]
found = list(explain_many(model, dataset.graph, nodes, method=GraphSVX(samples=300)))

# Features of whole neighbourhoods say more about the model than those of single nodes.
around = GraphSVX(players="subgraph_features", samples=300)
features = summary.features(explain_many(model, dataset.graph, nodes, method=around))
for line in features.top(3):
    print(f"{line.name}: {line.mean_absolute:.3f} on average, {line.low:+.3f} to {line.high:+.3f}")
print("matrix for a beeswarm:", features.matrix.shape)

# Credit by the role that a node has in its motif, as a share of what there is to explain.
roles = {0: "base", 1: "top", 2: "middle", 3: "bottom"}
by_role = summary.nodes(
    found, by=[roles[role] for role in dataset.node_truth.role.tolist()], share=True
)
for line in by_role.top():
    print(f"{line.name}: {line.mean:+.0%} (spread {line.std:.0%})")

for target, part in summary.by_class(found).items():
    print(f"class {target}: {part.explanations} nodes, first {part.top(1)[0].name}")
