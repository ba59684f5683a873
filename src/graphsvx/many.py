"""Many explanations, as they are done, over any number of processes."""

from __future__ import annotations

import inspect

from graphsvx.api import explain

_OPTIONS = frozenset(inspect.signature(explain).parameters) - {
    "model", "data", "node", "nodes", "edge", "graph",
}  # fmt: skip
