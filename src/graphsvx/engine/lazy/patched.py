"""Rows that differ from a few others in a few columns: coalitions of features.

A game of features replaces some of the explained node's columns in every row. A linear layer
need not see all of the others again: what it makes of the row plus what it makes of the
difference is the same, at a fraction of the work where rows are wide.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from graphsvx.engine.lazy.base import Handler, Lazy, handles

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
            table, count, columns, off, other,
        )  # fmt: skip
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
def _linear(x: Any, weight: Tensor, bias: Tensor | None = None) -> Any:
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
def _matmul(x: Any, y: Any) -> Any:
    if not isinstance(x, PatchedRows) or isinstance(y, Lazy) or y.dim() != 2:
        return NotImplemented
    return _linear(x, y.t())


@handles(_PATCHED, Tensor.contiguous, Tensor.detach)
def _itself(x: PatchedRows) -> PatchedRows:
    return x
