"""Stamps of tensors: whether a tensor still holds what it held when something was cached for it.

Torch counts in-place changes, but not those through `tensor.data`, through a numpy array that
shares the memory, or of tensors made in inference mode. So a stamp holds a checksum of the content
beside torch's version. Small tensors are read each time. Of large ones a sample is read each time
and everything at most for a twentieth of the time: within 20 times the cost of the last full
checksum, a change of a few numbers behind torch's back can go unnoticed.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import lru_cache
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

Stamp = tuple[int, int]
"""Torch's version of a tensor and a checksum of its content."""

_SMALL_BYTES = 1 << 20
_SAMPLE = 512
_PAUSE = 20.0
"""A full checksum of a large tensor is followed by a pause of this many times its cost."""


@dataclass(frozen=True)
class _Seen:
    version: int
    sample: int
    checksum: int
    until: float
    """Time up to which the sample is enough."""


_SEEN: Any = WeakTensorKeyDictionary()


def stamp(tensor: Tensor) -> Stamp:
    """Changes with the content of a tensor, however it was changed (see above)."""
    version = -1 if tensor.is_inference() else tensor._version
    values = tensor.detach()
    if values.numel() * values.element_size() <= _SMALL_BYTES:
        return version, _checksum(values)
    flat = values.reshape(-1) if values.is_contiguous() else values
    step = max(1, flat.shape[0] // _SAMPLE)
    sample = _bytes_checksum(flat[::step])
    seen = _SEEN.get(tensor)
    start = perf_counter()
    if seen is not None and (seen.version, seen.sample) == (version, sample) and start < seen.until:
        return version, seen.checksum
    checksum = _checksum(values)
    end = perf_counter()
    _SEEN[tensor] = _Seen(version, sample, checksum, end + _PAUSE * (end - start))
    return version, checksum


def _checksum(values: Tensor) -> int:
    if values.dim() != 2 or not values.is_floating_point() or values.numel() == 0:
        return _bytes_checksum(values)
    # A random projection reads memory at full speed; changes below its rounding are too small to
    # change means and predictions.
    return _bytes_checksum(_weights(len(values), values.dtype, values.device) @ values)


@lru_cache(maxsize=8)
def _weights(count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    draws = np.random.default_rng(0).random(count) + 0.5
    return torch.from_numpy(draws).to(device=device, dtype=dtype)


def _bytes_checksum(values: Tensor) -> int:
    plain = values.cpu()
    array = (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()
    return zlib.crc32(np.ascontiguousarray(array).data) if array.size else 0
