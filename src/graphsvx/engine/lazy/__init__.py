"""Tensors of rows that are stored once, changed in few columns, or not needed."""

from graphsvx.engine.lazy.base import KINDS
from graphsvx.engine.lazy.joined import JoinedColumns
from graphsvx.engine.lazy.mixed import MixedRows, StackedRows
from graphsvx.engine.lazy.patched import PatchedRows
from graphsvx.engine.lazy.prefix import PrefixRows
from graphsvx.engine.lazy.shared import SharedRows

KINDS.extend([PrefixRows, JoinedColumns, MixedRows, SharedRows, StackedRows, PatchedRows])
