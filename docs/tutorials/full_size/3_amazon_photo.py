"""
A large graph: hundreds of players, few calls
=============================================

A product of Amazon-Photo has hundreds of others within two hops. Single values of far nodes are
small and uncertain; what is certain is said, with error bars.
"""

# %%
# The graph and a trained two-layer GCN.

import time

import graphsvx
from graphsvx import GraphSVX
from graphsvx_lab import zoo

trained = zoo.ensure("amazon-photo", model="gcn")
data, model = trained.dataset.graph, trained.model
print(data)

# %%
# A product with some hundred others in reach, explained with the default budget.

node = int(trained.dataset.split.test[0])
begun = time.perf_counter()
explanation = graphsvx.explain(model, data, node=node, method=GraphSVX(players="nodes"))
print(f"{explanation.node_credit.players} players, {time.perf_counter() - begun:.2f} s")
print(explanation.certificate.line())

# %%
# The products that matter most, with 95 % intervals.

for player in explanation.top_nodes(5, "absolute"):
    print(f"product {player.id}: {player.value:+.4f} ± {1.96 * player.error:.4f}")

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
