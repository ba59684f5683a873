"""The `Method` protocol, and a method's description: its blocks, tasks and properties."""

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
    """One of MASK, GEN and EXPL: a description, and the class or function that implements it."""

    does: str
    code: type | Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class Properties:
    """The columns of the paper's table of explainers that hold for this implementation.

    Each of them is measured by a test, on every method (`tests/methods/test_properties.py`).
    """

    decomposable: bool = False
    """base + total == prediction, to 1e-6."""
    general: bool = False
    """Global: explains groups of nodes or the model, or carries over to unseen nodes."""
    robust: bool = False
    """Credit correlates by 0.99 or more between seeds (mean over pairs of them), and with that of
    X with 1 % of noise."""
    meaningful: bool = False
    """Values are in units of the prediction: twice the score gives twice the credit."""
    selective: bool = False
    """Most players that cannot affect the prediction get exactly 0."""
    contrastive: bool = False
    """The credit of a difference of two outputs is the difference of their credits."""


@dataclass(frozen=True)
class Blocks:
    """Description of a method in the paper's framework."""

    title: str
    mask: Block
    gen: Block
    expl: Block
    explains: tuple[Target, ...]
    tasks: tuple[Task, ...]
    properties: Properties
    source: str = ""
    """The publication of the method."""
    package: str | None = None
    """The package whose implementation is used, if any."""
    notes: str = field(default="")


class Method(Protocol):
    """An explainer: a callable of (query, seed) that returns an explanation."""

    def __call__(self, query: Query, seed: int) -> Explanation:
        """The explanation; the same seed gives the same result bit for bit."""
        ...
