"""The explanation: a frozen record of the credit of each player, with standard errors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

from torch import Tensor

from graphsvx.errors import InputError, TargetError, see
from graphsvx.results import titles, typed
from graphsvx.results.answers import PlayerSet
from graphsvx.results.credit import Credit, Ranking
from graphsvx.results.field_record import FieldRecord
from graphsvx.results.record import ExplanationRecord
from graphsvx.results.regions import SEVERAL, Region, branch_of, hop_of, regions
from graphsvx.results.typed import EdgeType
from graphsvx.results.view_registry import registered_view
from graphsvx.utils.constraints import as_int

if TYPE_CHECKING:
    import networkx as nx
    from matplotlib.axes import Axes
    from rich.table import Table

__all__ = ["Credit", "Explanation", "FieldRecord", "Ranking"]

# Not a field: the model is not saved, copied or sent to other processes.
_QUESTIONS: WeakKeyDictionary[Explanation, Any] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Explanation(ExplanationRecord):
    """Why the model said that: `base + total == prediction`, shared out among the players.

    The arrays hold every explained output (one row, or one a class with `targets="all"`); the
    properties are about the one chosen by `target`.
    """

    @property
    def nodes(self) -> dict[Any, Any]:
        """Credit by node id; of a typed graph, by node type: a `TypeCredit` each."""
        if self.types is not None and not self.types.flat:
            return typed.nodes_by_type(self)
        return dict(zip(self.node_ids.tolist(), self.node_values.tolist(), strict=True))

    @property
    def features(self) -> dict[Any, Any]:
        """Credit by feature column; of a typed graph, by node type: a `TypeCredit` each."""
        if self.types is not None and not self.types.flat:
            return typed.features_by_type(self)
        return dict(zip(self.feature_ids.tolist(), self.feature_values.tolist(), strict=True))

    @property
    def edges(self) -> dict[Any, Any]:
        """Credit by edge (source, target); with edge types, by type: a `RelationCredit` each."""
        if self.types is not None:
            return typed.edges_by_relation(self)
        return self.credit_by_ends()

    def by_type(self) -> dict[str, float]:
        """Credit of all nodes of each node type; of their features where no nodes play."""
        return typed.by_type(self)

    def by_relation(self) -> dict[EdgeType, float]:
        """Credit of all edges of each edge type; a type and its reverse count as the first."""
        return typed.by_relation(self)

    # --- answers in sets ----------------------------------------------------------------

    def sufficient(self, share: float | Literal["class"] = 0.9, budget: int = 10_000) -> PlayerSet:
        """The smallest set of players that alone keeps a share of the score, or the class.

        A share of the probability; on other scales of the way from base to prediction. Smaller
        sets are all tried; beyond `budget` model calls the search is greedy and says so. Where
        features and nodes play, the set is one of nodes.
        """
        return self.require_question().sufficient(self, share, budget)

    def flip(self, budget: int = 10_000) -> PlayerSet:
        """The smallest set of players whose removal changes the predicted class."""
        return self.require_question().flip(self, budget)

    def with_question(self, question: Any) -> Explanation:
        """This explanation with the model and query that `sufficient` and `flip` use; not saved."""
        if question is not None:
            _QUESTIONS[self] = question
        return self

    @property
    def question(self) -> Any:
        """The model and query that `sufficient` and `flip` use; None if they are not at hand."""
        return _QUESTIONS.get(self)

    def require_question(self) -> Any:
        """`question`; an InputError if the model is not at hand.

        Raises:
            InputError: it was loaded, came from another process, or is not GraphSVX's.

        """
        question = self.question
        if question is None:
            raise InputError(
                "sets of players are tried on the model, which this explanation does not have: it "
                "was loaded, came from another process, or is not GraphSVX's; use explain(model, "
                "data, ...) again"
            )
        return question

    def by_hop(self) -> list[Region]:
        """Credit of all nodes at a distance together, nearest first, with standard errors."""
        errors = None if self.region_errors is None else self.region_errors.by_hop
        return regions(self, hop_of(self.field, self.node_ids), errors, lambda hop: f"hop {hop}")

    def branches(self) -> list[Region]:
        """Credit of each direct neighbour with what arrives only through it, largest first.

        Nodes with several ways to the explained node are one region, "several ways".
        """
        errors = None if self.region_errors is None else self.region_errors.by_branch
        listed = regions(
            self, branch_of(self.field, self.node_ids), errors,
            lambda node: "several ways" if node == SEVERAL else f"through {node}",
        )  # fmt: skip
        return sorted(listed, key=lambda region: -abs(region.value))

    # --- other outputs ---------------------------------------------------------------

    def for_target(self, target: int) -> Explanation:
        """The same explanation for another explained output.

        Raises:
            TargetError: the output was not explained; explain with `targets="all"`.

        """
        target = as_int(target, "target")
        if target not in self.outputs:
            raise TargetError(
                f"output {target} was not explained, only {list(self.outputs)}; "
                f'explain with targets="all" to have every output'
                + see("the-output-was-not-explained")
            )
        return replace(self, target=target).with_question(self.question)

    def contrast(self, a: int, b: int) -> Explanation:
        """Why `a` rather than `b`: credit for `a` minus credit for `b`.

        The standard error of a difference is at most the sum of the two, and this bound is what
        the contrast reports: the two estimates come from the same rows, so they are not
        independent.

        Raises:
            TargetError: the two outputs are the same, or one was not explained.

        """
        first, second = self.for_target(a), self.for_target(b)
        a, b = first.target, second.target
        if a == b:
            raise TargetError(f"a contrast needs two different outputs, got {a} twice")
        rows = (first._row, second._row)

        return replace(
            self,
            outputs=(a,),
            target=a,
            rather_than=b,
            bases=(self.bases[rows[0]] - self.bases[rows[1]])[None],
            predictions=(self.predictions[rows[0]] - self.predictions[rows[1]])[None],
            node_credit=self.node_credit.contrasted(*rows),
            feature_credit=self.feature_credit.contrasted(*rows),
            edge_credit=self.edge_credit.contrasted(*rows),
            interactions=None if self.interactions is None else self.interactions.contrasted(*rows),
            region_errors=None if self.region_errors is None else self.region_errors.bound(*rows),
            cells=None if self.cells is None else self.cells.contrasted(*rows),
        )

    @property
    def title(self) -> str:
        """What is explained, in a few words."""
        return titles.title(self)

    def node_label(self, node: int) -> str:
        """A node of the receptive field in words: its name, or its type and id."""
        return titles.node_label(self, node)

    @property
    def link_label(self) -> str:
        """An explained link in words."""
        return titles.link_label(self)

    # --- the ways out ------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, ready for JSON; `from_dict` gives the same bits back."""
        from graphsvx.results import serialize  # noqa: PLC0415  (it imports this module)

        return serialize.to_dict(self)

    @staticmethod
    def from_dict(record: dict[str, Any]) -> Explanation:
        """The inverse of `to_dict`."""
        from graphsvx.results import serialize  # noqa: PLC0415  (it imports this module)

        return serialize.from_dict(record)

    def save(self, path: str | Path) -> None:
        """Write a versioned JSON file."""
        from graphsvx.results import serialize  # noqa: PLC0415  (it imports this module)

        serialize.save(self, path)

    @staticmethod
    def load(path: str | Path) -> Explanation:
        """Read a file written by `save`."""
        from graphsvx.results import serialize  # noqa: PLC0415  (it imports this module)

        return serialize.load(path)

    def to_pandas(
        self, players: Literal["all", "nodes", "features", "edges", "cells"] = "all"
    ) -> Any:
        """A `pandas.DataFrame` with a row per player, or per cell with "cells" (needs pandas)."""
        from graphsvx.results.export import to_pandas  # noqa: PLC0415  (it imports this module)

        return to_pandas(self, players)

    def to_networkx(self) -> nx.DiGraph:
        """The neighbourhood as a directed graph with credit on nodes, and on edges that play."""
        from graphsvx.results.export import to_networkx  # noqa: PLC0415  (it imports this module)

        return to_networkx(self)

    def to_pyg(self, data: Any = None) -> Any:
        """A `torch_geometric.explain.Explanation` with signed masks over nodes and edges.

        With `data` (the graph that was explained) masks of edges go along its `edge_index`.
        """
        from graphsvx.results.export import to_pyg  # noqa: PLC0415  (it imports this module)

        return to_pyg(self, data)

    def to_captum(self, data: Any) -> tuple[Tensor, Tensor]:
        """Attributions as captum gives them: of x [1, nodes, features] and of edges [1, edges]."""
        from graphsvx.results.export import to_captum  # noqa: PLC0415  (it imports this module)

        return to_captum(self, data)

    def to_shap(self, data: Any = None) -> Any:
        """A `shap.Explanation`, for shap's own plots (needs shap).

        With `data` (the graph that was explained) it has the values of the features.
        """
        from graphsvx.results.export_shap import to_shap  # noqa: PLC0415  (it imports this module)

        return to_shap(self, data)

    def to_shapiq(self) -> Any:
        """A `shapiq.InteractionValues` of the target, for shapiq's own plots (needs shapiq)."""
        from graphsvx.results.export_shap import to_shapiq  # noqa: PLC0415  (it imports this module)

        return to_shapiq(self)

    def to_shapiq_game(self) -> Any:
        """The explained game of nodes (edges, features) as a `shapiq.Game` (needs shapiq)."""
        from graphsvx.results.export_shap import to_shapiq_game  # noqa: PLC0415  (imports this module)

        return to_shapiq_game(self)

    def from_shapiq(self, values: Any) -> Explanation:
        """This explanation with the interactions of a `shapiq.InteractionValues`."""
        from graphsvx.results.export_shap import from_shapiq  # noqa: PLC0415  (it imports this module)

        return from_shapiq(self, values)

    def table(self, top: int = 10) -> Table:
        """A rich table of the players with the most absolute credit."""
        return registered_view("table")(self, top)

    def plot(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Draw it: the explanation graph where nodes or edges play, bars otherwise."""
        return registered_view("plot")(self, ax=ax, **options)

    def describe(self, audience: Literal["everyone", "expert"] = "everyone") -> str:
        """Two or three plain sentences, or with `audience="expert"` the complete account."""
        from graphsvx.results.describe import describe  # noqa: PLC0415  (it imports this module)

        return describe(self, audience)

    def to_html(self, path: str | Path, data: Any = None) -> None:
        """Write a report in one file that opens offline, with everything there is to see.

        With `data` (the graph that was explained) a click on a node shows its features too.
        """
        registered_view("html")([self], path, data=data)

    def _repr_html_(self) -> str:
        return registered_view("notebook")(self)

    def __rich__(self) -> Table:
        return self.table()

    def __str__(self) -> str:
        """The table as text; its caption is the equation prediction = base + credit."""
        text: str = registered_view("text")(self)
        return text

    def __repr__(self) -> str:
        nodes, features, edges = (
            ", ".join(
                f"{credit.label(i)}: {float(credit.values[self._row, i]):+.3f}"
                for i in credit.certain(self._row)[:3]
            )
            for credit in (self.node_credit, self.feature_credit, self.edge_credit)
        )
        parts = [
            f"Explanation({self.title}",
            f"prediction={self.prediction:.4f}",
            f"base={self.base:.4f}",
            *(
                f"{kind}({credit.players})={{{players}}}"
                for kind, credit, players in (
                    ("nodes", self.node_credit, nodes),
                    ("features", self.feature_credit, features),
                    ("edges", self.edge_credit, edges),
                )
                if credit.players
            ),
            "exact" if self.certificate.exact else "estimated",
        ]
        return ", ".join(part for part in parts if part) + ")"
