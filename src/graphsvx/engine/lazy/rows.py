"""Lazy tensors of rows that are stored once, changed in few columns, or not needed.

Replicas of a neighbourhood repeat the same feature rows thousands of times. `SharedRows` stands for
`rows[i] = base[index[i]]` and lets row-wise operations work on the small base; of `PrefixRows` only
the first rows are computed; `PatchedRows` differ from few others in few columns. All of them turn
into plain tensors for every operation that they do not know, so an unknown layer is slower, never
wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._pytree import tree_map

Handler = Callable[..., Any]

# Metadata of a tensor, which need no data.
_METADATA = {
    getattr(Tensor, name).__get__
    for name in (
        "shape", "dtype", "device", "layout", "ndim", "is_cuda", "is_sparse", "is_quantized",
        "requires_grad", "is_leaf", "grad_fn", "grad",
    )
} | {
    Tensor.size, Tensor.dim, Tensor.numel, Tensor.is_floating_point, Tensor.is_complex,
    Tensor.__len__, Tensor.nelement, torch.is_floating_point, torch.numel,
}  # fmt: skip

_ELEMENTWISE: tuple[Callable[..., Tensor], ...] = (
    torch.relu, functional.relu, Tensor.relu, functional.elu, functional.gelu, functional.selu,
    functional.leaky_relu, functional.silu, functional.softplus, torch.sigmoid, Tensor.sigmoid,
    torch.tanh, Tensor.tanh, torch.exp, Tensor.exp, torch.abs, Tensor.abs, torch.neg, Tensor.neg,
    Tensor.__neg__, Tensor.contiguous, Tensor.detach, Tensor.clone, torch.clone, torch.sqrt,
    Tensor.sqrt, Tensor.float, Tensor.double,
)  # fmt: skip
"""Functions of each entry of one tensor, which lazy rows apply to the rows that they store."""
MULTIPLY = (torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__)
ADD = (torch.add, Tensor.add, Tensor.__add__, Tensor.__radd__)
DIVIDE = (torch.div, Tensor.div, Tensor.__truediv__)
_SUBTRACT = (torch.sub, Tensor.sub, Tensor.__sub__, Tensor.__rsub__)


class Lazy(Tensor):
    """Base class: metadata without data, and plain tensors for operations without a handler."""

    handlers: dict[Any, Handler]
    _size: torch.Size

    @classmethod
    def placeholder(cls, rows: int, like: Tensor, width: int | None = None) -> Any:
        """A wrapper without data of its own that says it has `rows` rows like those of a tensor.

        `width`: number of columns, if it is another one.
        """
        size = torch.Size((rows, *like.shape[1:]))
        if width is not None:
            size = torch.Size((*size[:-1], width))
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
        kwargs = kwargs or {}
        if func in _METADATA:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        for kind in KINDS:
            handler = kind.handlers.get(func)
            if handler is not None and kind in types:
                result = handler(*args, **kwargs)
                if result is not NotImplemented:
                    return result
        if args and isinstance(args[0], Lazy) and _changes_its_input(func):
            raise TypeError(f"{func.__name__} would change a copy of shared rows, not the rows")
        return func(*tree_map(plain, args), **tree_map(plain, kwargs))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's own stub leaves `func` out
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return func(*tree_map(plain, args), **tree_map(plain, kwargs or {}))

    def __repr__(self) -> str:  # type: ignore[override]  # Tensor's takes tensor_contents
        return f"{type(self).__name__}{tuple(self.shape)}"


def plain(value: Any) -> Any:
    """The plain tensor of a lazy one; anything else as it is."""
    return value.plain() if isinstance(value, Lazy) else value


def _changes_its_input(func: Any) -> bool:
    name = getattr(func, "__name__", "")
    in_place = name.endswith("_") and not name.endswith("__")
    return in_place or name in ("__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__")


KINDS: list[type[Lazy]] = []
"""In the order in which they are tried as handlers of an operation."""


def handles(table: dict[Any, Handler], *functions: Any) -> Callable[[Handler], Handler]:
    """Register a handler of operations in the table of one kind."""

    def register(handler: Handler) -> Handler:
        table.update(dict.fromkeys(functions, handler))
        return handler

    return register


class StoredRows(Lazy):
    """Rows that are made from stored ones, on which row-wise operations work."""

    base: Tensor

    def with_base(self, base: Tensor) -> Any:
        """The same rows made from other stored ones."""
        raise NotImplementedError


OF_SHARED: dict[Any, Handler] = {}
_OF_PREFIX: dict[Any, Handler] = {}
_func: Any


def _row_wise(*functions: Any) -> Callable[[Handler], Handler]:
    """Register a handler for shared rows and for prefixes."""

    def register(handler: Handler) -> Handler:
        return handles(OF_SHARED, *functions)(handles(_OF_PREFIX, *functions)(handler))

    return register


def _on_base(func: Any) -> Handler:
    def handler(x: Any, *args: Any, **kwargs: Any) -> Any:
        others = (*args, *kwargs.values())
        if not isinstance(x, StoredRows) or any(isinstance(other, Lazy) for other in others):
            return NotImplemented
        return (
            NotImplemented if kwargs.get("inplace") else x.with_base(func(x.base, *args, **kwargs))
        )

    return handler


for _func in (*_ELEMENTWISE, functional.linear):
    _row_wise(_func)(_on_base(_func))


@_row_wise(functional.layer_norm)
def _layer_norm(x: Any, shape: Any, *args: Any, **kwargs: Any) -> Any:
    if not isinstance(x, StoredRows) or len(shape) >= x.dim():
        return NotImplemented
    return x.with_base(functional.layer_norm(x.base, shape, *args, **kwargs))


@_row_wise(functional.batch_norm)
def _batch_norm(x: Any, mean: Any, var: Any, *args: Any, **kwargs: Any) -> Any:
    training = kwargs.get("training", args[2] if len(args) > 2 else False)
    if not isinstance(x, StoredRows) or training or mean is None:
        return NotImplemented
    return x.with_base(functional.batch_norm(x.base, mean, var, *args, **kwargs))


@_row_wise(functional.dropout)
def no_dropout(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:  # noqa: ARG001  (torch's)
    """Handler of dropout: rows as they are, in eval mode."""
    return x if not training or p == 0 else NotImplemented


def _combines_rows(x: Tensor, dim: Any) -> bool:
    dims = [dim] if isinstance(dim, int) else list(dim or [])
    return not dims or any(d % x.dim() == 0 for d in dims)


def _along_row(func: Any) -> Handler:
    def handler(x: Any, dim: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(x, StoredRows) or _combines_rows(x, dim):
            return NotImplemented
        return x.with_base(func(x.base, dim, *args, **kwargs))

    return handler


for _func in (
    torch.sum, Tensor.sum, torch.mean, Tensor.mean, torch.softmax, Tensor.softmax,
    torch.log_softmax, Tensor.log_softmax, functional.softmax, functional.log_softmax,
):  # fmt: skip
    _row_wise(_func)(_along_row(_func))


@_row_wise(functional.normalize)
def _normalize(x: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Any = None) -> Any:
    if not isinstance(x, StoredRows) or _combines_rows(x, dim) or out is not None:
        return NotImplemented
    return x.with_base(functional.normalize(plain(x.base), p, dim, eps))


@_row_wise(torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.mm, Tensor.mm)
def _matmul(x: Any, y: Any) -> Any:
    if not isinstance(x, StoredRows) or isinstance(y, Lazy) or x.dim() < 2 or y.dim() != 2:
        return NotImplemented
    return x.with_base(x.base @ y)


@_row_wise(Tensor.view, Tensor.reshape, torch.reshape)
def _view(x: Any, *shape: Any) -> Any:
    if not isinstance(x, StoredRows) or isinstance(shape[0], torch.dtype):
        return NotImplemented
    sizes = list(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else list(shape)
    all_rows = -1 not in sizes[1:] and torch.Size(sizes[1:]).numel() == x.shape[1:].numel()
    if sizes[0] != x.shape[0] and not (sizes[0] == -1 and all_rows):
        return NotImplemented
    return x.with_base(x.base.reshape(x.base.shape[0], *sizes[1:]))


class SharedRows(StoredRows):
    """`rows[i] = base[index[i]]`."""

    handlers = OF_SHARED
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

    def with_base(self, base: Tensor) -> SharedRows:
        """The same rows made from other stored ones."""
        return SharedRows(base, self.index)


def _same_for_all_rows(x: Tensor, other: Any) -> bool:
    if not isinstance(other, Tensor):
        return True
    if isinstance(other, Lazy) or other.dim() > x.dim():
        return False
    return other.dim() < x.dim() or (other.shape[0] == 1 and x.dim() > 0)


def binary(func: Any) -> Handler:
    """Handler of a function of two tensors, row by row."""

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


for _func in (*MULTIPLY, *ADD, *DIVIDE, *_SUBTRACT):
    OF_SHARED[_func] = binary(_func)


@handles(OF_SHARED, Tensor.index_select, torch.index_select)
def _index_select(x: Any, dim: int, index: Tensor) -> Any:
    if not isinstance(x, SharedRows) or dim % x.dim() != 0 or isinstance(index, Lazy):
        return NotImplemented
    return SharedRows(x.base, x.index.index_select(0, index))


@handles(OF_SHARED, Tensor.__getitem__)
def _getitem(x: Any, key: Any) -> Any:
    if not isinstance(x, SharedRows):
        return NotImplemented
    if isinstance(key, slice) or (isinstance(key, Tensor) and key.dim() == 1):
        return SharedRows(x.base, x.index[key])
    of_columns = isinstance(key, tuple) and all(isinstance(part, (slice, int)) for part in key)
    if of_columns and key[:1] == (slice(None),):
        return SharedRows(x.base[key], x.index)
    return NotImplemented


@handles(OF_SHARED, Tensor.repeat)
def _repeat(x: Any, *repeats: Any) -> Any:
    if len(repeats) != x.dim() or repeats[0] != 1:
        return NotImplemented
    return SharedRows(x.base.repeat(*repeats), x.index)


class PrefixRows(StoredRows):
    """`rows[:len(base)] = base`; the other rows are never read and count as zeros."""

    handlers = _OF_PREFIX

    @staticmethod
    def __new__(cls, base: Tensor, rows: int) -> PrefixRows:
        """A wrapper without data of its own."""
        wrapper: PrefixRows = cls.placeholder(rows, base)
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


def first(value: Any, count: int) -> Any:
    """The first rows of a tensor; lazy ones are not computed further than that."""
    if isinstance(value, PrefixRows):
        return value.base if value.base.shape[0] == count else value.base[:count]
    return value[:count]


def _binary_of_prefix(func: Any) -> Handler:
    def handler(x: Any, y: Any, *args: Any, **kwargs: Any) -> Any:
        lazy = x if isinstance(x, PrefixRows) else y
        rows = lazy.shape[0]
        parts = []
        count = min(v.base.shape[0] for v in (x, y) if isinstance(v, PrefixRows))
        for value in (x, y):
            if not isinstance(value, Tensor) or value.dim() < lazy.dim():
                parts.append(value)
            elif value.dim() > lazy.dim():
                return NotImplemented
            elif value.shape[0] == rows:
                parts.append(first(value, count))
            elif value.shape[0] == 1 and not isinstance(value, Lazy):
                parts.append(value)
            else:
                return NotImplemented
        return PrefixRows(func(*parts, *args, **kwargs), rows)

    return handler


for _func in (*MULTIPLY, *ADD, *DIVIDE, *_SUBTRACT):
    _OF_PREFIX[_func] = _binary_of_prefix(_func)


@handles(_OF_PREFIX, torch.cat, torch.concat)
def _cat_of_prefix(tensors: Sequence[Any], dim: int = 0) -> Any:
    rows = tensors[0].shape[0]
    if dim % tensors[0].dim() == 0 or any(t.shape[0] != rows for t in tensors):
        return NotImplemented
    count = min(t.base.shape[0] for t in tensors if isinstance(t, PrefixRows))
    return PrefixRows(torch.cat([first(t, count) for t in tensors], dim), rows)


@handles(_OF_PREFIX, Tensor.index_select, torch.index_select)
def _index_select_of_prefix(x: Any, dim: int, index: Tensor) -> Any:
    if not isinstance(x, PrefixRows) or dim % x.dim() != 0 or isinstance(index, Lazy):
        return NotImplemented
    # Picked before the trimming hook runs: stay lazy until then. Rows beyond the prefix that are
    # read in spite of it are an error, not garbage.
    if x.base.device.type == "cpu":  # others would notice an index out of range too late
        with suppress(IndexError):
            return x.base.index_select(0, index)
    return SharedRows(plain(x.base), index)


@handles(_OF_PREFIX, Tensor.__getitem__)
def _getitem_of_prefix(x: Any, key: Any) -> Any:
    if not isinstance(x, PrefixRows) or not isinstance(key, slice):
        return NotImplemented
    start, stop, step = key.indices(x.shape[0])
    return x.base[start:stop] if step == 1 and stop <= x.base.shape[0] else NotImplemented


@handles(_OF_PREFIX, Tensor.new_zeros)
def _new_zeros_of_prefix(x: PrefixRows, *shape: Any, **kwargs: Any) -> Any:
    return plain(x.base[:0]).new_zeros(*shape, **kwargs)


# Rows that differ from a few others in a few columns: coalitions of features.
#
# A game of features replaces some of the explained node's columns in every row. A linear layer
# need not see all of the others again: what it makes of the row plus what it makes of the
# difference is the same, at a fraction of the work where rows are wide.


_PATCHED: dict[Any, Handler] = {}


class PatchedRows(Lazy):
    """`rows = cat([table, changed])`.

    Changed are the first `count` rows of the table, together once for each row of `off`; where
    that is true the row has `other` in place of its own value in one of `columns`.
    """

    handlers = _PATCHED
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
        wrapper: PatchedRows = cls.placeholder(len(table) + len(off) * count, table)
        wrapper.table, wrapper.count, wrapper.columns, wrapper.off, wrapper.other = (
            table,
            count,
            columns,
            off,
            other,
        )
        return wrapper

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


@handles(_PATCHED, functional.linear)
def _linear_of_patched(x: Any, weight: Tensor, bias: Tensor | None = None) -> Any:
    if not isinstance(x, PatchedRows) or isinstance(weight, Lazy):
        return NotImplemented
    done = functional.linear(x.table, weight, bias)
    original = x.table[: x.count, x.columns]
    # A product: to choose by a mask takes several times as long. Features are finite.
    difference = x.off[:, None, :].to(original.dtype) * (x.other - original)
    moved = functional.linear(difference.reshape(-1, original.shape[1]), weight[:, x.columns])
    moved = moved.view(len(x.off), x.count, -1).add_(done[: x.count])
    return torch.cat([done, moved.view(-1, done.shape[1])])


@handles(_PATCHED, torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.mm, Tensor.mm)
def _matmul_of_patched(x: Any, y: Any) -> Any:
    if not isinstance(x, PatchedRows) or isinstance(y, Lazy) or y.dim() != 2:
        return NotImplemented
    return _linear_of_patched(x, y.t())


@handles(_PATCHED, Tensor.contiguous, Tensor.detach)
def _itself(x: PatchedRows) -> PatchedRows:
    return x
