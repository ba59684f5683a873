"""Array types, and operations on sorted integer arrays that numpy has no fast version of."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Ids = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Number = TypeVar("Number", bound=np.generic)


def no_ids() -> Ids:
    """An empty array of ids."""
    return np.zeros(0, dtype=np.int64)


def run_starts(ordered: NDArray[Any]) -> NDArray[np.bool_]:
    """Boolean mask of a sorted array: True where a new value begins."""
    starts = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=starts[1:])
    return starts


def setdiff_sorted(nodes: Ids, seen: Ids) -> Ids:
    """Sorted unique `nodes` that are not in the sorted `seen`; far faster than `np.setdiff1d`."""
    ordered = np.sort(nodes)
    new = run_starts(ordered)
    if len(seen):
        new &= seen.take(seen.searchsorted(ordered), mode="clip") != ordered
    return ordered[new]


def taken(table: NDArray[Number], places: NDArray[np.int32] | Ids) -> NDArray[Number]:
    """`table[places]` of a vector; numpy would copy places of 32 bits to 64 first."""
    picked: NDArray[Number] = (
        torch.from_numpy(table).index_select(0, torch.from_numpy(places)).numpy()
    )
    return picked


def row_sizes(rows: Bools) -> Ids:
    """`rows.sum(1)` in half the time."""
    sizes: Ids = np.einsum("ij->i", rows, dtype=np.int64)
    return sizes


def by_size(sizes: Ids, most: int) -> Ids:
    """`sizes.argsort(kind="stable")` of sizes up to `most`, by radix: numbers of few bits."""
    return sizes.astype(np.min_scalar_type(most)).argsort(kind="stable")


def as_tensors(device: torch.device, *arrays: Ids) -> list[Tensor]:
    """Arrays of integers as tensors on `device`, in one copy to it."""
    if device.type == "cpu":
        return [as_tensor(array, device) for array in arrays]
    together = as_tensor(np.concatenate([array.reshape(-1) for array in arrays]), device)
    parts = torch.split(together, [array.size for array in arrays])
    return [part.view(array.shape) for part, array in zip(parts, arrays, strict=True)]


def as_tensor(array: NDArray[Any], device: torch.device) -> Tensor:
    """A numpy array as a contiguous tensor on `device`."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)
