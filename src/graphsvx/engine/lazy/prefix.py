"""Rows of which only the first ones are needed: the others are not computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from graphsvx.engine.lazy.base import ELEMENTWISE, Handler, Lazy, handles, plain
from graphsvx.engine.lazy.shared import SharedRows

_PREFIX: dict[Any, Handler] = {}
_func: Any


class PrefixRows(Lazy):
    """`rows[:len(base)] = base`; the other rows are never read and count as zeros."""

    handlers = _PREFIX
    base: Tensor

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


def _row_wise(func: Any) -> Handler:
    def handler(x: Any, *args: Any, **kwargs: Any) -> Any:
        others = (*args, *kwargs.values())
        if not isinstance(x, PrefixRows) or any(isinstance(o, Lazy) for o in others):
            return NotImplemented
        if kwargs.get("inplace"):
            return NotImplemented
        return PrefixRows(func(x.base, *args, **kwargs), x.shape[0])

    return handler


for _func in (*ELEMENTWISE, functional.linear, functional.layer_norm):
    _PREFIX[_func] = _row_wise(_func)


@handles(_PREFIX, functional.batch_norm)
def _batch_norm(x: Any, mean: Any, var: Any, *args: Any, **kwargs: Any) -> Any:
    training = kwargs.get("training", args[2] if len(args) > 2 else False)
    if not isinstance(x, PrefixRows) or training or mean is None:
        return NotImplemented
    return PrefixRows(functional.batch_norm(x.base, mean, var, *args, **kwargs), x.shape[0])


@handles(_PREFIX, functional.dropout)
def _dropout(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:  # noqa: ARG001  (torch's)
    return x if not training or p == 0 else NotImplemented


def _along_row(func: Any) -> Handler:
    def handler(x: Any, *args: Any, **kwargs: Any) -> Any:
        dim = kwargs.get("dim", args[0] if args else None)
        if not isinstance(x, PrefixRows) or not isinstance(dim, int) or dim % x.dim() == 0:
            return NotImplemented
        return PrefixRows(func(x.base, *args, **kwargs), x.shape[0])

    return handler


for _func in (
    torch.sum, Tensor.sum, torch.mean, Tensor.mean, torch.softmax, Tensor.softmax,
    torch.log_softmax, Tensor.log_softmax, functional.softmax, functional.log_softmax,
):  # fmt: skip
    _PREFIX[_func] = _along_row(_func)


@handles(_PREFIX, functional.normalize)
def _normalize(x: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Any = None) -> Any:
    if not isinstance(x, PrefixRows) or dim % x.dim() == 0 or out is not None:
        return NotImplemented
    base = plain(x.base)
    length = torch.linalg.vector_norm(base, p, dim, keepdim=True)
    return PrefixRows(base / length.clamp(min=eps), x.shape[0])


@handles(_PREFIX, torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.mm, Tensor.mm)
def _matmul(x: Any, y: Any) -> Any:
    if not isinstance(x, PrefixRows) or isinstance(y, Lazy) or y.dim() != 2:
        return NotImplemented
    return PrefixRows(x.base @ y, x.shape[0])


@handles(_PREFIX, Tensor.view, Tensor.reshape, torch.reshape)
def _view(x: Any, *shape: Any) -> Any:
    if not isinstance(x, PrefixRows) or isinstance(shape[0], torch.dtype):
        return NotImplemented
    sizes = list(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else list(shape)
    row = x.shape[1:].numel()
    if -1 in sizes[1:] or torch.Size(sizes[1:]).numel() != row or sizes[0] not in (-1, x.shape[0]):
        return NotImplemented
    return PrefixRows(x.base.reshape(x.base.shape[0], *sizes[1:]), x.shape[0])


def first(value: Any, count: int) -> Any:
    """The first rows of a tensor; lazy ones are not computed further than that."""
    if isinstance(value, PrefixRows):
        return value.base if value.base.shape[0] == count else value.base[:count]
    return value[:count]


def _binary(func: Any) -> Handler:
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


for _func in (
    torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__, torch.add, Tensor.add, Tensor.__add__,
    Tensor.__radd__, torch.div, Tensor.div, Tensor.__truediv__, torch.sub, Tensor.sub,
    Tensor.__sub__, Tensor.__rsub__,
):  # fmt: skip
    _PREFIX[_func] = _binary(_func)


@handles(_PREFIX, torch.cat, torch.concat)
def _cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    rows = tensors[0].shape[0]
    if dim % tensors[0].dim() == 0 or any(t.shape[0] != rows for t in tensors):
        return NotImplemented
    count = min(t.base.shape[0] for t in tensors if isinstance(t, PrefixRows))
    return PrefixRows(torch.cat([first(t, count) for t in tensors], dim), rows)


@handles(_PREFIX, Tensor.index_select, torch.index_select)
def _index_select(x: Any, dim: int, index: Tensor) -> Any:
    if not isinstance(x, PrefixRows) or dim % x.dim() != 0 or isinstance(index, Lazy):
        return NotImplemented
    # Picked before the trimming hook runs: stay lazy until then. Rows beyond the prefix that are
    # read in spite of it are an error, not garbage.
    lazily = SharedRows(plain(x.base), index)
    if x.base.device.type != "cpu":  # which would notice an index out of range too late
        return lazily
    try:
        return x.base.index_select(0, index)
    except IndexError:
        return lazily


@handles(_PREFIX, Tensor.__getitem__)
def _getitem(x: Any, key: Any) -> Any:
    if not isinstance(x, PrefixRows) or not isinstance(key, slice):
        return NotImplemented
    start, stop, step = key.indices(x.shape[0])
    return x.base[start:stop] if step == 1 and stop <= x.base.shape[0] else NotImplemented


@handles(_PREFIX, Tensor.new_zeros)
def _new_zeros(x: PrefixRows, *shape: Any, **kwargs: Any) -> Any:
    return plain(x.base[:0]).new_zeros(*shape, **kwargs)
