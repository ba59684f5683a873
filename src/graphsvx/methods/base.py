"""What a method says about itself: its three blocks, what it explains, and its properties."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from graphsvx.core.query import Query
from graphsvx.results.explanation import Explanation

Task = Literal["node", "nodes", "graph", "model"]
Target = Literal["nodes", "edges", "features", "graph"]


@dataclass(frozen=True)
class Block:
    """One of MASK, GEN and EXPL: what it does, and the code that does it."""

    does: str
    code: type | Callable[..., Any]


@dataclass(frozen=True)
class Properties:
    """The columns of the paper's table of explainers, as they hold for this implementation.

    Each of them is measured by a test, on every method (`tests/methods/test_properties.py`).
    """

    decomposable: bool
    """base + total == prediction, to 1e-6."""
    general: bool
    """Global: explains groups of nodes or the model, or carries over to unseen nodes."""
    robust: bool
    """Credit correlates by 0.99 or more between seeds (mean over pairs of them), and with that of
    X with 1 % of noise."""
    meaningful: bool
    """Values are in units of the prediction: twice the score gives twice the credit."""
    selective: bool
    """Most players that cannot matter get exactly 0."""
    contrastive: bool
    """Why a rather than b: the credit of a difference is the difference of the credits."""


@dataclass(frozen=True)
class Blocks:
    """A method as the paper's framework sees it."""

    title: str
    mask: Block
    gen: Block
    expl: Block
    explains: tuple[Target, ...]
    tasks: tuple[Task, ...]
    properties: Properties
    source: str = ""
    """Where the method comes from."""
    package: str | None = None
    """The package that does the work inside, where there is one."""
    notes: str = field(default="")


class Method(Protocol):
    """An explainer: a callable of (query, seed) that returns an explanation."""

    def __call__(self, query: Query, seed: int) -> Explanation:
        """The explanation; the same seed gives the same bits."""
        ...
