"""The fields of an explanation: what is saved, and what the arrays hold for its target."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor

from graphsvx.core.query import Kind
from graphsvx.core.reference import Reference
from graphsvx.errors import InputError
from graphsvx.results.answers import PlayerSet
from graphsvx.results.cells import CellCredit, RankedCell
from graphsvx.results.certificate import Certificate
from graphsvx.results.credit import Credit, Ranked, RankedEdge, Ranking
from graphsvx.results.details import Balance, BayesianNetwork, GeneratedGraph, Groups, Selection
from graphsvx.results.field_record import FieldRecord
from graphsvx.results.interactions import Interactions, Together
from graphsvx.results.regions import RegionErrors
from graphsvx.results.schema import Array, ArrayOf, Column
from graphsvx.results.typed import GraphTypes
from graphsvx.utils.printable import one_line

# The annotations below are the schema of what is saved as JSON and Arrow (`results.schema`).
_ENDS = Array("int64", (2, "edges"))
_OUTPUTS = Array("float64", ("outputs",))


@dataclass(frozen=True, eq=False)
class ExplanationRecord:
    """Credit of every player for every explained output, as it is saved.

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

    def class_name(self, output: int) -> str:
        """The name of an output in one line that can be printed anywhere, or its number."""
        if self.class_names is not None and 0 <= output < len(self.class_names):
            return one_line(self.class_names[output])
        return f"{'output' if self.scale == 'value' else 'class'} {output}"

    # --- players in order of their credit ------------------------------------------------

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

    def credit_by_ends(self) -> dict[tuple[int, int], float]:
        """Credit by the two ends of an edge; that of several edges between them is added up."""
        credit: dict[tuple[int, int], float] = {}
        ends = self.edge_ids.reshape(2, -1).t().tolist()
        for (u, v), value in zip(ends, self.edge_values.tolist(), strict=True):
            credit[(u, v)] = credit.get((u, v), 0.0) + value
        return credit
