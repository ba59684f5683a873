"""What an explainer is: `Method`, its description in blocks, and the frame that baselines share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Protocol

from graphsvx.core.query import Query
from graphsvx.errors import UnsupportedError
from graphsvx.methods.local_graph import local_graph_of
from graphsvx.methods.pipeline import Prediction
from graphsvx.methods.record import build_explanation, game_report
from graphsvx.results.explanation import Explanation
from graphsvx.utils import constraints
from graphsvx.utils.imports import require_extra

__all__ = ["Baseline", "Block", "Blocks", "Method", "Properties", "game_report", "local_graph_of"]

Task = Literal["node", "nodes", "graph", "model"]
Target = Literal["nodes", "edges", "features", "graph"]
_TASKS = {"node": "a node", "nodes": "a group of nodes", "graph": "a graph", "edge": "an edge"}


class Method(Protocol):
    """An explainer: a callable of (query, seed) that returns an explanation."""

    def __call__(self, query: Query, seed: int) -> Explanation:
        """The explanation; the same seed gives the same result bit for bit."""
        ...


MethodSetting = Annotated[
    Method, constraints.Block("an explainer with its settings, such as GraphSVX()", arguments=2)
]
"""A method as an argument."""


# --- the description of a method -------------------------------------------------------------


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
    properties: Properties
    tasks: tuple[Task, ...] = ("node", "nodes", "graph")
    meaning: str = ""
    """What a value means, in one sentence; {setting} stands for a setting of the method."""
    source: str = ""
    """The publication of the method."""
    package: str | None = None
    """The package whose implementation is used, if any."""
    notes: str = ""


# --- the frame of baselines ------------------------------------------------------------------


@dataclass(frozen=True)
class Baseline(constraints.Checked, ABC):
    """An explainer in the framework MASK, GEN, EXPL: its settings, and `explain`, its algorithm."""

    blocks: ClassVar[Blocks]
    explains_typed_graphs: ClassVar[bool] = False

    def __call__(self, query: Query, seed: int) -> Explanation:
        """The explanation; an UnsupportedError for questions that the method does not answer."""
        self.check_kind(query)
        if self.blocks.package:  # shap makes a colour map with a deprecated function at import
            require_extra(
                self.blocks.package, quiet=(DeprecationWarning, PendingDeprecationWarning)
            )
        return self.explain(query, seed)

    def check_kind(self, query: Query) -> None:
        """Check that the method answers this kind of question.

        Raises:
            UnsupportedError: it does not.

        """
        # A model is explained through the question about a graph.
        kinds = ["graph" if task == "model" else task for task in self.blocks.tasks]
        if query.kind not in kinds and not query.graph.has_types:
            supported = " or ".join(_TASKS[kind] for kind in kinds)
            raise UnsupportedError(
                f"{type(self).__name__} explains {supported}, got a question about "
                f"{_TASKS[query.kind]}; choose another method"
            )

    @abstractmethod
    def explain(self, query: Query, seed: int) -> Explanation:
        """The method's algorithm."""

    def record(self, seed: int, prediction: Prediction, **parts: Any) -> Explanation:
        """The explanation, as `build_explanation` makes it; values mean what the blocks say."""
        meaning = self.blocks.meaning.format(**vars(self))
        return build_explanation(self, seed, prediction, meaning=meaning, **parts)
