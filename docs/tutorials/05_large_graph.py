"""
A large neighbourhood: hundreds of players, few calls
=====================================================

With three layers, hundreds of images are within reach of a digit. Single values of far nodes are
small and uncertain; what is certain is said, with error bars.
"""

# %%
# The graph of handwritten digits, and a GCN of three layers, trained here.

import time

import torch
from torch_geometric.nn import GCN
from torch_geometric.utils import k_hop_subgraph

import graphsvx
from graphsvx import GraphSVX
from graphsvx_lab import datasets

dataset = datasets.load("digits")
data, train = dataset.graph, dataset.split.train
torch.manual_seed(0)
model = GCN(64, 32, num_layers=3, out_channels=10)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(60):
    scores = model(data.x, data.edge_index)
    loss = torch.nn.functional.cross_entropy(scores[train], data.y[train])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
right = scores.argmax(-1) == data.y
print(f"accuracy on the test part: {right[dataset.split.test].float().mean():.2f}")

# %%
# The image of the test part with most others within three hops, explained with the default budget.


def reach(image: int) -> int:
    return len(k_hop_subgraph(image, 3, data.edge_index)[0])


node = max(dataset.split.test.tolist(), key=reach)
begun = time.perf_counter()
explanation = graphsvx.explain(model, data, node=node, method=GraphSVX(players="nodes"))
print(f"{explanation.node_credit.players} players, {time.perf_counter() - begun:.2f} s")
print(explanation.certificate.line())

# %%
# The images that matter most, with 95 % intervals.

for player in explanation.top_nodes(5, "absolute"):
    print(f"image {player.id}: {player.value:+.4f} ± {1.96 * player.error:.4f}")

# %%
# How many are certain at all: intervals that do not hold 0.

certain = explanation.node_values.abs() > 1.96 * explanation.node_errors
print(f"{int(certain.sum())} of {len(certain)} players have an interval without 0")

# %%
# What is certain even with few calls: credit of rings around the node, and of branches (a direct
# neighbour together with what arrives only through it). Errors of sums come from the covariance of
# the estimates.

for region in [*explanation.by_hop(), *explanation.branches()[:4]]:
    print(f"{region.name} ({len(region.members)} nodes): {region.value:+.4f}", end=" ")
    print(f"± {1.96 * region.error:.4f}")

# %%
# The picture shows the first thirty and groups the others.

explanation.plot()
