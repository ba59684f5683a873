"""
Reading a wrong prediction: a shortcut in the data
==================================================

A model is right on its training data for the wrong reason, and fails on new data. The explanation
shows the reason.
"""

# %%
# A class that is decided by neighbours, and a *shortcut*: feature 7 gives the class away on the
# nodes that the model is trained on, and is random elsewhere.

import matplotlib.pyplot as plt
import torch
import torch_geometric
from torch_geometric.data import Data
from torch_geometric.nn import GCN
from torch_geometric.utils import barabasi_albert_graph

import graphsvx
from graphsvx.results import summary

torch_geometric.seed_everything(0)
nodes, features = 600, 8
x = torch.randn(nodes, features)
edge_index = barabasi_albert_graph(nodes, 3)
total = torch.zeros(nodes).index_add_(0, edge_index[1], x[edge_index[0], 0]) + x[:, 0]
y = (total > 0).long()
train = torch.arange(nodes) < 300
x[:, 7] = torch.where(train, 3.0 * (2 * y - 1), 3.0 * torch.randn(nodes).sign())
data = Data(x=x, edge_index=edge_index, y=y)

# %%
# A GCN learns it.

model = GCN(features, 32, num_layers=2, out_channels=2)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(150):
    loss = torch.nn.functional.cross_entropy(model(x, edge_index)[train], y[train])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
predicted = model(x, edge_index).argmax(-1)
print(f"accuracy: training {(predicted == y)[train].float().mean():.2f}", end=", ")
print(f"new nodes {(predicted == y)[~train].float().mean():.2f}")

# %%
# Why is a new node classified wrong?

wrong = torch.nonzero(~train & (predicted != y)).flatten()[:20].tolist()
explanation = graphsvx.explain(model, data, node=wrong[0])
print(explanation.describe())
explanation.plot()

# %%
# One explanation may be chance. Features of the neighbourhood, over twenty wrong predictions:

method = graphsvx.GraphSVX(players="subgraph_features", samples=300)
explanations = list(graphsvx.explain_many(model, data, wrong, method=method))
by_feature = summary.features(explanations)
for line in by_feature.top(4):
    print(f"{line.name}: {line.mean_absolute:.3f} on average")

# %%
# Feature 7 carries the wrong answers. It should not be there at all: whether a model may use it
# is a question about the data, which an explanation raises and does not decide.

figure, ax = plt.subplots(figsize=(5, 2.8))
lines = by_feature.top(8)
ax.barh([line.name for line in lines][::-1], [line.mean_absolute for line in lines][::-1])
ax.set_xlabel("mean absolute credit")
figure.tight_layout()
