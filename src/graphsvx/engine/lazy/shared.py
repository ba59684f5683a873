"""Tensors that stand for many rows of few: rows that are equal are stored once.

Replicas of a neighbourhood repeat the same feature rows thousands of times. `SharedRows` stands for
`rows[i] = base[index[i]]` and lets row-wise operations work on the small base. It turns into a
plain tensor for every operation that it does not know, so an unknown layer is slower, never wrong.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from graphsvx.engine.lazy.base import ELEMENTWISE, Handler, Lazy, handles

HANDLERS: dict[Any, Handler] = {}
MULTIPLY = (torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__)
ADD = (torch.add, Tensor.add, Tensor.__add__, Tensor.__radd__)
DIVIDE = (torch.div, Tensor.div, Tensor.__truediv__)


class SharedRows(Lazy):
    """`rows[i] = base[index[i]]`."""

    handlers = HANDLERS
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


_func: Any


# --- row-wise operations -----------------------------------------------------------------


def _row_wise(func: Any) -> Handler:
    def handler(x: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(x, SharedRows) or any(isinstance(a, Tensor) for a in args):
            return NotImplemented
        if any(isinstance(value, Tensor) for value in kwargs.values()) or kwargs.get("inplace"):
            return NotImplemented
        return SharedRows(func(x.base, *args, **kwargs), x.index)

    return handler


for _func in (*ELEMENTWISE, torch.sqrt, Tensor.sqrt, Tensor.float, Tensor.double):
    HANDLERS[_func] = _row_wise(_func)


@handles(HANDLERS, functional.dropout)
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
    HANDLERS[_func] = _along_row(_func)


@handles(HANDLERS, functional.softmax, functional.log_softmax)
def _softmax(*_: Any, **__: Any) -> Any:
    return NotImplemented


@handles(HANDLERS, functional.normalize)
def _normalize(x: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Any = None) -> Any:
    if not isinstance(x, SharedRows) or _reduces_rows(x, dim) or out is not None:
        return NotImplemented
    return SharedRows(functional.normalize(x.base, p, dim, eps), x.index)


@handles(HANDLERS, functional.layer_norm)
def _layer_norm(x: Any, shape: Any, *args: Any, **kwargs: Any) -> Any:
    if not isinstance(x, SharedRows) or len(shape) >= x.dim():
        return NotImplemented
    return SharedRows(functional.layer_norm(x.base, shape, *args, **kwargs), x.index)


@handles(HANDLERS, functional.batch_norm)
def _batch_norm(
    x: Any, mean: Any, var: Any, weight: Any = None, bias: Any = None,
    training: bool = False, *args: Any, **kwargs: Any,
) -> Any:  # fmt: skip
    if training or mean is None or not isinstance(x, SharedRows):
        return NotImplemented
    done = functional.batch_norm(x.base, mean, var, weight, bias, False, *args, **kwargs)
    return SharedRows(done, x.index)


@handles(HANDLERS, functional.linear)
def _linear(x: Any, weight: Tensor, bias: Tensor | None = None) -> Any:
    if not isinstance(x, SharedRows) or isinstance(weight, Lazy):
        return NotImplemented
    return SharedRows(functional.linear(x.base, weight, bias), x.index)


@handles(HANDLERS, torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.mm, Tensor.mm)
def _matmul(x: Any, y: Any) -> Any:
    if not isinstance(x, SharedRows) or isinstance(y, Lazy) or x.dim() != 2 or y.dim() != 2:
        return NotImplemented
    return SharedRows(x.base @ y, x.index)


@handles(HANDLERS, Tensor.view, Tensor.reshape, torch.reshape)
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


for _func in (*MULTIPLY, *ADD, *DIVIDE, torch.sub, Tensor.sub, Tensor.__sub__, Tensor.__rsub__):
    HANDLERS[_func] = binary(_func)


# --- gathering rows ----------------------------------------------------------------------


@handles(HANDLERS, Tensor.index_select, torch.index_select)
def _index_select(x: Any, dim: int, index: Tensor) -> Any:
    if not isinstance(x, SharedRows) or dim % x.dim() != 0 or isinstance(index, Lazy):
        return NotImplemented
    return SharedRows(x.base, x.index.index_select(0, index))


@handles(HANDLERS, Tensor.__getitem__)
def _getitem(x: Any, key: Any) -> Any:
    if not isinstance(x, SharedRows):
        return NotImplemented
    if isinstance(key, slice) or (isinstance(key, Tensor) and key.dim() == 1):
        return SharedRows(x.base, x.index[key])
    of_columns = isinstance(key, tuple) and all(isinstance(part, (slice, int)) for part in key)
    if of_columns and key[:1] == (slice(None),):
        return SharedRows(x.base[key], x.index)
    return NotImplemented


@handles(HANDLERS, Tensor.repeat)
def _repeat(x: Any, *repeats: Any) -> Any:
    if len(repeats) != x.dim() or repeats[0] != 1:
        return NotImplemented
    return SharedRows(x.base.repeat(*repeats), x.index)
