"""Lazy tensors of rows that are stored once, added up later, or not needed.

Replicas of a neighbourhood repeat the same feature rows thousands of times. `SharedRows` stands for
`rows[i] = base[index[i]]`; of `PrefixRows` only the first rows are computed. Operations that treat
each row by itself (`engine/rowwise.py`) work on the stored rows. `MixedRows` stands for
`rows = M @ base` with a sparse matrix M, which is what adding up messages before projecting them
gives (GraphSAGE, GIN, GraphConv); a projection reaches the innermost rows, and all sums are of
narrow rows. `JoinedColumns` are columns side by side, not copied: the two ends of an edge, or a
node and what it received. `PatchedRows` differ from few others in few columns.

All of them turn into plain tensors for every operation that they do not know, so an unknown layer
is slower, never wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._pytree import tree_map_only

from graphsvx.engine.rowwise import is_metadata, is_row_wise, mapped, name_of, tensors

_MANY_ENTRIES = 8  # a row, from which on sorted ones are summed by `embedding_bag`
_WIDE = 64
"""Columns from which on copies of rows cost more than keeping in mind what they are sums of."""
_SIZES = {"size", "numel", "nelement", "__len__"}
_NEW = ("new_zeros", "new_ones", "new_empty", "new_full", "new_tensor")
_FILLED = ("zeros_like", "ones_like")  # what models write into

_HANDLERS: dict[tuple[type[Lazy], str], Callable[..., Any]] = {}
"""By kind of lazy tensor and name of an operation; NotImplemented: not for these arguments."""


class Lazy(Tensor):
    """Base class: metadata without data, and plain tensors for operations without a handler."""

    _size: torch.Size

    @classmethod
    def placeholder(cls, size: Sequence[int], like: Tensor) -> Any:
        """A wrapper without data of its own, of this size, otherwise like a tensor."""
        size = torch.Size(size)
        wrapper: Any = Tensor._make_wrapper_subclass(
            cls, size, dtype=like.dtype, device=like.device
        )
        wrapper._size = size
        return wrapper

    @property
    def shape(self) -> torch.Size:  # type: ignore[override]  # an attribute there
        """Shape without a call of torch's dispatcher: what layers read most often."""
        return self._size

    def dim(self) -> int:
        """Like `shape`."""
        return len(self._size)

    def plain(self) -> Tensor:
        """The tensor that this one stands for."""
        raise NotImplementedError

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, name_of(func)
        if is_metadata(func, name) or name in _SIZES:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        in_place = _changes_its_input(name)
        for kind in KINDS:
            if kind not in types:
                continue
            if issubclass(kind, StoredRows) and not in_place:
                result = kind.row_by_row(func, name, args, kwargs)
                if result is not NotImplemented:
                    return result
            handler = _HANDLERS.get((kind, name))
            result = NotImplemented if handler is None else handler(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if name in _NEW:
            return getattr(torch.empty(0, dtype=args[0].dtype, device=args[0].device), name)(
                *args[1:], **kwargs
            )
        if name == "expand_as" and not isinstance(args[0], Lazy):
            return args[0].expand(args[1].shape)
        if in_place and args and isinstance(args[0], Lazy):
            raise TypeError(f"{name} would change a copy of shared rows, not the rows")
        return func(*mapped(plain, args), **mapped(plain, kwargs))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's own stub leaves `func` out
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return func(*mapped(plain, args), **mapped(plain, kwargs or {}))

    def __repr__(self) -> str:  # type: ignore[override]  # Tensor's takes tensor_contents
        return f"{type(self).__name__}{tuple(self.shape)}"


def plain(value: Any) -> Any:
    """The plain tensor of a lazy one; anything else as it is."""
    return value.plain() if isinstance(value, Lazy) else value


def _changes_its_input(name: str) -> bool:
    in_place = name.endswith("_") and not name.endswith("__")
    return in_place or name in ("__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__")


def _handles(
    kinds: tuple[type[Lazy], ...], *names: str, of_any: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a handler of operations for kinds of lazy tensors.

    It is called where the first argument is of such a kind and no other one is lazy; `of_any`:
    where any argument is.
    """

    def register(handler: Callable[..., Any]) -> Callable[..., Any]:
        def of_first(*args: Any, **kwargs: Any) -> Any:
            others = tensors(args[1:], kwargs)
            if isinstance(args[0], kinds) and not any(isinstance(x, Lazy) for x in others):
                return handler(*args, **kwargs)
            return NotImplemented

        registered = handler if of_any else of_first
        _HANDLERS.update({(kind, name): registered for kind in kinds for name in names})
        return handler

    return register


# --- rows that are stored ----------------------------------------------------------------


class StoredRows(Lazy):
    """Rows that are made from stored ones, on which row-wise operations work."""

    base: Tensor

    def with_base(self, base: Tensor) -> Any:
        """The same rows made from other stored ones."""
        raise NotImplementedError

    def has_rows(self, value: Tensor) -> bool:
        """Whether an argument of an operation has a row for each of these rows."""
        raise NotImplementedError

    def stored(self, value: Tensor) -> Tensor:
        """Rows of such an argument that belong to the stored ones."""
        raise NotImplementedError

    @classmethod
    def row_by_row(cls, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """An operation on the stored rows, if it treats each row by itself."""
        if name in _FILLED or kwargs.get("inplace") or "out" in kwargs:
            return NotImplemented
        rows = [value for value in tensors(args, kwargs) if type(value) is cls]
        like = min(rows, key=lambda value: value.base.shape[0])
        if name in ("view", "reshape"):
            func, args = Tensor.reshape, _with_any_number_of_rows(*args)
        if not is_row_wise(name, args, kwargs, like.has_rows):
            return NotImplemented

        def stored(value: Any) -> Any:
            has_rows = isinstance(value, Tensor) and like.has_rows(value)
            return like.stored(value) if has_rows else value

        out = func(*mapped(stored, args), **mapped(stored, kwargs))
        return tree_map_only(Tensor, like.with_base, out)


def _with_any_number_of_rows(x: Any, *shape: Any) -> tuple[Any, ...]:
    """Arguments of `view` for as many rows as are stored, if it leaves the rows as they are."""
    sizes = [*shape[0]] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else [*shape]
    if sizes and sizes[0] == x.shape[0] and all(isinstance(size, int) for size in sizes):
        columns = torch.Size([size for size in sizes[1:] if size != -1]).numel()
        width = x.shape[1:].numel()
        if -1 in sizes[1:] and columns and width % columns == 0:
            sizes[sizes.index(-1, 1)] = width // columns
        sizes[0] = -1
    return x, *sizes


class SharedRows(StoredRows):
    """`rows[i] = base[index[i]]`."""

    index: Tensor  # type: ignore[assignment]  # Tensor has a method of the name that is not used

    @staticmethod
    def __new__(cls, base: Tensor, index: Tensor) -> SharedRows:
        """A wrapper without data of its own."""
        wrapper: SharedRows = cls.placeholder((index.shape[0], *base.shape[1:]), base)
        wrapper.base, wrapper.index = base, index
        return wrapper

    def plain(self) -> Tensor:
        """All rows, copied."""
        base: Tensor = plain(self.base)
        return base.index_select(0, self.index)

    def with_base(self, base: Tensor) -> SharedRows:
        """The same rows made from other stored ones."""
        return SharedRows(base, self.index)

    def has_rows(self, value: Tensor) -> bool:
        """Whether these are rows of the same index."""
        return isinstance(value, SharedRows) and value.index is self.index

    def stored(self, value: Any) -> Tensor:
        """The stored rows of the argument."""
        base: Tensor = value.base
        return base


class PrefixRows(StoredRows):
    """`rows[:len(base)] = base`; the other rows are never read and count as zeros."""

    @staticmethod
    def __new__(cls, base: Tensor, rows: int) -> PrefixRows:
        """A wrapper without data of its own."""
        wrapper: PrefixRows = cls.placeholder((rows, *base.shape[1:]), base)
        wrapper.base = base
        return wrapper

    def plain(self) -> Tensor:
        """The prefix, and zeros."""
        base = plain(self.base)
        dense = base.new_zeros(self.shape)
        dense[: base.shape[0]] = base
        return dense

    def with_base(self, base: Tensor) -> PrefixRows:
        """The same prefix made from other stored rows."""
        return PrefixRows(base, self.shape[0])

    def has_rows(self, value: Tensor) -> bool:
        """Whether there are as many rows, stored or not."""
        same_depth = isinstance(value, PrefixRows) or value.dim() == self.dim()
        return same_depth and value.shape[:1] == self.shape[:1]

    def stored(self, value: Tensor) -> Tensor:
        """The first rows of the argument."""
        return value[: self.base.shape[0]]


@_handles((SharedRows,), "index_select")
def _shared_index_select(x: Any, dim: int, index: Tensor) -> Any:
    at_rows = dim % x.dim() == 0
    return SharedRows(x.base, x.index.index_select(0, index)) if at_rows else NotImplemented


@_handles((SharedRows,), "__getitem__")
def _shared_getitem(x: Any, key: Any) -> Any:
    of_rows = isinstance(key, slice) or (isinstance(key, Tensor) and key.dim() == 1)
    return SharedRows(x.base, x.index[key]) if of_rows else NotImplemented


@_handles((SharedRows,), "repeat")
def _shared_repeat(x: Any, *repeats: Any) -> Any:
    if len(repeats) != x.dim() or repeats[0] != 1:
        return NotImplemented
    return SharedRows(x.base.repeat(*repeats), x.index)


@_handles((PrefixRows,), "index_select")
def _prefix_index_select(x: Any, dim: int, index: Tensor) -> Any:
    if dim % x.dim() != 0:
        return NotImplemented
    # Picked before the trimming hook runs: stay lazy until then. Rows beyond the prefix that are
    # read in spite of it are an error, not garbage.
    if x.base.device.type == "cpu":  # others would notice an index out of range too late
        with suppress(IndexError):
            return x.base.index_select(0, index)
    return SharedRows(plain(x.base), index)


@_handles((PrefixRows,), "__getitem__")
def _prefix_getitem(x: Any, key: Any) -> Any:
    if not isinstance(key, slice):
        return NotImplemented
    start, stop, step = key.indices(x.shape[0])
    if step != 1 or stop > x.base.shape[0]:
        return NotImplemented
    return x.base if (start, stop) == (0, x.base.shape[0]) else x.base[start:stop]


class PiledRows(Lazy):
    """`stack(parts, 0)` of rows, which HeteroConv then adds up: `rows[i, j]` is `turned[j, i]`."""

    turned: Tensor

    @staticmethod
    def __new__(cls, parts: Sequence[Tensor]) -> PiledRows:
        """A wrapper without data of its own."""
        turned = torch.stack([*parts], 1)
        wrapper: PiledRows = cls.placeholder((len(parts), *parts[0].shape), parts[0])
        wrapper.turned = turned
        return wrapper

    def plain(self) -> Tensor:
        """All parts, copied."""
        rows: Tensor = plain(self.turned)
        return rows.transpose(0, 1)


@_handles((PrefixRows,), "stack", of_any=True)
def _piled(tensors: Sequence[Any], dim: int = 0) -> Any:
    return PiledRows(tensors) if dim == 0 else NotImplemented


def _over_parts(name: str, x: PiledRows, dim: Any = None) -> Any:
    return getattr(torch, name)(x.turned, dim=1) if dim == 0 else NotImplemented


for _name in ("sum", "mean", "max", "min"):
    _handles((PiledRows,), _name)(partial(_over_parts, _name))


# --- sums of rows ------------------------------------------------------------------------


class MixedRows(Lazy):
    """`rows = M @ base` with M given by its entries (row, column, weight)."""

    base: Tensor
    row: Tensor
    column: Tensor
    weight: Tensor

    @staticmethod
    def __new__(
        cls, rows: int, row: Tensor, column: Tensor, weight: Tensor, base: Tensor
    ) -> MixedRows:
        """A wrapper without data of its own."""
        wrapper: MixedRows = cls.placeholder((rows, *base.shape[1:]), base)
        wrapper.base, wrapper.row, wrapper.column, wrapper.weight = base, row, column, weight
        return wrapper

    @staticmethod
    def of(x: Any) -> MixedRows | None:
        """Rows as sums, if they can be."""
        if isinstance(x, MixedRows):
            return x
        if not isinstance(x, SharedRows) or x.dim() != 2:
            return None
        ones = torch.ones(x.shape[0], dtype=x.dtype, device=x.device)
        rows = torch.arange(x.shape[0], device=x.device)
        return MixedRows(x.shape[0], rows, x.index, ones, x.base)

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

    def weighed(self, weight: Tensor) -> MixedRows:
        """The same sums with other weights."""
        return MixedRows(self.shape[0], self.row, self.column, weight, self.base)


_SUMS = (SharedRows, MixedRows)


@_handles(_SUMS, "new_zeros")
def _new_zeros(x: SharedRows | MixedRows, *shape: Any, **kwargs: Any) -> Any:
    sizes = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
    if len(sizes) != 2 or x.dim() != 2 or tuple(sizes[1:]) != tuple(x.shape[1:]) or kwargs:
        return NotImplemented
    none = torch.zeros(0, dtype=torch.long, device=x.device)
    return MixedRows(sizes[0], none, none, none.to(x.dtype), x.base)


@_handles((MixedRows,), "__getitem__")
def _mixed_getitem(x: MixedRows, key: Any) -> Any:
    if not isinstance(key, slice) or key.start or key.step not in (None, 1) or key.stop is None:
        return NotImplemented
    rows = len(range(*key.indices(x.shape[0])))
    if rows == x.shape[0]:
        return x
    inside = (x.row < rows).nonzero()[:, 0]
    row, column, weight = (part.index_select(0, inside) for part in (x.row, x.column, x.weight))
    return MixedRows(rows, row, column, weight, x.base)


@_handles((MixedRows,), "scatter_add_", of_any=True)
def _scatter_add(into: Any, dim: int, index: Tensor, source: Any) -> Any:
    mixed = MixedRows.of(source)
    if mixed is None or dim != 0 or index.shape != mixed.shape or not _same_in_row(index):
        return NotImplemented
    if not isinstance(into, MixedRows) or into.row.numel() or mixed.base is not into.base:
        return NotImplemented
    row = index[:, 0][mixed.row]
    return MixedRows(into.shape[0], row, mixed.column, mixed.weight, mixed.base)


@_handles((MixedRows,), "scatter_reduce_", of_any=True)
def _scatter_reduce(into: Any, *args: Any, **kwargs: Any) -> Any:
    """PyG's other aggregations: into fresh zeros, and what is returned is used."""
    if not isinstance(into, MixedRows) or into.row.numel():
        return NotImplemented
    return into.plain().scatter_reduce_(*mapped(plain, args), **mapped(plain, kwargs))


def _same_in_row(value: Tensor) -> bool:
    return value.dim() == 2 and (value.shape[1] == 1 or value.stride(1) == 0)


def _scaled(x: Any, factor: Any, operation: Callable[[Tensor, Any], Tensor] = torch.mul) -> Any:
    """Rows times one number for all of them, or one a row."""
    if isinstance(factor, (int, float)):
        return x.weighed(operation(x.weight, factor))
    if not isinstance(factor, Tensor) or isinstance(factor, Lazy):
        return NotImplemented
    if torch.promote_types(x.dtype, factor.dtype) != x.dtype:
        return NotImplemented
    if factor.numel() == 1 and factor.dim() <= x.dim():
        return x.weighed(operation(x.weight, factor.reshape(())))
    if not _same_in_row(factor) or factor.shape[0] != x.shape[0]:
        return NotImplemented
    return x.weighed(operation(x.weight, factor[:, 0][x.row]))


@_handles((MixedRows,), "div", "__truediv__")
def _divided(x: Any, y: Any, **named: Any) -> Any:
    return NotImplemented if named else _scaled(x, y, torch.div)


@_handles(_SUMS, "mul", "__mul__", "__rmul__", of_any=True)
def _multiplied(x: Any, y: Any, **named: Any) -> Any:
    rows, factor = (x, y) if isinstance(x, _SUMS) else (y, x)
    # A weight for each row: a copy would be as wide as the rows are.
    wide = isinstance(rows, MixedRows) or (rows.dim() == 2 and rows.shape[1] >= _WIDE)
    return _scaled(MixedRows.of(rows), factor) if wide and not named else NotImplemented


def _summed(sign: int) -> Callable[..., Any]:
    """Sum (sign 1) or difference (-1) of two: of other rows, such as the ends of edges."""

    def handler(x: Any, y: Any, **named: Any) -> Any:
        first, second = MixedRows.of(x), MixedRows.of(y)
        if named or first is None or second is None or first.shape != second.shape:
            return NotImplemented
        if x.shape[1] < _WIDE and not isinstance(x, MixedRows) and not isinstance(y, MixedRows):
            return NotImplemented
        if sign < 0:
            second = second.weighed(-second.weight)
        shared = first.base is second.base
        lazy = isinstance(first.base, Lazy) or isinstance(second.base, Lazy)
        stack = StackedRows if lazy else lambda *bases: torch.cat(bases)
        return MixedRows(
            first.shape[0],
            torch.cat([first.row, second.row]),
            torch.cat([first.column, second.column + (0 if shared else first.base.shape[0])]),
            torch.cat([first.weight, second.weight]),
            first.base if shared else stack(first.base, second.base),
        )

    return handler


_handles(_SUMS, "add", "__add__", "__radd__", of_any=True)(_summed(1))
_handles(_SUMS, "sub", "__sub__", of_any=True)(_summed(-1))


@_handles((MixedRows,), "index_select")
def _mixed_index_select(x: Any, dim: int, index: Tensor) -> Any:
    """Rows of sums are not copied; a projection of them reaches the innermost rows."""
    return SharedRows(x, index) if dim == 0 and x.shape[1] >= _WIDE else NotImplemented


@_handles((MixedRows,), "linear")
def _mixed_linear(x: Any, weight: Tensor, bias: Tensor | None = None) -> Any:
    done = x.times(plain(functional.linear(x.base, weight)))
    return done if bias is None else done + bias


@_handles((MixedRows,), "dropout")
def _mixed_dropout(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:  # noqa: ARG001  (torch's)
    return NotImplemented if training and p else x


# --- rows one after the other, and columns side by side ----------------------------------


class StackedRows(Lazy):
    """`rows = cat([upper, lower])`, of which one is lazy."""

    parts: tuple[Tensor, Tensor]

    @staticmethod
    def __new__(cls, upper: Tensor, lower: Tensor) -> StackedRows:
        """A wrapper without data of its own."""
        wrapper: StackedRows = cls.placeholder((len(upper) + len(lower), *lower.shape[1:]), lower)
        wrapper.parts = upper, lower
        return wrapper

    def plain(self) -> Tensor:
        """All rows, copied."""
        return torch.cat([*map(plain, self.parts)])


@_handles((StackedRows,), "linear")
def _stacked_linear(x: Any, weight: Tensor, bias: Tensor | None = None) -> Any:
    return torch.cat([plain(functional.linear(part, weight, bias)) for part in x.parts])


class JoinedColumns(Lazy):
    """`rows = cat(parts, -1)`; a linear layer adds up what it makes of each part."""

    parts: tuple[Tensor, ...]

    @staticmethod
    def __new__(cls, parts: Sequence[Tensor]) -> JoinedColumns:
        """A wrapper without data of its own."""
        width = sum(part.shape[-1] for part in parts)
        wrapper: JoinedColumns = cls.placeholder((*parts[0].shape[:-1], width), parts[0])
        wrapper.parts = tuple(parts)
        return wrapper

    def plain(self) -> Tensor:
        """All columns, copied."""
        return torch.cat([plain(part) for part in self.parts], -1)


@_handles(_SUMS, "cat", "concat", of_any=True)
def _joined(tensors: Sequence[Any], dim: int = 0) -> Any:
    first = tensors[0]
    if first.dim() < 2 or dim not in (-1, first.dim() - 1):
        return NotImplemented
    if any(part.shape[:-1] != first.shape[:-1] or part.dtype != first.dtype for part in tensors):
        return NotImplemented
    wide = any(isinstance(part, _SUMS) and part.shape[-1] >= _WIDE for part in tensors)
    return JoinedColumns(tensors) if wide else NotImplemented


@_handles((JoinedColumns,), "linear")
def _joined_linear(x: Any, weight: Tensor, bias: Tensor | None = None) -> Any:
    blocks = torch.split(weight, [part.shape[-1] for part in x.parts], 1)
    out = functional.linear(x.parts[0], blocks[0], bias)
    for part, block in zip(x.parts[1:], blocks[1:], strict=True):
        out = out + functional.linear(part, block)
    return out


@_handles((JoinedColumns,), "__getitem__")
def _joined_getitem(x: Any, key: Any) -> Any:
    """`x[:, i]`: one of several towers."""
    towers = isinstance(key, tuple) and len(key) == 2 and key[0] == slice(None)
    if not towers or not isinstance(key[1], int) or x.dim() != 3:
        return NotImplemented
    return JoinedColumns([part[key] for part in x.parts])


# --- rows that differ from a few others in a few columns: coalitions of features ---------


class PatchedRows(Lazy):
    """`rows = cat([table, changed])`.

    Changed are the first `count` rows of the table, together once for each row of `off`; where
    that is true the row has `other` in place of its own value in one of `columns`.
    """

    table: Tensor
    count: int
    columns: Tensor
    off: Tensor
    other: Tensor

    @staticmethod
    def __new__(
        cls, table: Tensor, count: int, columns: Tensor, off: Tensor, other: Tensor
    ) -> PatchedRows:
        """A wrapper without data of its own."""
        rows: PatchedRows = cls.placeholder(
            (len(table) + len(off) * count, *table.shape[1:]), table
        )
        rows.table, rows.count, rows.columns, rows.off = table, count, columns, off
        rows.other = other
        return rows

    def plain(self) -> Tensor:
        """All rows; wide ones are written once, into the table that they are for."""
        table, originals = self.table, self.table[: self.count]
        longer = table.new_empty(self.shape)
        longer[: len(table)] = table
        replaced = longer[len(table) :].view(len(self.off), self.count, -1)
        replaced[:] = originals
        replaced[:, :, self.columns] = torch.where(
            self.off[:, None, :], self.other, originals[:, self.columns]
        )
        return longer


@_handles((PatchedRows,), "linear")
def _patched_linear(x: Any, weight: Tensor, bias: Tensor | None = None) -> Any:
    """What a layer makes of the original row, and of the difference, which is in few columns."""
    done = functional.linear(x.table, weight, bias)
    original = x.table[: x.count, x.columns]
    # A product: to choose by a mask takes several times as long. Features are finite.
    difference = x.off[:, None, :].to(original.dtype) * (x.other - original)
    moved = functional.linear(difference.reshape(-1, original.shape[1]), weight[:, x.columns])
    moved = moved.view(len(x.off), x.count, -1).add_(done[: x.count])
    return torch.cat([done, moved.view(-1, done.shape[1])])


@_handles((PatchedRows,), "matmul", "__matmul__", "mm")
def _patched_matmul(x: Any, y: Any) -> Any:
    return _patched_linear(x, y.t()) if y.dim() == 2 else NotImplemented


KINDS: tuple[type[Lazy], ...] = (
    PrefixRows, PiledRows, JoinedColumns, MixedRows, SharedRows, StackedRows, PatchedRows,
)  # fmt: skip
"""In the order in which they are tried as handlers of an operation."""
