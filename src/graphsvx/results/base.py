"""What can be read from the record of an explanation: credit by id, type and region, other outputs.

`Explanation` adds the ways out (files, other libraries, tables, pictures), which read what is here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, Self
from weakref import WeakKeyDictionary

from graphsvx.core.types import relation_labels
from graphsvx.errors import InputError, TargetError, see
from graphsvx.results.answers import PlayerSet
from graphsvx.results.record import ExplanationRecord
from graphsvx.results.regions import SEVERAL, Region, branch_of, hop_of, regions
from graphsvx.results.typed import EdgeType
from graphsvx.results.typed_credit import (
    by_relation,
    by_type,
    edges_by_relation,
    features_by_type,
    nodes_by_type,
)
from graphsvx.utils.constraints import as_int
from graphsvx.utils.printable import one_line

# Not a field: the model is not saved, copied or sent to other processes.
_QUESTIONS: WeakKeyDictionary[BaseExplanation, Any] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class BaseExplanation(ExplanationRecord):
    """Credit by id, type and region, sets of players, contrasts and titles."""

    @property
    def nodes(self) -> dict[Any, Any]:
        """Credit by node id; of a typed graph, by node type: a `TypeCredit` each."""
        if self.types is not None and not self.types.flat:
            return nodes_by_type(self)
        return dict(zip(self.node_ids.tolist(), self.node_values.tolist(), strict=True))

    @property
    def features(self) -> dict[Any, Any]:
        """Credit by feature column; of a typed graph, by node type: a `TypeCredit` each."""
        if self.types is not None and not self.types.flat:
            return features_by_type(self)
        return dict(zip(self.feature_ids.tolist(), self.feature_values.tolist(), strict=True))

    @property
    def edges(self) -> dict[Any, Any]:
        """Credit by edge (source, target); with edge types, by type: a `RelationCredit` each."""
        if self.types is not None:
            return edges_by_relation(self)
        return self.credit_by_ends()

    def by_type(self) -> dict[str, float]:
        """Credit of all nodes of each node type; of their features where no nodes play."""
        return by_type(self)

    def by_relation(self) -> dict[EdgeType, float]:
        """Credit of all edges of each edge type; a type and its reverse count as the first."""
        return by_relation(self)

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

    def with_question(self, question: Any) -> Self:
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
        hops = hop_of(self.field, self.node_ids)
        return regions(self.node_credit, self._row, hops, errors, lambda hop: f"hop {hop}")

    def branches(self) -> list[Region]:
        """Credit of each direct neighbour with what arrives only through it, largest first.

        Nodes with several ways to the explained node are one region, "several ways".
        """
        errors = None if self.region_errors is None else self.region_errors.by_branch
        listed = regions(
            self.node_credit, self._row, branch_of(self.field, self.node_ids), errors,
            lambda node: "several ways" if node == SEVERAL else f"through {node}",
        )  # fmt: skip
        return sorted(listed, key=lambda region: -abs(region.value))

    # --- other outputs ---------------------------------------------------------------

    def for_target(self, target: int) -> Self:
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

    def contrast(self, a: int, b: int) -> Self:
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
        return title(self)

    def node_label(self, node: int) -> str:
        """A node of the receptive field in words: its name, or its type and id."""
        return node_label(self, node)

    @property
    def link_label(self) -> str:
        """An explained link in words."""
        return link_label(self)


# What is explained, in words: titles, and labels of nodes and links.


def title(explanation: ExplanationRecord) -> str:
    """The explained node, nodes, link or graph and the output, such as "node 7: class 2"."""
    field, centres = explanation.field, explanation.centres
    plain_edge = explanation.types is None and field.names is None
    subject = {
        "node": node_label(explanation, centres[0]) if centres else "node",
        "nodes": f"{len(centres)} {_node_word(explanation)}",
        "graph": one_line(explanation.graph_name or "graph"),
        "edge": f"edge {centres}" if plain_edge else link_label(explanation),
        "model": "model",
    }[explanation.kind]
    name = explanation.class_name(explanation.target)
    if explanation.rather_than is not None:
        name += f" rather than {explanation.class_name(explanation.rather_than)}"
    return f"{subject}: {name}"


def node_label(explanation: ExplanationRecord, node: int) -> str:
    """A node of the receptive field in words: its name, or its type and id."""
    field, types = explanation.field, explanation.types
    if types is None or field.names is not None:
        return field.name(node)
    at = (field.ids == node).nonzero()
    return one_line(types.labels[int(at[0, 0])]) if len(at) else f"node {node}"


def link_label(explanation: ExplanationRecord) -> str:
    """An explained link in words."""
    field, types = explanation.field, explanation.types
    if types is None:
        name = str if field.names is None else field.name
        return f"edge {'–'.join(map(name, explanation.centres))}"
    relation = "" if types.relation is None else relation_labels(types.edge_types)[types.relation]
    arrow = f" –{relation}→ " if relation else " → "
    return f"link {arrow.join(node_label(explanation, node) for node in explanation.centres)}"


def _node_word(explanation: ExplanationRecord) -> str:
    types = explanation.types
    if types is None or types.flat or not explanation.centres:
        return "nodes"
    return f"{types.node(explanation.centres[0])[0]} nodes"
