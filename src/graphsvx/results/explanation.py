"""The explanation: a frozen record of the credit of each player, with standard errors."""

from __future__ import annotations

import dataclasses
import importlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from graphsvx.core.names import Names
from graphsvx.core.players import Reference
from graphsvx.core.query import Kind
from graphsvx.core.types import EdgeType, relation_labels
from graphsvx.errors import InputError, TargetError, see
from graphsvx.results import credit as credits
from graphsvx.results import describe as words
from graphsvx.results import export, serialize
from graphsvx.results.certificate import Certificate
from graphsvx.results.credit import (
    NO_FEATURES,
    CellCredit,
    Change,
    Credit,
    Interactions,
    PlayerKind,
    Ranked,
    RankedCell,
    Ranking,
    RegionErrors,
    Together,
    TypeCredit,
    by_type,
)
from graphsvx.results.details import (
    Balance,
    BayesianNetwork,
    FieldRecord,
    GeneratedGraph,
    GraphTypes,
    Groups,
    PlayerSet,
    Selection,
)
from graphsvx.results.ranking import Players, listed
from graphsvx.utils.constraints import Array, ArrayOf, Column, as_int, checked
from graphsvx.utils.printable import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.table import Table

__all__ = ["Credit", "Explanation", "FieldRecord", "Ranking"]


def view(name: str, module: str = "graphsvx.views") -> Any:
    """A function of `graphsvx.views`, which is built on explanations and imported when needed."""
    return getattr(importlib.import_module(module), name)


def _part(kind: PlayerKind, part: Literal["ids", "values", "errors"], words: str) -> Tensor:
    """A property: the ids of one kind of players, or their credit or errors for the target.

    To type checkers it is what it returns.
    """

    def get(explanation: Explanation) -> Tensor:
        credit = explanation.credit_by_kind[kind]
        if part == "ids":
            return credit.ids
        return (credit.values if part == "values" else credit.errors)[explanation.row]

    return cast("Tensor", property(get, doc=words))


# Not a field: the model is not saved, copied or sent to other processes.
_QUESTIONS: WeakKeyDictionary[Explanation, Any] = WeakKeyDictionary()

_CREDITS = ("node_credit", "feature_credit", "edge_credit")
_BY_OUTPUT = (*_CREDITS, "interactions", "region_errors", "cells")
"""What has a row for each output."""
# The annotations below are the schema of what is saved as JSON and Arrow (`utils.constraints`).
_ENDS = Array("int64", (2, "edges"))
_OUTPUTS = Array("float64", ("outputs",))


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
    graph_name: str | None = None
    """Name of the explained graph, where the data has one (`data.name`)."""
    reference: Reference = None
    """What switched-off features became, where it was not the mean."""
    groups: Groups | None = None
    """Members of named players."""
    types: GraphTypes | None = None
    """Node and edge types of a typed graph; ids count nodes over all types."""
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
    def row(self) -> int:
        """Row of the target in the arrays."""
        return self.outputs.index(self.target)

    @property
    def credit_by_kind(self) -> dict[PlayerKind, Credit]:
        """Credit of all players: features, then nodes, then edges."""
        return {"feature": self.feature_credit, "node": self.node_credit, "edge": self.edge_credit}

    @property
    def base(self) -> float:
        """The score with no player on: where the sharing starts (phi_0)."""
        return float(self.bases[self.row])

    @property
    def prediction(self) -> float:
        """The model's score for the target with every player on."""
        return float(self.predictions[self.row])

    @property
    def total(self) -> float:
        """Sum of all credit."""
        return float(self.node_values.sum() + self.feature_values.sum() + self.edge_values.sum())

    node_ids = _part("node", "ids", "Ids of the nodes that play.")
    node_values = _part("node", "values", "Signed credit of each node.")
    node_errors = _part("node", "errors", "Standard error of each node's credit (0: exact).")
    feature_ids = _part("feature", "ids", "Columns of x that play.")
    feature_values = _part("feature", "values", "Signed credit of each feature.")
    feature_errors = _part(
        "feature", "errors", "Standard error of each feature's credit (0: exact)."
    )
    edge_ids = _part("edge", "ids", "The edges that play, [2, players].")
    edge_values = _part("edge", "values", "Signed credit of each edge.")
    edge_errors = _part("edge", "errors", "Standard error of each edge's credit (0: exact).")

    @property
    def values(self) -> Tensor:
        """Signed credit of all players: features, then nodes, then edges."""
        return torch.cat([credit.values[self.row] for credit in self.credit_by_kind.values()])

    @property
    def errors(self) -> Tensor:
        """Standard errors of all players: features, then nodes, then edges."""
        return torch.cat([credit.errors[self.row] for credit in self.credit_by_kind.values()])

    @property
    def player_names(self) -> list[str]:
        """Names of all players: features, then nodes, then edges."""
        return [name for kind, of in self.credit_by_kind.items() for name in of.labels(kind)]

    def class_name(self, output: int) -> str:
        """The name of an output in one line that can be printed anywhere, or its number."""
        if self.class_names is not None and 0 <= output < len(self.class_names):
            return one_line(self.class_names[output])
        return f"{'output' if self.scale == 'value' else 'class'} {output}"

    # --- players in order of their credit ------------------------------------------------

    def top_nodes(self, k: int | None = None, by: Ranking = "value") -> list[Ranked[int]]:
        """The `k` nodes with the most credit (by signed or absolute value), best first."""
        return self.node_credit.ranked(self.row, k, by)

    def top_features(self, k: int | None = None, by: Ranking = "value") -> list[Ranked[int]]:
        """The `k` features with the most credit (by signed or absolute value), best first."""
        return self.feature_credit.ranked(self.row, k, by)

    def top_cells(self, k: int | None = None, by: Ranking = "value") -> list[RankedCell]:
        """The `k` cells (feature of a node) with the most credit, best first.

        Cells of a node add up to its credit; there are some with `players="cells"` only.

        Raises:
            InputError: no cells play; explain with `players="cells"`.

        """
        if self.cells is None:
            raise InputError('there are no cells; explain with GraphSVX(players="cells")')
        return self.cells.ranked(self.row, k, by)

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
            if cell.feature not in NO_FEATURES.values():
                matrix[cell.node, int(cell.feature)] = cell.value
        return matrix

    def top_edges(
        self, k: int | None = None, by: Ranking = "value"
    ) -> list[Ranked[tuple[int, int]]]:
        """The `k` edges with the most credit, best first; their ids are (source, target)."""
        return self.edge_credit.ranked(self.row, k, by)

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
        return self.interactions.ranked(self.row, k, size, by, self.player_names)

    def credit_by_ends(self) -> dict[tuple[int, int], float]:
        """Credit by the two ends of an edge; that of several edges between them is added up."""
        credit: dict[tuple[int, int], float] = defaultdict(float)
        for (u, v), value in zip(self.edge_credit.keys(), self.edge_values.tolist(), strict=True):
            credit[u, v] += value
        return dict(credit)

    # --- by id, type and region --------------------------------------------------------

    @property
    def hetero(self) -> GraphTypes | None:
        """The types of the explained graph, if its nodes have some."""
        return None if self.types is None or self.types.flat else self.types

    @property
    def node_groups(self) -> Mapping[str, tuple[int, ...]]:
        """Members of the players that stand for several nodes, by name."""
        return (self.groups or Groups()).nodes

    @property
    def nodes(self) -> dict[Any, Any]:
        """Credit by node id; of a typed graph, by node type: a `TypeCredit` each."""
        return self._by_id("node") if self.hetero is None else self._by_type("node")

    @property
    def features(self) -> dict[Any, Any]:
        """Credit by feature column; of a typed graph, by node type: a `TypeCredit` each."""
        return self._by_id("feature") if self.hetero is None else self._by_type("feature")

    @property
    def edges(self) -> dict[Any, Any]:
        """Credit by edge (source, target); with edge types, by type: a `TypeCredit` each."""
        return self.credit_by_ends() if self.types is None else self._by_type("edge")

    def by_type(self) -> dict[str, float]:
        """Credit of all nodes of each node type; of their features where no nodes play."""
        credits = self._by_type("node") or self._by_type("feature")
        return {name: credit.total for name, credit in credits.items()}

    def by_relation(self) -> dict[EdgeType, float]:
        """Credit of all edges of each edge type; a type and its reverse count as the first."""
        return {name: credit.total for name, credit in self._by_type("edge").items()}

    def _by_id(self, kind: PlayerKind) -> dict[int, float]:
        credit = self.credit_by_kind[kind]
        return dict(zip(credit.ids.tolist(), credit.values[self.row].tolist(), strict=True))

    def _by_type(self, kind: PlayerKind) -> dict[Any, TypeCredit]:
        return by_type(self.credit_by_kind[kind], kind, self.row, self.require_types())

    def require_types(self) -> GraphTypes:
        """The types of the explained graph.

        Raises:
            InputError: it has none.

        """
        if self.types is None:
            raise InputError("the explained graph has no types: it is no HeteroData")
        return self.types

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

    by_hop = credits.by_hop
    branches = credits.branches

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

    def only_target(self) -> Explanation:
        """The same explanation without its other outputs."""
        return self._with_rows(lambda rows: rows[[self.row]])

    def _with_rows(self, values: Change, errors: Change | None = None) -> Explanation:
        """The explanation of the target, whose credit is computed from that of all outputs."""
        parts: dict[str, Any] = {name: getattr(self, name) for name in _BY_OUTPUT}
        changed = {name: part and part.map(values, errors) for name, part in parts.items()}
        changed |= {"bases": values(self.bases), "predictions": values(self.predictions)}
        return replace(self, outputs=(self.target,), **changed)

    def contrast(self, a: int, b: int) -> Explanation:
        """Why `a` rather than `b`: credit for `a` minus credit for `b`.

        The standard error of a difference is at most the sum of the two, and this bound is what
        the contrast reports: the two estimates come from the same rows, so they are not
        independent.

        Raises:
            TargetError: the two outputs are the same, or one was not explained.

        """
        first, second = self.for_target(a), self.for_target(b)
        i, j = [first.row], [second.row]
        if i == j:
            raise TargetError(f"a contrast needs two different outputs, got {first.target} twice")
        difference = first._with_rows(lambda x: x[i] - x[j], lambda x: x[i] + x[j])
        return replace(difference, rather_than=second.target)

    # --- in words ----------------------------------------------------------------------

    @property
    def title(self) -> str:
        """The explained node, nodes, link or graph and the output, such as "node 7: class 2"."""
        centres, hetero = self.centres, self.hetero
        unnamed_link = self.types is None and self.field.names is None
        subject = {
            "node": self.node_label(centres[0]) if centres else "node",
            "nodes": f"{len(centres)} "
            + (f"{hetero.node(centres[0])[0]} nodes" if hetero and centres else "nodes"),
            "graph": one_line(self.graph_name or "graph"),
            "edge": f"edge {centres}" if unnamed_link else self.link_label,
            "model": "model",
        }[self.kind]
        name = self.class_name(self.target)
        if self.rather_than is not None:
            name += f" rather than {self.class_name(self.rather_than)}"
        return f"{subject}: {name}"

    @property
    def node_labels(self) -> dict[int, str]:
        """Names of the nodes of the receptive field, or their type and id; empty without both."""
        labels = self.types.labels if self.types is not None else ()
        return dict(zip(self.field.ids.tolist(), self.field.names or labels, strict=False))

    def node_label(self, node: int) -> str:
        """A node of the receptive field in words: its name, or its type and id."""
        node = as_int(node, "node")
        return one_line(self.node_labels.get(node, f"node {node}"))

    @property
    def link_label(self) -> str:
        """An explained link in words."""
        types = self.types
        if types is None:
            labels = self.node_labels
            ends = [one_line(labels.get(node, str(node))) for node in self.centres]
            return f"edge {'–'.join(ends)}"
        arrow = " → "
        if types.relation is not None:
            arrow = f" –{relation_labels(types.edge_types)[types.relation]}→ "
        return f"link {arrow.join(map(self.node_label, self.centres))}"

    def with_names(self, names: Names) -> Explanation:
        """The explanation with names of its graph, nodes, features and edges, where there are any.

        Groups keep the names that they were given.
        """
        checked(names, Names, "names")
        nodes, features = names.nodes, names.features
        changed: dict[str, Any] = {}
        if names.graph is not None and self.kind == "graph":
            changed["graph_name"] = names.graph
        if features is not None:

            def feature_name(column: int) -> str:
                return NO_FEATURES.get(column) or features[column % len(features)]

            if self.feature_credit.players:
                changed["feature_credit"] = self.feature_credit.named("feature", feature_name)
            if self.cells is not None:
                columns = tuple(map(feature_name, self.cells.features))
                changed["cells"] = replace(self.cells, names=columns)
        if nodes is not None:
            changed["node_credit"] = self.node_credit.named("node", nodes.__getitem__)
            changed["edge_credit"] = self.edge_credit.named("edge", nodes.__getitem__)
            labels = tuple(map(nodes.__getitem__, self.field.ids.tolist()))
            changed["field"] = replace(self.field, names=labels)
        return replace(self, **changed)

    # --- ways out ----------------------------------------------------------------------

    to_dict = serialize.to_dict
    save = serialize.write_file
    to_pandas = export.to_pandas
    to_networkx = export.to_networkx
    to_pyg = export.to_pyg
    to_captum = export.to_captum
    to_shap = export.to_shap
    to_shapiq = export.to_shapiq
    to_shapiq_game = export.to_shapiq_game
    from_shapiq = export.from_shapiq
    describe = words.describe

    @staticmethod
    def from_dict(record: dict[str, Any]) -> Explanation:
        """The inverse of `to_dict`."""
        return serialize.from_dict(record, Explanation)

    @staticmethod
    def load(path: str | Path) -> Explanation:
        """Read a file written by `save`."""
        return serialize.read_file(path, Explanation)

    def table(self, top: int = 10) -> Table:
        """A rich table of the players with the most absolute credit."""
        return view("table")(self, top)

    def plot(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Draw it: the explanation graph where nodes or edges play, bars otherwise."""
        return view("explanation", "graphsvx.views.plot")(self, ax=ax, **options)

    def to_html(self, path: str | Path, data: Any = None) -> None:
        """Write a report in one file that opens offline, with everything there is to see.

        With `data` (the graph that was explained) a click on a node shows its features too.
        """
        view("write")([self], path, data=data)

    def _repr_html_(self) -> str:
        return view("notebook")(self)

    def __rich__(self) -> Table:
        return self.table()

    def __str__(self) -> str:
        """The table as text; its caption is the equation prediction = base + credit."""
        return str(view("printed")(self))

    def __repr__(self) -> str:
        parts = [f"Explanation({self.title}"]
        parts += [f"prediction={self.prediction:.4f}", f"base={self.base:.4f}"]
        kinds: tuple[Players, ...] = ("nodes", "features", "edges")
        for kind in kinds:
            players = sorted(listed(self, kind), key=lambda entry: -abs(entry.credit))
            named = players and self.credit_by_kind[players[0].kind].names is not None
            prefix = "" if named else f"{kind[:-1]} "
            words = [
                f"{entry.name.removeprefix(prefix)}: {entry.credit:+.3f}"
                for entry in players
                if entry.sure
            ]
            if players:
                parts.append(f"{kind}({len(players)})={{{', '.join(words[:3])}}}")
        return ", ".join([*parts, self.certificate.status]) + ")"
