"""Limits of what one request may ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from graphsvx.utils.constraints import Checked, Count, Positive, Range


@dataclass(frozen=True)
class Limits(Checked):
    """Upper bounds that keep one client from taking the machine away from the others."""

    samples: Count = 20_000
    """Model calls of one explanation."""
    tolerance: Annotated[float, Range(0, inside=True)] = 0.01
    """Refinement stops when the standard errors are this small relative to the credit."""
    waiting: Count = 1000
    """Questions in the queue; further ones are refused (HTTP 503)."""
    connections: Count = 512
    """Open connections; further ones are closed."""
    header_seconds: Positive = 10.0
    """Time for the headers of a request, after which its connection is closed."""
    target: Count = 16_384
    """Bytes of a request's path and query."""
    changes: Count = 2000
    """Nodes, edges and feature values that one what-if question changes."""
    rows: Count = 200
    """Rows of a list in one answer."""
    map_nodes: Count = 20_000
    """Nodes of the largest graph that is drawn as a whole."""
    map_edges: Count = 200_000
    """Edges of the largest graph that is drawn as a whole."""
    cached: Count = 256
    """Explanations that are kept in memory."""
    outputs: Count = 32
    """Models with more outputs are explained for one output at a time."""
