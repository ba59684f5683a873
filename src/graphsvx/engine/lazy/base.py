"""Lazy tensors: computed as plain tensors for operations without a handler."""

from __future__ import annotations

from collections.abc import Callable
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

ELEMENTWISE: tuple[Callable[..., Tensor], ...] = (
    torch.relu, functional.relu, Tensor.relu, functional.elu, functional.gelu, functional.selu,
    functional.leaky_relu, functional.silu, functional.softplus, torch.sigmoid, Tensor.sigmoid,
    torch.tanh, Tensor.tanh, torch.exp, Tensor.exp, torch.abs, Tensor.abs, torch.neg, Tensor.neg,
    Tensor.__neg__, Tensor.contiguous, Tensor.detach, Tensor.clone, torch.clone,
)  # fmt: skip
"""Functions of each entry of one tensor, which lazy rows apply to the rows that they store."""


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
