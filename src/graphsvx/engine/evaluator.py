"""An evaluator: a receptive field, and a function from perturbed graphs to outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from graphsvx.core.field import Field
from graphsvx.core.perturbation import HopCounts, Perturbations, distances
from graphsvx.engine.lookup import Lookup
from graphsvx.engine.rounding import allclose
from graphsvx.engine.state_graph import StateGraphs

Evaluate = Callable[[Field, Perturbations, HopCounts], Tensor]
Slopes = Callable[[Field, Perturbations, HopCounts, Callable[[Tensor], Tensor]], Tensor | None]

StatesOfField = Callable[[Field], StateGraphs]


def _ignore(reason: str) -> None:
    """Default of `Evaluator.decline`: the reason is dropped."""


@dataclass(frozen=True, eq=False)
class Evaluator:
    """The receptive field of a query, and a function that evaluates perturbed graphs over it."""

    field: Field
    depth: int | None
    reach: int | None
    """Hops within which a node of a perturbed graph can influence a centre; None: unlimited."""
    evaluate: Evaluate
    """Perturbed graphs over the field (or a restriction) to outputs, [graphs, centres, outputs]."""
    checks: tuple[str, ...]
    fallback: str | None = None
    local: bool = True
    """Nodes that cannot reach a centre have no influence. False: any node may (pooling)."""
    expected_output: Tensor | None = None
    """Output of the unperturbed graph, [centres, outputs], which the caller compares with that of
    the full coalition (`matches_expected`); None: the checks are complete."""
    outputs: Tensor | None = None
    """Outputs of many nodes, [nodes, outputs], which set the scale of rounding errors."""
    batched: bool = True
    """Whether many perturbed graphs are evaluated in one call."""
    has_kernels: bool = False
    """Whether the structure is known and all layers have kernels, so that the size of the field
    tells what a call costs; False: it has to be counted."""
    seconds_of_call: float | None = None
    """What a call costs, where it has been counted."""
    replays: int = 0
    """Number of coalitions of each game that must be evaluated again by plain calls."""
    plainly: Evaluate | None = None
    """The definition, where `evaluate` is not proved: one plain call a perturbed graph."""
    plain_up_to: int = 0
    """Games of at most so many coalitions are evaluated by `plainly`."""
    replays_vary: bool = False
    """Whether later explanations replay fewer: a record must not depend on earlier ones."""
    proved: bool = False
    """Whether outputs are those of plain calls whatever the coalition: it makes plain calls, or the
    structure of the model is known. False: as far as coalitions were replayed."""
    lookup: Lookup | None = None
    """Whole graphs: look-ups of embeddings, for models that are layers on nodes and a pooled head
    (`games.lookup_game`); None: no such model."""
    decline: Callable[[str], None] = _ignore
    """Called with the reason why look-ups of embeddings cannot be used, before a ModelError."""
    states: StatesOfField | None = None
    """States of the nodes around the explained ones, by which `evaluate` looks many perturbed
    graphs up (`engine.centre_lookup`); None: it does not."""
    slopes: Slopes | None = None
    """Derivatives of scores by how active nodes are that send in the first round alone
    (`engine.batches.BatchEvaluator.slopes`); None: not known."""
    agrees: Callable[[Field, Perturbations, Tensor, Tensor], bool] | None = None
    """Whether outputs of perturbed graphs are those of plain calls, given all outputs of the game
    for the scale of rounding errors; None: as for graphs without types."""

    def by_definition(self) -> Evaluator:
        """The same field, without shortcuts: each distinct perturbed graph by a plain call."""
        return replace(
            self, evaluate=self.plainly or self.evaluate, reach=None, local=False, replays=0,
            proved=True, lookup=None, states=None, slopes=None, batched=False,
        )  # fmt: skip

    def matches_expected(self, full: Tensor | None, played: Tensor | None = None) -> bool:
        """Whether the output of the full coalition equals `expected_output`.

        `played`: outputs of the game, which show how large each output is where those of the whole
        graph are not known.
        """
        if self.expected_output is None:
            return True
        if full is None or full.shape != self.expected_output.shape:
            return False
        return allclose(
            full, self.expected_output, played if self.outputs is None else self.outputs
        )

    def hop_counts(self, field: Field, perturbations: Perturbations) -> HopCounts:
        """Hops from each node to a centre in each perturbed graph; UNREACHABLE: no influence."""
        if not self.local:
            return np.zeros((len(perturbations), field.size), dtype=np.uint8)
        return distances(perturbations, field, self.reach)
