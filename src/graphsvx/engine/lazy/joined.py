"""Columns side by side, not copied: the two ends of an edge, or a node and what it received."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from graphsvx.engine.lazy.base import Handler, Lazy, handles, plain
from graphsvx.engine.lazy.mixed import OF_MIXED, WIDE, MixedRows
from graphsvx.engine.lazy.shared import HANDLERS as OF_SHARED
from graphsvx.engine.lazy.shared import SharedRows

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
@handles(OF_MIXED, torch.cat, torch.concat)
def _cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    first = tensors[0]
    if first.dim() < 2 or dim not in (-1, first.dim() - 1):
        return NotImplemented
    if any(part.shape[:-1] != first.shape[:-1] or part.dtype != first.dtype for part in tensors):
        return NotImplemented
    if all(isinstance(part, SharedRows) and part.index is first.index for part in tensors):
        return SharedRows(torch.cat([plain(part.base) for part in tensors], -1), first.index)
    wide = any(isinstance(part, (SharedRows, MixedRows)) and part.shape[-1] >= WIDE
               for part in tensors)  # fmt: skip
    return JoinedColumns(tensors) if wide else NotImplemented


@handles(_JOINED, functional.linear)
def _linear(x: Any, weight: Tensor, bias: Tensor | None = None) -> Any:
    if not isinstance(x, JoinedColumns) or isinstance(weight, Lazy):
        return NotImplemented
    widths = [part.shape[-1] for part in x.parts]
    out, start = functional.linear(x.parts[0], weight[:, : widths[0]], bias), widths[0]
    for part, width in zip(x.parts[1:], widths[1:], strict=True):
        out = out + functional.linear(part, weight[:, start : start + width])
        start += width
    return out


@handles(_JOINED, Tensor.__getitem__)
def _getitem(x: Any, key: Any) -> Any:
    """`x[:, i]`: one of several towers."""
    towers = isinstance(key, tuple) and len(key) == 2 and key[0] == slice(None)
    if not towers or not isinstance(key[1], int) or x.dim() != 3:
        return NotImplemented
    return JoinedColumns([part[key] for part in x.parts])
