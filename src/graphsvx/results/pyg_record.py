"""Explanations of PyG (`torch_geometric.explain`) with signed credit beside their masks."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor
from torch_geometric.explain import Explanation, HeteroExplanation

from graphsvx.results.record import ExplanationRecord

LEAST = 0.99
"""Smallest value of a mask where there is credit; the largest is 1.

PyG multiplies features and messages by a mask, so that values near 1 leave a player as it is, and
what a mask is below 1 only carries the order by size.
"""
_NEGLIGIBLE = 1e-6
"""Credit below this share of the largest is none."""


def mask(credit: Tensor) -> Tensor:
    """Signed credit as a mask by its size: 0 where there is none, else from 0.99 to 1."""
    sizes = credit.abs()
    largest = sizes.max() if credit.numel() else sizes.sum()
    on = sizes > _NEGLIGIBLE * largest
    return torch.where(on, LEAST + (1 - LEAST) * sizes / largest, torch.zeros_like(sizes))


def _with_sizes(explanation: Any) -> Any:
    """A copy for drawings: what masks keep has its credit's size as a share of the largest."""
    picture = copy.copy(explanation)
    for side, stores in (("node", picture.node_stores), ("edge", picture.edge_stores)):
        credited = [
            store
            for store in stores
            if f"{side}_credit" in store and store.get(f"{side}_mask") is not None
        ]
        sizes = [store[f"{side}_credit"].abs() for store in credited]
        largest = max((float(size.max()) for size in sizes if size.numel()), default=0.0) or 1.0
        for store, size in zip(credited, sizes, strict=True):
            shares = torch.where(size > 0, size / largest, 1.0)  # explained nodes have no credit
            store[f"{side}_mask"] = torch.where(store[f"{side}_mask"] > 0, shares, 0.0)
    return picture


class CreditedExplanation(Explanation):
    """PyG's explanation with the record(s) of graphsvx that its masks were made from."""

    @property
    def graphsvx(self) -> Any:
        """The record, or the list of records where there are several."""
        return self._graphsvx

    def visualize_graph(self, *args: Any, **kwargs: Any) -> Any:
        """As in PyG; the opacity of an edge is the size of its credit."""
        return Explanation.visualize_graph(_with_sizes(self), *args, **kwargs)

    def visualize_feature_importance(self, *args: Any, **kwargs: Any) -> Any:
        """As in PyG, of the size of the credit; of `feature_credit` where nodes have one value."""
        picture, credit = _with_sizes(self), self.get("feature_credit")
        if (
            credit is not None
            and picture.get("node_mask") is not None
            and picture.node_mask.size(1) == 1
        ):
            picture.node_mask = credit.abs()[None]
        return Explanation.visualize_feature_importance(picture, *args, **kwargs)


class CreditedHeteroExplanation(HeteroExplanation):
    """The same of a typed graph."""

    @property
    def graphsvx(self) -> Any:
        """The record, or the list of records where there are several."""
        return self._graphsvx

    def visualize_graph(self, *args: Any, **kwargs: Any) -> Any:
        """As in PyG; sizes and opacities are by the size of the credit."""
        return HeteroExplanation.visualize_graph(_with_sizes(self), *args, **kwargs)

    def visualize_feature_importance(self, *args: Any, **kwargs: Any) -> Any:
        """As in PyG, of the size of the credit; of `feature_credit` where there is some."""
        credit = self.collect("feature_credit", allow_empty=True)
        picture = HeteroExplanation() if credit else _with_sizes(self)
        for node_type, values in credit.items():
            picture[node_type].node_mask = values.abs()[None]
        return HeteroExplanation.visualize_feature_importance(picture, *args, **kwargs)


def carried_credit(explanation: ExplanationRecord, nodes: Tensor, edge_index: Tensor) -> Tensor:
    """The credit of nodes on the edges that carry it, [edges].

    A node's credit is shared evenly among its edges to nodes that are nearer to what is explained;
    among all of its edges to others where none is.
    """
    source, target = edge_index.cpu()
    hops = nodes.new_full(nodes.shape, float("inf"))
    hops[explanation.field.ids] = explanation.field.hops.to(hops)
    nearer = (hops[target] < hops[source]).to(nodes)
    has_nearer = nodes.new_zeros(nodes.shape).index_add_(0, source, nearer) > 0
    carries = nearer.where(has_nearer[source], (source != target).to(nodes))
    shares = nodes.new_zeros(nodes.shape).index_add_(0, source, carries)
    return carries * (nodes / shares.clamp(min=1))[source]
