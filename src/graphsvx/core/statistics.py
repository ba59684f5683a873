"""Mean and standard deviation of features, cached as long as the features are unchanged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from graphsvx.core.fingerprints import Stamp, stamp
from graphsvx.errors import InputError


@dataclass(frozen=True, eq=False)
class Statistics:
    """mu and sigma of every feature over the nodes of the graph (float64).

    Integer features are categories: mu is the mode, sigma 0.
    """

    mean: Tensor
    std: Tensor


_STATISTICS: Any = WeakTensorKeyDictionary()


def statistics_of(x: Tensor, x_stamp: Stamp | None = None) -> Statistics:
    """Mean and deviation of every column, cached as long as the tensor holds the same content."""
    x_stamp = x_stamp or stamp(x)
    cached = _STATISTICS.get(x)
    if cached is None or cached[0] != x_stamp:
        cached = _STATISTICS[x] = (x_stamp, _make_statistics(x))
    return cached[1]


def _make_statistics(x: Tensor) -> Statistics:
    # Columns in blocks: a float64 copy of all of a large x would double its memory.
    if x.numel() == 0:
        return Statistics(x.new_zeros(x.shape[1]).double(), x.new_zeros(x.shape[1]).double())
    if not x.is_floating_point():
        modes = x.long().mode(0).values.double()
        return Statistics(modes, torch.zeros_like(modes))
    means, stds = [], []
    for block in torch.split(x, max(1, 2**24 // x.shape[0]), dim=1):
        if not bool(torch.isfinite(block).all()):
            row, column = (~torch.isfinite(x)).nonzero()[0].tolist()
            raise InputError(
                f"data.x must be finite, got {float(x[row, column])} at node {row}, "
                f"feature {column}"
            )
        wide = block.double()
        means.append(wide.mean(0))
        stds.append(wide.std(0, unbiased=False))
    return Statistics(torch.cat(means), torch.cat(stds))
