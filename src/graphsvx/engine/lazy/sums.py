"""Tensors that stand for weighted sums of few rows.

`MixedRows` stands for `rows = M @ base` with a sparse matrix M, which is what adding up messages
before projecting them gives (GraphSAGE, GIN, GraphConv). Gathering, weighing and adding up
`SharedRows` make such rows. The base may be lazy itself, as after two rounds without a projection
(ChebConv): a projection reaches the innermost rows, and all sums are of narrow rows. Other
operations turn them into plain tensors. `JoinedColumns` are columns side by side, not copied: the
two ends of an edge, or a node and what it received.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._pytree import tree_map

from graphsvx.engine.lazy.rows import (
    ADD,
    DIVIDE,
    MULTIPLY,
    OF_SHARED,
    Handler,
    Lazy,
    SharedRows,
    binary,
    handles,
    no_dropout,
    plain,
)

_OF_MIXED: dict[Any, Handler] = {}
_STACKED: dict[Any, Handler] = {}
_MANY_ENTRIES = 8  # a row, from which on sorted ones are summed by `embedding_bag`
_WIDE = 64
"""Columns from which on copies of rows cost more than keeping in mind what they are sums of."""


class MixedRows(Lazy):
    """`rows = M @ base` with M given by its entries (row, column, weight)."""

    handlers = _OF_MIXED
    base: Tensor
    row: Tensor
    column: Tensor
    weight: Tensor

    @staticmethod
    def __new__(
        cls, rows: int, row: Tensor, column: Tensor, weight: Tensor, base: Tensor
    ) -> MixedRows:
        """A wrapper without data of its own."""
        wrapper: MixedRows = cls.placeholder(rows, base)
        wrapper.base, wrapper.row, wrapper.column, wrapper.weight = base, row, column, weight
        return wrapper

    def plain(self) -> Tensor:
        """All rows, summed up."""
        return self.times(plain(self.base))

    def times(self, base: Tensor) -> Tensor:
        """M @ base for any base with as many rows."""
        entries, rows = len(self.row), self.shape[0]
        if entries > _MANY_ENTRIES * rows and bool((self.row[1:] >= self.row[:-1]).all()):
            # Adds the rows of each sum where they are, without a copy of all of them.
            starts = torch.searchsorted(self.row, torch.arange(rows, device=self.row.device))
            weight = self.weight.to(base.dtype)
            return functional.embedding_bag(
                self.column, base, starts, mode="sum", per_sample_weights=weight
            )
        picked = base.index_select(0, self.column) * self.weight[:, None]
        # scatter_add_ with an expanded index has a fast path that index_add_ lacks on CPUs.
        into = base.new_zeros(self.shape[0], base.shape[1])
        return into.scatter_add_(0, self.row[:, None].expand_as(picked), picked)


class StackedRows(Lazy):
    """`rows = cat([upper, lower])`, of which one is lazy."""

    handlers = _STACKED
    upper: Tensor
    lower: Tensor

    @staticmethod
    def __new__(cls, upper: Tensor, lower: Tensor) -> StackedRows:
        """A wrapper without data of its own."""
        wrapper: StackedRows = cls.placeholder(upper.shape[0] + lower.shape[0], lower)
        wrapper.upper, wrapper.lower = upper, lower
        return wrapper

    def plain(self) -> Tensor:
        """All rows, copied."""
        return torch.cat([plain(self.upper), plain(self.lower)])


@handles(_STACKED, functional.linear)
def _stacked_linear(x: Any, weight: Tensor, bias: Tensor | None = None) -> Any:
    if not isinstance(x, StackedRows) or isinstance(weight, Lazy):
        return NotImplemented
    parts = (functional.linear(part, weight, bias) for part in (x.upper, x.lower))
    return torch.cat([plain(part) for part in parts])


# --- products and sums of shared rows ----------------------------------------------------


def _multiply(func: Any) -> Handler:
    plainly = binary(func)

    def handler(x: Any, y: Any, *args: Any, **kwargs: Any) -> Any:
        done = plainly(x, y, *args, **kwargs)
        rows, factor = (x, y) if isinstance(x, SharedRows) else (y, x)
        # A weight for each row: a copy would be as wide as the rows are.
        if done is not NotImplemented or rows.dim() != 2 or rows.shape[1] < _WIDE or kwargs:
            return done
        return _scaled(_as_mixed(rows), factor)

    return handler


_func: Any
for _func in MULTIPLY:
    OF_SHARED[_func] = _multiply(_func)


def _combine(func: Any, sign: int) -> Handler:
    """Sum (sign 1) or difference (-1) of shared rows: of other rows, such as the ends of edges."""
    plainly = binary(func)

    def handler(x: Any, y: Any, *args: Any, **kwargs: Any) -> Any:
        done = plainly(x, y, *args, **kwargs)
        if done is not NotImplemented or args or kwargs or x.shape != y.shape:
            return done
        if x.dim() != 2 or x.shape[1] < _WIDE or not isinstance(x, SharedRows):
            return done
        second = _as_mixed(y)
        return NotImplemented if second is None else _mixed_add(x, _scaled(second, sign))

    return handler


for _func in (torch.add, Tensor.add, Tensor.__add__):
    OF_SHARED[_func] = _combine(_func, 1)
for _func in (torch.sub, Tensor.sub, Tensor.__sub__):
    OF_SHARED[_func] = _combine(_func, -1)


@handles(OF_SHARED, Tensor.expand_as)
@handles(_OF_MIXED, Tensor.expand_as)
def _expand_as(x: Any, other: Tensor) -> Any:
    return x.expand(other.shape) if not isinstance(x, Lazy) else NotImplemented


@handles(OF_SHARED, Tensor.new_zeros)
@handles(_OF_MIXED, Tensor.new_zeros)
def _new_zeros(x: SharedRows | MixedRows, *shape: Any, **kwargs: Any) -> Any:
    sizes = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
    if len(sizes) != 2 or x.dim() != 2 or tuple(sizes[1:]) != tuple(x.shape[1:]) or kwargs:
        return x.base.new_zeros(*shape, **kwargs)
    none = torch.zeros(0, dtype=torch.long, device=x.device)
    return MixedRows(sizes[0], none, none, none.to(x.dtype), x.base)


@handles(OF_SHARED, Tensor.new_ones)
@handles(_OF_MIXED, Tensor.new_ones)
def _new_ones(x: Any, *shape: Any, **kwargs: Any) -> Tensor:
    return x.base.new_ones(*shape, **kwargs)


# --- mixed rows --------------------------------------------------------------------------


def _as_mixed(x: Any) -> MixedRows | None:
    if isinstance(x, MixedRows):
        return x
    if isinstance(x, SharedRows) and x.dim() == 2:
        rows = torch.arange(x.shape[0], device=x.device)
        ones = torch.ones(x.shape[0], dtype=x.dtype, device=x.device)
        return MixedRows(x.shape[0], rows, x.index, ones, x.base)
    return None


def _column(value: Any, rows: int) -> Tensor | None:
    """`value` as one number a row, if that is what it is."""
    if not isinstance(value, Tensor) or isinstance(value, Lazy) or value.dim() != 2:
        return None
    if value.shape[0] != rows or (value.shape[1] > 1 and value.stride(1) != 0):
        return None
    return value[:, 0]


@handles(_OF_MIXED, Tensor.__getitem__)
def _mixed_getitem(x: MixedRows, key: Any) -> Any:
    if not isinstance(key, slice) or key.start or key.step not in (None, 1) or key.stop is None:
        return NotImplemented
    rows = len(range(*key.indices(x.shape[0])))
    if rows == x.shape[0]:
        return x
    inside = (x.row < rows).nonzero()[:, 0]
    if len(inside) == len(x.row):
        return MixedRows(rows, x.row, x.column, x.weight, x.base)
    row, column, weight = (part.index_select(0, inside) for part in (x.row, x.column, x.weight))
    return MixedRows(rows, row, column, weight, x.base)


@handles(_OF_MIXED, Tensor.scatter_add_)
def _scatter_add(into: Any, dim: int, index: Tensor, source: Any) -> Any:
    mixed = _as_mixed(source)
    target = None if mixed is None else _column(index, mixed.shape[0])
    if mixed is None or target is None or dim != 0 or not isinstance(into, MixedRows):
        return NotImplemented
    if into.row.numel() or mixed.base is not into.base:
        return NotImplemented
    return MixedRows(into.shape[0], target[mixed.row], mixed.column, mixed.weight, mixed.base)


@handles(_OF_MIXED, Tensor.scatter_reduce_)
def _scatter_reduce(into: Any, *args: Any, **kwargs: Any) -> Any:
    """PyG's other aggregations: into fresh zeros, and what is returned is used."""
    if not isinstance(into, MixedRows) or into.row.numel():
        return NotImplemented
    rest = tree_map(plain, (args, kwargs))
    return into.plain().scatter_reduce_(*rest[0], **rest[1])


@handles(_OF_MIXED, *DIVIDE)
def _mixed_divide(x: Any, y: Any) -> Any:
    if not isinstance(x, MixedRows):
        return NotImplemented
    if isinstance(y, (int, float)):
        return MixedRows(x.shape[0], x.row, x.column, x.weight / y, x.base)
    column = _column(y, x.shape[0])
    if column is None:
        return NotImplemented
    return MixedRows(x.shape[0], x.row, x.column, x.weight / column[x.row], x.base)


@handles(_OF_MIXED, *MULTIPLY)
def _mixed_multiply(x: Any, y: Any) -> Any:
    return _scaled(x, y) if isinstance(x, MixedRows) else _scaled(y, x)


def _scaled(x: Any, factor: Any) -> Any:
    if not isinstance(x, MixedRows):
        return NotImplemented
    if isinstance(factor, (int, float)) or (isinstance(factor, Tensor) and factor.numel() == 1):
        if isinstance(factor, Lazy):
            return NotImplemented
        scale = factor if isinstance(factor, (int, float)) else factor.reshape(())
        return MixedRows(x.shape[0], x.row, x.column, x.weight * scale, x.base)
    column = _column(factor, x.shape[0])
    if column is None:
        return NotImplemented
    return MixedRows(x.shape[0], x.row, x.column, x.weight * column[x.row], x.base)


@handles(_OF_MIXED, *ADD)
def _mixed_add(x: Any, y: Any) -> Any:
    first, second = _as_mixed(x), _as_mixed(y)
    if first is None or second is None or first.shape != second.shape:
        return NotImplemented
    shared = first.base is second.base
    shift = 0 if shared else first.base.shape[0]
    lazily = isinstance(first.base, Lazy) or isinstance(second.base, Lazy)
    stack = StackedRows if lazily else lambda *bases: torch.cat(bases)
    return MixedRows(
        first.shape[0],
        torch.cat([first.row, second.row]),
        torch.cat([first.column, second.column + shift]),
        torch.cat([first.weight, second.weight]),
        first.base if shared else stack(first.base, second.base),
    )


@handles(_OF_MIXED, torch.sub, Tensor.sub, Tensor.__sub__)
def _mixed_sub(x: Any, y: Any) -> Any:
    second = _as_mixed(y)
    if second is None:
        return NotImplemented
    return _mixed_add(x, _scaled(second, -1))


@handles(_OF_MIXED, Tensor.index_select, torch.index_select)
def _mixed_index_select(x: Any, dim: int, index: Tensor) -> Any:
    """Entries of the picked rows, each as often as it is picked."""
    if not isinstance(x, MixedRows) or dim % x.dim() != 0 or isinstance(index, Lazy):
        return NotImplemented
    order = torch.argsort(x.row, stable=True)
    count = torch.bincount(x.row, minlength=x.shape[0])
    start = count.cumsum(0) - count
    counts = count.index_select(0, index)
    total = int(counts.sum())
    if total > 4 * max(len(index), len(x.row)):  # many entries a row
        return _as_mixed(SharedRows(x, index)) if x.shape[1] >= _WIDE else NotImplemented
    rows = torch.repeat_interleave(torch.arange(len(index), device=index.device), counts)
    first = torch.repeat_interleave(
        start.index_select(0, index) - (counts.cumsum(0) - counts), counts
    )
    entry = order[first + torch.arange(total, device=index.device)]
    return MixedRows(
        len(index), rows, x.column.index_select(0, entry), x.weight.index_select(0, entry), x.base
    )


@handles(_OF_MIXED, functional.linear)
def _mixed_linear(x: Any, weight: Tensor, bias: Tensor | None = None) -> Any:
    if not isinstance(x, MixedRows) or isinstance(weight, Lazy):
        return NotImplemented
    done = x.times(plain(functional.linear(x.base, weight)))
    return done if bias is None else done + bias


handles(_OF_MIXED, functional.dropout)(no_dropout)


# --- columns side by side ----------------------------------------------------------------

_JOINED: dict[Any, Handler] = {}


class JoinedColumns(Lazy):
    """`rows = cat(parts, -1)`; a linear layer adds up what it makes of each part."""

    handlers = _JOINED
    parts: tuple[Tensor, ...]

    @staticmethod
    def __new__(cls, parts: Sequence[Tensor]) -> JoinedColumns:
        """A wrapper without data of its own."""
        width = sum(part.shape[-1] for part in parts)
        wrapper: JoinedColumns = cls.placeholder(parts[0].shape[0], parts[0], width)
        wrapper.parts = tuple(parts)
        return wrapper

    def plain(self) -> Tensor:
        """All columns, copied."""
        return torch.cat([plain(part) for part in self.parts], -1)


@handles(OF_SHARED, torch.cat, torch.concat)
@handles(_OF_MIXED, torch.cat, torch.concat)
def _cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    first = tensors[0]
    if first.dim() < 2 or dim not in (-1, first.dim() - 1):
        return NotImplemented
    if any(part.shape[:-1] != first.shape[:-1] or part.dtype != first.dtype for part in tensors):
        return NotImplemented
    if all(isinstance(part, SharedRows) and part.index is first.index for part in tensors):
        return SharedRows(torch.cat([plain(part.base) for part in tensors], -1), first.index)
    wide = any(
        isinstance(part, (SharedRows, MixedRows)) and part.shape[-1] >= _WIDE for part in tensors
    )
    return JoinedColumns(tensors) if wide else NotImplemented


@handles(_JOINED, functional.linear)
def _joined_linear(x: Any, weight: Tensor, bias: Tensor | None = None) -> Any:
    if not isinstance(x, JoinedColumns) or isinstance(weight, Lazy):
        return NotImplemented
    widths = [part.shape[-1] for part in x.parts]
    out, start = functional.linear(x.parts[0], weight[:, : widths[0]], bias), widths[0]
    for part, width in zip(x.parts[1:], widths[1:], strict=True):
        out = out + functional.linear(part, weight[:, start : start + width])
        start += width
    return out


@handles(_JOINED, Tensor.__getitem__)
def _joined_getitem(x: Any, key: Any) -> Any:
    """`x[:, i]`: one of several towers."""
    towers = isinstance(key, tuple) and len(key) == 2 and key[0] == slice(None)
    if not towers or not isinstance(key[1], int) or x.dim() != 3:
        return NotImplemented
    return JoinedColumns([part[key] for part in x.parts])
