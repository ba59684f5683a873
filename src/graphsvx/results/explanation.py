"""The explanation: a frozen record of the credit of each player, with standard errors."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from graphsvx.core.query import Kind
from graphsvx.core.reference import Reference
from graphsvx.errors import InputError, TargetError, see
from graphsvx.results import titles, typed
from graphsvx.results.answers import PlayerSet
from graphsvx.results.cells import CellCredit, RankedCell
from graphsvx.results.certificate import Certificate
from graphsvx.results.credit import Credit, Ranked, RankedEdge, Ranking
from graphsvx.results.details import Balance, BayesianNetwork, GeneratedGraph, Groups, Selection
from graphsvx.results.field_record import FieldRecord
from graphsvx.results.interactions import Interactions, Together
from graphsvx.results.regions import SEVERAL, Region, RegionErrors, branch_of, hop_of, regions
from graphsvx.results.schema import Array, ArrayOf, Column
from graphsvx.results.typed import EdgeType, GraphTypes
from graphsvx.results.view_registry import registered_view
from graphsvx.utils.constraints import as_int
from graphsvx.utils.printable import one_line

if TYPE_CHECKING:
    import networkx as nx
    from matplotlib.axes import Axes
    from rich.table import Table

__all__ = ["Credit", "Explanation", "FieldRecord", "Ranking"]

# The annotations below are the schema of what is saved as JSON and Arrow (`results.schema`).
_ENDS = Array("int64", (2, "edges"))
_OUTPUTS = Array("float64", ("outputs",))

# Not a field: the model is not saved, copied or sent to other processes.
_QUESTIONS: WeakKeyDictionary[Explanation, Any] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why the model said that: `base + total == prediction`, shared out among the players.

    The arrays hold every explained output (one row, or one a class with `targets="all"`); the
    properties are about the one chosen by `target`.
    """

    kind: Annotated[Kind, Column()]
    centres: Annotated[tuple[int, ...], Column()]
    """The explained node(s); the two ends for an edge; empty for a graph."""
    outputs: Annotated[tuple[int, ...], Column()]
    """The outputs (classes) that were explained, in the order of the arrays' rows."""
    target: Annotated[int, Column()]
    """The output that the properties are about, one of `outputs`."""
    bases: Annotated[Tensor, _OUTPUTS]
    predictions: Annotated[Tensor, _OUTPUTS]
    node_credit: Credit
    feature_credit: Credit
    edge_credit: Annotated[Credit, ArrayOf("ids", _ENDS)]
    """Credit per edge: `ids` are [2, players] node ids."""
    certificate: Certificate
    field: FieldRecord
    method: str
    meaning: str
    """What a value means, in one sentence."""
    scale: str = "probability"
    rather_than: int | None = None
    """Set by `contrast(a, b)`: the values say why `target` rather than this output."""
    class_names: tuple[str, ...] | None = None
    graph_index: int | None = None
    """Position of the explained graph, where a list of graphs was explained."""
    reference: Reference = None
    """What switched-off features became, where it was not the mean."""
    groups: Groups | None = None
    """Members of named players."""
    types: GraphTypes | None = None
    """Node and edge types of a typed graph; ids number the nodes of all types through."""
    selection: Selection | None = None
    """Set if a Lasso chose few players."""
    cells: CellCredit | None = None
    """Credit by node and feature, with `players="cells"`."""
    balance: Balance | None = None
    """Set if credit was rescaled between nodes and features."""
    removed: tuple[tuple[str, ...], ...] | None = None
    """Greedy: for each output, the players in the order in which they were taken away."""
    neighbours: tuple[int, ...] | None = None
    """GraphLIME: the nodes that the surrogate was fitted on."""
    masked_scores: tuple[float, ...] | None = None
    """GNNExplainer: for each output, the score of the masked graph."""
    questions_trained_on: int | None = None
    """PGExplainer: how many questions its network was trained on."""
    network: BayesianNetwork | None = None
    """PGM-Explainer: the network of the target."""
    generated: GeneratedGraph | None = None
    """XGNN: a graph that the model gives the class."""
    region_errors: RegionErrors | None = None
    """Standard errors of node credit summed by hop and branch, where they were estimated."""
    interactions: Interactions | None = None
    """Set by `order=2` or 3: what sets of players add together."""
    answers: tuple[PlayerSet, ...] = ()
    """Sets of players that were asked for with the explanation (`--sufficient`, `--flip`)."""
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)
    """JSON-like values of a user's own method; the library neither writes nor reads any."""

    # --- the chosen output -------------------------------------------------------------

    @property
    def _row(self) -> int:
        return self.outputs.index(self.target)

    @property
    def base(self) -> float:
        """The score with no player on: where the sharing starts (phi_0)."""
        return float(self.bases[self._row])

    @property
    def prediction(self) -> float:
        """The model's score for the target with every player on."""
        return float(self.predictions[self._row])

    @property
    def total(self) -> float:
        """Sum of all credit."""
        return float(self.node_values.sum() + self.feature_values.sum() + self.edge_values.sum())

    @property
    def node_ids(self) -> Tensor:
        """Ids of the nodes that play."""
        return self.node_credit.ids

    @property
    def node_values(self) -> Tensor:
        """Signed credit of each node."""
        return self.node_credit.values[self._row]

    @property
    def node_errors(self) -> Tensor:
        """Standard error of each node's credit (0: exact)."""
        return self.node_credit.errors[self._row]

    @property
    def feature_ids(self) -> Tensor:
        """Columns of x that play."""
        return self.feature_credit.ids

    @property
    def feature_values(self) -> Tensor:
        """Signed credit of each feature."""
        return self.feature_credit.values[self._row]

    @property
    def feature_errors(self) -> Tensor:
        """Standard error of each feature's credit (0: exact)."""
        return self.feature_credit.errors[self._row]

    @property
    def edge_ids(self) -> Tensor:
        """The edges that play, [2, players]."""
        return self.edge_credit.ids

    @property
    def edge_values(self) -> Tensor:
        """Signed credit of each edge."""
        return self.edge_credit.values[self._row]

    @property
    def edge_errors(self) -> Tensor:
        """Standard error of each edge's credit (0: exact)."""
        return self.edge_credit.errors[self._row]

    @property
    def errors(self) -> Tensor:
        """Standard errors of all players: features, then nodes, then edges."""
        return torch.cat([self.feature_errors, self.node_errors, self.edge_errors])

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

    def credit_by_ends(self) -> dict[tuple[int, int], float]:
        """Credit by the two ends of an edge; that of several edges between them is added up."""
        credit: dict[tuple[int, int], float] = {}
        ends = self.edge_ids.reshape(2, -1).t().tolist()
        for (u, v), value in zip(ends, self.edge_values.tolist(), strict=True):
            credit[(u, v)] = credit.get((u, v), 0.0) + value
        return credit

    def top_nodes(self, k: int | None = None, by: Ranking = "value") -> list[Ranked]:
        """The `k` nodes with the most credit (by signed or absolute value), best first."""
        return self.node_credit.ranked(self._row, k, by)

    def top_features(self, k: int | None = None, by: Ranking = "value") -> list[Ranked]:
        """The `k` features with the most credit (by signed or absolute value), best first."""
        return self.feature_credit.ranked(self._row, k, by)

    def top_cells(self, k: int | None = None, by: Ranking = "value") -> list[RankedCell]:
        """The `k` cells (feature of a node) with the most credit, best first.

        Cells of a node add up to its credit; there are some with `players="cells"` only.

        Raises:
            InputError: no cells play; explain with `players="cells"`.

        """
        if self.cells is None:
            raise InputError('there are no cells; explain with GraphSVX(players="cells")')
        return self.cells.ranked(self._row, k, by)

    @property
    def cell_matrix(self) -> Tensor:
        """Credit of each feature of each node, [nodes, features] over the whole graph.

        The row of an explained node is the credit of its features. What nodes earn by their edges
        alone (presence), and the credit of nodes without cells, is in no column.
        """
        matrix = torch.zeros(self.field.num_nodes, self.field.num_features, dtype=torch.float64)
        for node in self.centres:
            matrix[node, self.feature_ids] = self.feature_values / len(self.centres)
        for cell in self.top_cells():
            if isinstance(cell.feature, int):
                matrix[cell.node, cell.feature] = cell.value
        return matrix

    def top_edges(self, k: int | None = None, by: Ranking = "value") -> list[RankedEdge]:
        """The `k` edges with the most credit, best first; their ids are (source, target)."""
        ends, row = self.edge_ids.reshape(2, -1), self._row
        values, errors = self.edge_values, self.edge_errors
        return [
            RankedEdge((int(ends[0, i]), int(ends[1, i])), float(values[i]), float(errors[i]))
            for i in self.edge_credit.order(row, k, by)
        ]

    def together(
        self, k: int | None = None, size: int = 2, by: Ranking = "absolute"
    ) -> list[Together]:
        """The `k` sets of `size` players with the strongest interaction, strongest first.

        Raises:
            InputError: it has no interactions; explain with `order=2`.

        """
        if self.interactions is None:
            raise InputError(
                "this explanation has no interactions; explain with method=GraphSVX(order=2)"
            )
        return self.interactions.ranked(self._row, k, size, by, self.player_names)

    @property
    def player_names(self) -> list[str]:
        """Names of all players: features, then nodes, then edges."""
        names: list[str] = []
        for kind, credit in (
            ("feature", self.feature_credit),
            ("node", self.node_credit),
            ("edge", self.edge_credit),
        ):
            if credit.names is not None:
                names += map(one_line, credit.names)
            elif kind == "edge":
                names += [f"edge {u}–{v}" for u, v in credit.ids.reshape(2, -1).t().tolist()]
            else:
                names += [f"{kind} {i}" for i in credit.ids.tolist()]
        return names

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

    def class_name(self, output: int) -> str:
        """The name of an output in one line that can be printed anywhere, or its number."""
        if self.class_names is not None and 0 <= output < len(self.class_names):
            return one_line(self.class_names[output])
        return f"{'output' if self.scale == 'value' else 'class'} {output}"

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
        from graphsvx.results.export import to_shap  # noqa: PLC0415  (it imports this module)

        return to_shap(self, data)

    def to_shapiq(self) -> Any:
        """A `shapiq.InteractionValues` of the target, for shapiq's own plots (needs shapiq)."""
        from graphsvx.results.export import to_shapiq  # noqa: PLC0415  (it imports this module)

        return to_shapiq(self)

    def to_shapiq_game(self) -> Any:
        """The explained game of nodes (edges, features) as a `shapiq.Game` (needs shapiq)."""
        from graphsvx.results.export import to_shapiq_game  # noqa: PLC0415  (imports this module)

        return to_shapiq_game(self)

    def from_shapiq(self, values: Any) -> Explanation:
        """This explanation with the interactions of a `shapiq.InteractionValues`."""
        from graphsvx.results.export import from_shapiq  # noqa: PLC0415  (it imports this module)

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
