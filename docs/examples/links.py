"""Link prediction: why does the model expect an edge between two nodes?"""

import torch
from torch_geometric.nn import GAE, GCN

from graphsvx import GraphSVX, explain
from graphsvx_lab import datasets

graph = datasets.load("ba-shapes").graph
torch.manual_seed(0)
model = GAE(GCN(10, 16, 2, 8))
optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
x = torch.randn(graph.num_nodes, 10)
for _ in range(30):
    loss = model.recon_loss(model.encode(x, graph.edge_index), graph.edge_index)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()

# The encoder gives embeddings; the decoder turns those of the two ends into a score. The default
# is their inner product, as in a graph autoencoder. The edge need not be there.
graph.x = x
explanation = explain(model.encoder, graph, edge=(400, 402), method=GraphSVX(samples=300))
print(explanation)
assert explanation.class_names == ("no link", "link")
assert abs(explanation.base + explanation.total - explanation.prediction) < 1e-5


def distance(source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return -(source - target).norm(dim=-1)


near = explain(
    model.encoder, graph, edge=(400, 402), decoder=distance, scale="value",
    method=GraphSVX(samples=300),
)  # fmt: skip
print(f"minus the distance of the two: {near.prediction:.3f}, alone {near.base:.3f}")
