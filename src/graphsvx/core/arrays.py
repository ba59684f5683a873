"""Array types, random streams, comparisons but for rounding, and fast operations on arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from graphsvx.errors import InputError

Ids = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


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


# --- rows as keys --------------------------------------------------------------------------


def row_keys(*parts: NDArray[Any]) -> list[bytes]:
    """One hashable key per row; equal rows have equal keys."""
    packed = [
        np.packbits(part, axis=1)
        if part.dtype == bool
        else np.ascontiguousarray(part).view(np.uint8)
        for part in parts
    ]
    joined = np.ascontiguousarray(np.concatenate(packed, axis=1))
    width = joined.shape[1]
    if width == 0:
        return [b""] * len(joined)
    return joined.view(np.dtype((np.void, width)))[:, 0].tolist()


class RowIds:
    """Assigns ids 0, 1, ... to distinct rows in the order in which they are added."""

    def __init__(self) -> None:
        self._ids: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, *parts: NDArray[Any]) -> tuple[Ids, Ids]:
        """The id of each row, and the positions of rows that were new."""
        id_of, before = self._ids, len(self._ids)
        ids = [id_of.setdefault(key, len(id_of)) for key in row_keys(*parts)]
        numbers = np.asarray([before - 1, *ids], dtype=np.int64)
        largest = np.maximum.accumulate(numbers)
        return numbers[1:], np.flatnonzero(largest[1:] > largest[:-1])


# --- tensors that can be read --------------------------------------------------------------

_LARGEST = 8 * 2**30
"""Bytes of a tensor that may be larger than the memory that stores it."""


def shape_of(value: object) -> tuple[int, ...]:
    """The shape of a tensor; () for anything else."""
    return tuple(value.shape) if isinstance(value, Tensor) else ()


def must_be_readable(value: object, name: str) -> None:
    """Raise an InputError for a tensor whose numbers are missing, special or too many to copy."""
    if isinstance(value, Tensor) and (problem := unreadable(value)):
        raise InputError(f"{name} must be a plain tensor of numbers, got {problem}")


def unreadable(tensor: Tensor) -> str | None:  # noqa: PLR0911  (one return per kind of tensor)
    """What a tensor is whose numbers cannot be read as they are; None: they can."""
    if type(tensor).__module__.startswith("graphsvx."):  # rows of a batch, of which few are stored
        return None
    if nn.parameter.is_lazy(tensor):
        return "a parameter without values; call the model once before"
    if tensor.is_nested:
        return "a nested tensor; use torch.nested.to_padded_tensor"
    if tensor.is_quantized:
        return "a quantized tensor; use .dequantize()"
    if tensor.is_meta:
        return "a tensor on the meta device, which holds no numbers"
    if tensor.layout == torch._mkldnn:  # type: ignore[attr-defined]  # torch lists no such layout
        return "one of MKL-DNN; use .to_dense()"
    if tensor.is_conj() or tensor.is_neg():
        return "one that is stored as its conjugate; use .resolve_conj().resolve_neg()"
    if tensor.is_floating_point() and tensor.dtype.itemsize == 1:
        return f"{tensor.dtype}, which torch hardly computes with; use .float()"
    kind = type(tensor)
    own_dispatch = kind.__torch_dispatch__ is not Tensor.__torch_dispatch__
    if own_dispatch and not kind.__module__.startswith("torch_geometric."):
        return f"a {kind.__name__}; use a torch.Tensor"
    size = tensor.numel() * tensor.element_size()
    if tensor.layout == torch.strided and 0 in tensor.stride() and size > _LARGEST:
        return f"one of {size / 2**30:.0f} GiB, whose rows are one row in memory"
    return None


def derive_rng(seed: int, purpose: str) -> torch.Generator:
    """Random generator derived from (seed, purpose).

    Each purpose has its own stream, so that the budget of one game does not change the draws of
    another.
    """
    number = int.from_bytes(purpose.encode()[:7], "little")
    return torch.Generator().manual_seed((seed * 1_000_003 + number) % 2**63)


# Of the size of an output: what the order of sums may change, and what it changes at least.
_LOOSE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 5e-2, torch.float16: 1e-2}
_TIGHT = {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3}
# Of the spread of an output: an error of this size would be seen in the explanation.
_SPREAD = {torch.float64: 1e-8, torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}


def tolerances(like: Tensor) -> Tensor:
    """Differences that rounding explains, one for each output, from outputs [..., outputs].

    Relative to the size of that output, and where its values hardly differ, to their spread: two
    outputs of very different scales do not hide each other.
    """
    dtype = like.dtype
    like = like.cpu().double()
    rows = like.flatten(0, -2) if like.dim() > 1 else like[None]
    rows = torch.where(rows.isfinite(), rows, 0.0)
    size = rows.abs().amax(0)
    loose = _LOOSE.get(dtype, 1e-10) * size
    if len(rows) == 1:
        return loose
    spread = rows.amax(0) - rows.amin(0)
    # A spread of nothing says nothing: all rows may be the same graph.
    fine = torch.maximum(_SPREAD.get(dtype, 1e-8) * spread, _TIGHT.get(dtype, 1e-12) * size)
    return torch.where(spread > 0, torch.minimum(loose, fine), loose)


def allclose(a: Tensor, b: Tensor, like: Tensor | None = None, noise: Tensor | None = None) -> bool:
    """Equal up to rounding, output by output; not finite where the other is not.

    `like`: outputs that show how large each output is (b itself if there are none). `noise`: what
    rounding was seen to change, [outputs], where the outputs' sizes do not tell.
    """
    allowed = tolerances(b if like is None else like)
    if noise is not None:
        allowed = torch.maximum(allowed, noise.cpu())
    wide, other = a.cpu().double(), b.cpu().double()
    is_close = ((wide - other).abs() <= allowed) & wide.isfinite() & other.isfinite()
    equal = (wide == other) | (wide.isnan() & other.isnan())
    return bool((is_close | equal).all())


def nudged(x: Tensor, rng: np.random.Generator) -> Tensor:
    """x with every number changed by its last bit, up or down at random; integers stay."""
    if not x.is_floating_point():
        return x
    signs = torch.from_numpy(rng.choice([-1.0, 1.0], size=x.shape)).to(x)
    return x * (1 + torch.finfo(x.dtype).eps * signs)
