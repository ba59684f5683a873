"""
A link: why does the model expect an edge?
==========================================

A graph autoencoder scores pairs of nodes. Which other nodes, and which of the pair's own
features, make it expect a link?
"""

# %%
# An encoder trained to recover the edges of a graph. Your own encoder takes its place.

import torch
from torch_geometric.nn import GAE, GCN

import graphsvx
from graphsvx import GraphSVX
from graphsvx_lab import datasets

data = datasets.load("ba-shapes").graph
torch.manual_seed(0)
data.x = torch.randn(data.num_nodes, 10)
model = GAE(GCN(10, 16, 2, 8))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(60):
    loss = model.recon_loss(model.encode(data.x, data.edge_index), data.edge_index)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# %%
# The model gives embeddings; by default the score of a link is their inner product. The pair
# need not be an edge of the graph.

explanation = graphsvx.explain(model.encoder, data, edge=(400, 402), method=GraphSVX(samples=500))
print(explanation.describe())
explanation.plot()

# %%
# A decoder of your own is a function of the embeddings of both ends.


def distance(source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return -(source - target).norm(dim=-1)


near = graphsvx.explain(
    model.encoder,
    data,
    edge=(400, 402),
    decoder=distance,
    scale="value",
    method=GraphSVX(samples=500),
)
print(f"minus the distance of the two: {near.prediction:.3f}; of the two alone: {near.base:.3f}")

# %%
# Which edges carry the link? The same question with edges as players.

edges = graphsvx.explain(
    model.encoder, data, edge=(400, 402), method=GraphSVX(players="edges", samples=500)
)
first = sorted(edges.edges, key=lambda pair: -abs(edges.edges[pair]))[:5]
for pair in first:
    print(pair, f"{edges.edges[pair]:+.4f}")
