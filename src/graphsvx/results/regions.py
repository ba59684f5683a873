"""Credit of nodes summed by distance and by branch, with standard errors of the sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Ids
from graphsvx.results.credit import Credit
from graphsvx.results.field_record import FieldRecord
from graphsvx.results.schema import Array

SEVERAL = -1
"""Branch of nodes whose messages arrive through several direct neighbours."""
_SUMS = Array("float64", ("outputs", "groups"))


@dataclass(frozen=True, eq=False)
class RegionErrors:
    """Standard errors of sums of node credit, from the covariance of the estimates."""

    by_hop: Annotated[Tensor, _SUMS]
    """In ascending order of hops."""
    by_branch: Annotated[Tensor, _SUMS]
    """In ascending order of the direct neighbour; nodes with several ways (-1) first."""

    def bound(self, first: int, second: int) -> RegionErrors:
        """Bounds for the differences of two outputs: the sums of their errors."""
        by_hop, by_branch = (
            (errors[first] + errors[second])[None] for errors in (self.by_hop, self.by_branch)
        )
        return RegionErrors(by_hop, by_branch)


@dataclass(frozen=True)
class Region:
    """A group of nodes and the credit that it has together."""

    name: str
    members: tuple[int, ...]
    """Node ids, those with the most absolute credit first."""
    value: float
    error: float
    """Standard error of the sum: 0 where exact, NaN where it is not known."""
    key: int
    """Hops of a ring, the direct neighbour of a branch; `SEVERAL` for what has neither."""


def hop_of(field: FieldRecord, ids: Tensor) -> Ids:
    """Hops of these nodes, [ids]; -1 for nodes outside the field."""
    return _looked_up(field, ids, field.hops.numpy())


def branch_of(field: FieldRecord, ids: Tensor) -> Ids:
    """The direct neighbour through which alone a node's messages arrive, [ids].

    A direct neighbour is its own branch; `SEVERAL` marks nodes with more than one way within the
    depth of the field.
    """
    order, hops = np.argsort(field.ids.numpy()), field.hops.numpy()
    ids_in_order = field.ids.numpy()[order]
    source, target = (
        order[np.searchsorted(ids_in_order, ends)] for ends in field.edge_index.numpy()
    )
    direct = hops == 1
    nodes = field.ids.numpy()
    low = np.where(direct, nodes, np.iinfo(np.int64).max)
    high = np.where(direct, nodes, -1)
    inward = (hops[source] > 1) & (hops[target] > 0)
    source, target = source[inward], target[inward]
    for _ in range(int(hops.max(initial=0)) - 1):  # ways of up to 2, 3, ... edges
        lowest, highest = low.copy(), high.copy()
        np.minimum.at(lowest, source, low[target])
        np.maximum.at(highest, source, high[target])
        low, high = lowest, highest
    return _looked_up(field, ids, np.where(low == high, low, SEVERAL))


def _looked_up(field: FieldRecord, ids: Tensor, values: Ids) -> Ids:
    order = np.argsort(field.ids.numpy())
    ids_in_order, queried = field.ids.numpy()[order], ids.numpy()
    place = np.searchsorted(ids_in_order, queried).clip(max=max(len(ids_in_order) - 1, 0))
    inside = (
        ids_in_order[place] == queried if len(ids_in_order) else np.zeros(len(queried), dtype=bool)
    )
    return np.where(inside, values[order[place]] if len(ids_in_order) else -1, -1)


def regions(
    credit: Credit, row: int, labels: Ids, errors: Tensor | None, name: Callable[[int], str]
) -> list[Region]:
    """Sums of node credit of output `row` by label; `errors` [outputs, groups]: of the sums."""
    ids, values, errors_of_nodes = credit.ids, credit.values[row], credit.errors[row]
    result = []
    groups, starts = np.unique(np.sort(labels), return_index=True)
    parts = np.split(np.argsort(labels, kind="stable"), starts[1:])
    for position, (label, part) in enumerate(zip(groups.tolist(), parts, strict=False)):
        members = torch.from_numpy(part)
        ordered = members[values[members].abs().argsort(descending=True, stable=True)]
        if errors is not None:
            error = float(errors[row, position])
        else:
            error = 0.0 if not bool(errors_of_nodes[members].any()) else float("nan")
        nodes = tuple(ids[ordered].tolist())
        result.append(Region(name(label), nodes, float(values[members].sum()), error, label))
    return result
