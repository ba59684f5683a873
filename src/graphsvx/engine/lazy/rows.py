"""Tensors that stand for many rows of few.

Replicas of a neighbourhood repeat the same feature rows thousands of times. `SharedRows` stands
for `rows[i] = base[index[i]]` and lets row-wise operations work on the small base;
`MixedRows` stands for weighted sums of base rows (`rows = M @ base`, M sparse), which is what
aggregating before projecting gives (GraphSAGE, GIN, GraphConv). Both turn into plain tensors
for every operation that they do not know, so an unknown layer is slower, never wrong.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._pytree import tree_map

from graphsvx.engine.lazy.base import ELEMENTWISE, KINDS, Handler, Lazy, handles, plain

_SHARED: dict[Any, Handler] = {}
_MIXED: dict[Any, Handler] = {}


class SharedRows(Lazy):
    """`rows[i] = base[index[i]]`."""

    handlers = _SHARED
    base: Tensor
    index: Tensor  # type: ignore[assignment]  # Tensor has a method of the name that is not used

    @staticmethod
    def __new__(cls, base: Tensor, index: Tensor) -> SharedRows:
        """A wrapper without data of its own."""
        wrapper: SharedRows = cls.placeholder(index.shape[0], base)
        wrapper.base, wrapper.index = base, index
        return wrapper

    def plain(self) -> Tensor:
        """All rows, copied."""
        return self.base.index_select(0, self.index)


class MixedRows(Lazy):
    """`rows = M @ base` with M given by its entries (row, column, weight)."""

    handlers = _MIXED
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
        return self.times(self.base)

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


# Asked in this order; `PrefixRows` puts itself first.
KINDS.extend([MixedRows, SharedRows])

_func: Any
_MANY_ENTRIES = 8
"""Entries a row from which on sorted ones are summed by `embedding_bag`."""
_WIDE = 64  # columns from which on copies of rows cost more than keeping weights in mind


# --- SharedRows: row-wise operations -----------------------------------------------------


def _row_wise(func: Any) -> Handler:
    def handler(x: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(x, SharedRows) or any(isinstance(a, Tensor) for a in args):
            return NotImplemented
        if any(isinstance(value, Tensor) for value in kwargs.values()) or kwargs.get("inplace"):
            return NotImplemented
        return SharedRows(func(x.base, *args, **kwargs), x.index)

    return handler


for _func in (*ELEMENTWISE, torch.sqrt, Tensor.sqrt, Tensor.float, Tensor.double):
    _SHARED[_func] = _row_wise(_func)


@handles(_SHARED, functional.dropout)
def _dropout(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:  # noqa: ARG001  (torch's)
    return x if not training or p == 0 else NotImplemented


def _reduces_rows(x: Tensor, dim: Any) -> bool:
    dims = [dim] if isinstance(dim, int) else list(dim or [])
    return not dims or any(d % x.dim() == 0 for d in dims)


def _along_row(func: Any) -> Handler:
    def handler(x: Any, dim: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(x, SharedRows) or _reduces_rows(x, dim):
            return NotImplemented
        return SharedRows(func(x.base, dim, *args, **kwargs), x.index)

    return handler


for _func in (torch.sum, Tensor.sum, torch.mean, Tensor.mean, torch.softmax, Tensor.softmax):
    _SHARED[_func] = _along_row(_func)


@handles(_SHARED, functional.softmax, functional.log_softmax)
def _softmax(*_: Any, **__: Any) -> Any:
    return NotImplemented


@handles(_SHARED, functional.normalize)
def _normalize(x: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Any = None) -> Any:
    if not isinstance(x, SharedRows) or _reduces_rows(x, dim) or out is not None:
        return NotImplemented
    return SharedRows(functional.normalize(x.base, p, dim, eps), x.index)


@handles(_SHARED, functional.layer_norm)
def _layer_norm(x: Any, shape: Any, *args: Any, **kwargs: Any) -> Any:
    if not isinstance(x, SharedRows) or len(shape) >= x.dim():
        return NotImplemented
    return SharedRows(functional.layer_norm(x.base, shape, *args, **kwargs), x.index)


@handles(_SHARED, functional.batch_norm)
def _batch_norm(
    x: Any, mean: Any, var: Any, weight: Any = None, bias: Any = None,
    training: bool = False, *args: Any, **kwargs: Any,
) -> Any:  # fmt: skip
    if training or mean is None or not isinstance(x, SharedRows):
        return NotImplemented
    done = functional.batch_norm(x.base, mean, var, weight, bias, False, *args, **kwargs)
    return SharedRows(done, x.index)


@handles(_SHARED, functional.linear)
def _linear(x: Any, weight: Tensor, bias: Tensor | None = None) -> Any:
    if not isinstance(x, SharedRows) or isinstance(weight, Lazy):
        return NotImplemented
    return SharedRows(functional.linear(x.base, weight, bias), x.index)


@handles(_SHARED, torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.mm, Tensor.mm)
def _matmul(x: Any, y: Any) -> Any:
    if not isinstance(x, SharedRows) or isinstance(y, Lazy) or x.dim() != 2 or y.dim() != 2:
        return NotImplemented
    return SharedRows(x.base @ y, x.index)


@handles(_SHARED, Tensor.view, Tensor.reshape, torch.reshape)
def _view(x: Any, *shape: Any) -> Any:
    if not isinstance(x, SharedRows) or isinstance(shape[0], torch.dtype):
        return NotImplemented
    sizes = list(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else list(shape)
    row = x.shape[1:].numel()
    if sizes[0] == -1:
        trailing = 1
        for size in sizes[1:]:
            trailing *= size
        if trailing != row:
            return NotImplemented
    elif sizes[0] != x.shape[0]:
        return NotImplemented
    return SharedRows(x.base.reshape(x.base.shape[0], *sizes[1:]), x.index)


def _same_for_all_rows(x: Tensor, other: Any) -> bool:
    if not isinstance(other, Tensor):
        return True
    if isinstance(other, Lazy) or other.dim() > x.dim():
        return False
    return other.dim() < x.dim() or (other.shape[0] == 1 and x.dim() > 0)


def _binary(func: Any) -> Handler:
    def handler(x: Any, y: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(x, SharedRows) and isinstance(y, SharedRows):
            if x.index is not y.index or x.dim() != y.dim():
                return NotImplemented
            return SharedRows(func(x.base, y.base, *args, **kwargs), x.index)
        if isinstance(x, SharedRows) and _same_for_all_rows(x, y):
            return SharedRows(func(x.base, y, *args, **kwargs), x.index)
        if isinstance(y, SharedRows) and _same_for_all_rows(y, x):
            return SharedRows(func(x, y.base, *args, **kwargs), y.index)
        return NotImplemented

    return handler


_MULTIPLY = (torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__)
_ADD = (torch.add, Tensor.add, Tensor.__add__, Tensor.__radd__)
_DIVIDE = (torch.div, Tensor.div, Tensor.__truediv__)
for _func in (*_MULTIPLY, *_ADD, *_DIVIDE, torch.sub, Tensor.sub, Tensor.__sub__, Tensor.__rsub__):
    _SHARED[_func] = _binary(_func)


def _multiply(func: Any) -> Handler:
    plainly = _binary(func)

    def handler(x: Any, y: Any, *args: Any, **kwargs: Any) -> Any:
        done = plainly(x, y, *args, **kwargs)
        rows, factor = (x, y) if isinstance(x, SharedRows) else (y, x)
        # A weight for each row: a copy would be as wide as the rows are.
        if done is not NotImplemented or rows.dim() != 2 or rows.shape[1] < _WIDE or kwargs:
            return done
        return _scaled(_as_mixed(rows), factor)

    return handler


for _func in _MULTIPLY:
    _SHARED[_func] = _multiply(_func)


# --- gathering and adding up rows -----------------------------------------------------------


@handles(_SHARED, Tensor.index_select, torch.index_select)
def _index_select(x: Any, dim: int, index: Tensor) -> Any:
    if not isinstance(x, SharedRows) or dim % x.dim() != 0 or isinstance(index, Lazy):
        return NotImplemented
    return SharedRows(x.base, x.index.index_select(0, index))


@handles(_SHARED, Tensor.__getitem__)
def _getitem(x: Any, key: Any) -> Any:
    if not isinstance(x, SharedRows):
        return NotImplemented
    if isinstance(key, slice) or (isinstance(key, Tensor) and key.dim() == 1):
        return SharedRows(x.base, x.index[key])
    return NotImplemented


@handles(_SHARED, Tensor.expand_as)
@handles(_MIXED, Tensor.expand_as)
def _expand_as(x: Any, other: Tensor) -> Any:
    return x.expand(other.shape) if not isinstance(x, Lazy) else NotImplemented


@handles(_SHARED, Tensor.new_zeros)
@handles(_MIXED, Tensor.new_zeros)
def _new_zeros(x: SharedRows | MixedRows, *shape: Any, **kwargs: Any) -> Any:
    sizes = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
    if len(sizes) != 2 or x.dim() != 2 or tuple(sizes[1:]) != tuple(x.shape[1:]) or kwargs:
        return x.base.new_zeros(*shape, **kwargs)
    none = torch.zeros(0, dtype=torch.long, device=x.device)
    return MixedRows(sizes[0], none, none, x.base.new_zeros(0), x.base)


@handles(_SHARED, Tensor.new_ones)
@handles(_MIXED, Tensor.new_ones)
def _new_ones(x: Any, *shape: Any, **kwargs: Any) -> Tensor:
    return x.base.new_ones(*shape, **kwargs)


def _as_mixed(x: Any) -> MixedRows | None:
    if isinstance(x, MixedRows):
        return x
    if isinstance(x, SharedRows) and x.dim() == 2:
        rows = torch.arange(x.shape[0], device=x.device)
        return MixedRows(x.shape[0], rows, x.index, x.base.new_ones(x.shape[0]), x.base)
    return None


def _column(value: Any, rows: int) -> Tensor | None:
    """`value` as one number a row, if that is what it is."""
    if not isinstance(value, Tensor) or isinstance(value, Lazy) or value.dim() != 2:
        return None
    if value.shape[0] != rows or (value.shape[1] > 1 and value.stride(1) != 0):
        return None
    return value[:, 0]


@handles(_MIXED, Tensor.__getitem__)
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


@handles(_MIXED, Tensor.scatter_add_)
def _scatter_add(into: Any, dim: int, index: Tensor, source: Any) -> Any:
    mixed = _as_mixed(source)
    target = None if mixed is None else _column(index, mixed.shape[0])
    if mixed is None or target is None or dim != 0 or not isinstance(into, MixedRows):
        return NotImplemented
    if into.row.numel() or mixed.base is not into.base:
        return NotImplemented
    return MixedRows(into.shape[0], target[mixed.row], mixed.column, mixed.weight, mixed.base)


@handles(_MIXED, Tensor.scatter_reduce_)
def _scatter_reduce(into: Any, *args: Any, **kwargs: Any) -> Any:
    """PyG's other aggregations: into fresh zeros, and what is returned is used."""
    if not isinstance(into, MixedRows) or into.row.numel():
        return NotImplemented
    rest = tree_map(plain, (args, kwargs))
    return into.plain().scatter_reduce_(*rest[0], **rest[1])


@handles(_MIXED, *_DIVIDE)
def _mixed_divide(x: Any, y: Any) -> Any:
    if not isinstance(x, MixedRows):
        return NotImplemented
    if isinstance(y, (int, float)):
        return MixedRows(x.shape[0], x.row, x.column, x.weight / y, x.base)
    column = _column(y, x.shape[0])
    if column is None:
        return NotImplemented
    return MixedRows(x.shape[0], x.row, x.column, x.weight / column[x.row], x.base)


@handles(_MIXED, *_MULTIPLY)
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


@handles(_MIXED, *_ADD)
def _mixed_add(x: Any, y: Any) -> Any:
    first, second = _as_mixed(x), _as_mixed(y)
    if first is None or second is None or first.shape != second.shape:
        return NotImplemented
    shared = first.base is second.base
    shift = 0 if shared else first.base.shape[0]
    return MixedRows(
        first.shape[0],
        torch.cat([first.row, second.row]),
        torch.cat([first.column, second.column + shift]),
        torch.cat([first.weight, second.weight]),
        first.base if shared else torch.cat([first.base, second.base]),
    )


@handles(_MIXED, torch.sub, Tensor.sub, Tensor.__sub__)
def _mixed_sub(x: Any, y: Any) -> Any:
    second = _as_mixed(y)
    if second is None:
        return NotImplemented
    return _mixed_add(x, _scaled(second, -1))


@handles(_MIXED, Tensor.index_select, torch.index_select)
def _mixed_index_select(x: Any, dim: int, index: Tensor) -> Any:
    """Entries of the picked rows, each as often as it is picked."""
    if not isinstance(x, MixedRows) or dim % x.dim() != 0 or isinstance(index, Lazy):
        return NotImplemented
    order = torch.argsort(x.row, stable=True)
    count = torch.bincount(x.row, minlength=x.shape[0])
    start = count.cumsum(0) - count
    counts = count.index_select(0, index)
    total = int(counts.sum())
    if total > 4 * max(len(index), len(x.row)):
        return NotImplemented  # many entries a row: summed up once they are less
    rows = torch.repeat_interleave(torch.arange(len(index), device=index.device), counts)
    first = torch.repeat_interleave(
        start.index_select(0, index) - (counts.cumsum(0) - counts), counts
    )
    entry = order[first + torch.arange(total, device=index.device)]
    return MixedRows(
        len(index), rows, x.column.index_select(0, entry), x.weight.index_select(0, entry), x.base
    )


@handles(_MIXED, functional.linear)
def _mixed_linear(x: Any, weight: Tensor, bias: Tensor | None = None) -> Any:
    if not isinstance(x, MixedRows) or isinstance(weight, Lazy):
        return NotImplemented
    done = x.times(functional.linear(x.base, weight))
    return done if bias is None else done + bias


@handles(_MIXED, functional.dropout)
def _mixed_dropout(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:  # noqa: ARG001  (torch's)
    return x if not training or p == 0 else NotImplemented
