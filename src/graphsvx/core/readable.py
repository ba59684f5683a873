"""Whether the numbers of a tensor can be read: not every tensor has some."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphsvx.errors import InputError

_LARGEST = 8 * 2**30
"""Bytes of a tensor that may be larger than the memory that stores it."""


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
