"""Tensors of rows that are stored once, changed in few columns, added up later, or not needed."""

from graphsvx.engine.lazy.rows import KINDS, Lazy, PatchedRows, PrefixRows, SharedRows, first, plain
from graphsvx.engine.lazy.sums import JoinedColumns, MixedRows, StackedRows

__all__ = ["Lazy", "MixedRows", "PatchedRows", "PrefixRows", "SharedRows", "first", "plain"]

KINDS.extend([PrefixRows, JoinedColumns, MixedRows, SharedRows, StackedRows, PatchedRows])
