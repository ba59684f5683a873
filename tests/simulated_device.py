"""A simulated accelerator: a device of torch's own whose memory is the computer's, in Python.

Tensors on it have their own device, refuse `.numpy()` and do not mix with tensors of the CPU. Every
operation runs by the CPU's own code underneath, so that results are equal to the CPU's bit by bit.
What costs time on a real device is counted: copies to it and from it, kernels that are launched,
and waits for its results.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import backend_registration

CAN_BE_SIMULATED = hasattr(backend_registration, "_setup_privateuseone_for_python_backend")
"""Older versions of torch need a device written in C++."""


@dataclass
class Counts:
    """What was asked of the device."""

    to_device: int = 0
    from_device: int = 0
    launches: int = 0
    waits: int = 0


class DeviceLostError(BaseException):
    """An index out of range, which a real device notices later, and is lost to the process.

    Not an `Exception`, so that no code goes on after it.
    """


_NAME = "simulated"
_CPU_KERNEL = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
# The memory of each storage of the device, by the address of the storage.
_memory: dict[int, tuple[Any, torch.UntypedStorage]] = {}
_in_use = [256]
_counting: list[Counts] = []
# Their results must be known before the computation goes on.
_WAITS = ("_local_scalar_dense", "nonzero", "_unique2", "unique_dim", "unique_consecutive",
          "masked_select", "equal", "is_nonzero", "bincount")  # fmt: skip
# Code of the CPU that serves every device.
_VIEWS = ("as_strided", "view", "_reshape_alias")
# They launch no kernel.
_FREE = ("empty", "as_strided", "view", "_reshape_alias", "set_", "resize_", "_copy_from",
         "_local_scalar_dense", "detach", "alias", "unfold")  # fmt: skip


@contextmanager
def counted() -> Iterator[Counts]:
    """Counts what the device is asked within the block."""
    counts = Counts()
    _counting.append(counts)
    try:
        yield counts
    finally:
        _counting.remove(counts)


def simulated_device() -> torch.device:
    """The device; it is registered when it is first asked for, as torch cannot forget it."""
    if not hasattr(torch, _NAME):
        backend_registration._setup_privateuseone_for_python_backend(_NAME)
        _library.fallback(_run, "PrivateUse1")
    return torch.device(_NAME, 0)


_library = torch.library.Library("_", "IMPL")


def _run(operator: Any, *arguments: Any, **options: Any) -> Any:
    """Runs any operation of the device by the CPU's code."""
    name = operator._opname
    if _counting:
        _count(name, arguments)
    if name in _VIEWS:
        return operator.redispatch(_CPU_KERNEL, *arguments, **options)
    twins: list[tuple[Tensor, Tensor]] = []
    others: list[Tensor] = []
    on_cpu = [_to_cpu(argument, twins, others) for argument in arguments]
    if name == "_copy_from":
        on_cpu[1].copy_(on_cpu[0])
        return arguments[1]
    options = {key: _to_cpu(value, twins, others) for key, value in options.items()}
    # As on a real device, numbers (tensors without dimensions) and indices may come from the CPU.
    mixed = any(other.dim() for other in others) and bool(twins)
    if mixed and name not in ("index", "index_put_", "_index_put_impl_"):
        raise RuntimeError(
            f"{name}: expected all tensors to be on the same device, but found at least two "
            f"devices, {_NAME}:0 and cpu!"
        )
    try:
        results = operator(*on_cpu, **options)
    except IndexError as error:
        raise DeviceLostError(f"{name}: {error}") from error
    for tensor, twin in twins:
        if tensor.shape != twin.shape or _address(tensor) != _address(twin):  # it was resized
            _set(tensor, _storage(twin.untyped_storage()), twin)
    return _to_device(results, twins)


def _count(name: str, arguments: tuple[Any, ...]) -> None:
    for counts in _counting:
        if name == "_copy_from":
            counts.to_device += not _is_ours(arguments[0])
            counts.from_device += not _is_ours(arguments[1])
            counts.waits += not _is_ours(arguments[1])
            counts.launches += _is_ours(arguments[0]) and _is_ours(arguments[1])
        by_mask = name == "index" and any(
            isinstance(index, Tensor) and index.dtype == torch.bool for index in arguments[1]
        )
        counts.waits += by_mask or name in _WAITS
        counts.launches += not name.startswith(_FREE)


def _is_ours(tensor: Tensor) -> bool:
    return tensor.device.type == _NAME


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _to_cpu(value: Any, twins: list[tuple[Tensor, Tensor]], others: list[Tensor]) -> Any:
    """The same numbers, sizes and strides as a tensor of the CPU, in the memory of the device.

    Pairs of both are added to `twins`, tensors of the CPU to `others`.
    """
    if isinstance(value, list | tuple):
        return [_to_cpu(part, twins, others) for part in value]
    if isinstance(value, torch.device) and value.type == _NAME:
        return torch.device("cpu")
    if not isinstance(value, Tensor):
        return value
    if not _is_ours(value):
        others.append(value)
        return value
    _, memory = _memory[value.untyped_storage()._cdata]
    twin = torch.empty(0, dtype=value.dtype)
    twin.set_(memory, value.storage_offset(), value.shape, value.stride())
    twins.append((value, twin))
    return twin


def _to_device(value: Any, twins: list[tuple[Tensor, Tensor]]) -> Any:
    """A result as a tensor of the device: an argument itself, a view of its memory, or new."""
    if isinstance(value, list | tuple):
        return type(value)(_to_device(part, twins) for part in value)
    if not isinstance(value, Tensor):
        return value
    for tensor, twin in twins:
        if twin is value:
            return tensor
    for tensor, twin in twins:
        if _address(value) and _address(value) == _address(twin):
            if tensor.dtype == value.dtype:
                return torch.ops.aten.as_strided.default.redispatch(
                    _CPU_KERNEL, tensor, value.shape, value.stride(), value.storage_offset()
                )
            return _set(_empty(value.dtype), tensor.untyped_storage(), value)
    return _set(_empty(value.dtype), _storage(value.untyped_storage()), value)


def _empty(dtype: torch.dtype) -> Tensor:
    return torch._C._acc.create_empty_tensor((0,), dtype)


def _storage(memory: torch.UntypedStorage) -> torch.UntypedStorage:
    """A storage of the device over `memory`, which lives as long as the storage."""
    storage = torch._C._construct_storage_from_data_pointer(
        memory.data_ptr(), torch.device(_NAME, 0), memory.nbytes()
    )
    if len(_memory) >= 4 * _in_use[0]:  # memory of storages that are gone is given back
        for key in [key for key, (owner, _) in _memory.items() if owner.expired()]:
            del _memory[key]
        _in_use[0] = max(256, len(_memory))
    _memory[storage._cdata] = (StorageWeakRef(storage), memory)
    return storage


def _set(tensor: Tensor, storage: torch.UntypedStorage, like: Tensor) -> Tensor:
    set_ = torch.ops.aten.set_.source_Storage_storage_offset
    set_.redispatch(_CPU_KERNEL, tensor, storage, like.storage_offset(), like.shape, like.stride())
    return tensor
