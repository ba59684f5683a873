"""EXPL of PGM-Explainer: a Bayesian network over perturbed nodes and the change of prediction.

dependence    chi-square test of each node's perturbation with the change
blanket       the strongest ones, less those that are independent given the others
network       hill climbing by BIC over the blanket and the change (pgmpy)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from scipy.special import chdtrc

from graphsvx.core.arrays import Bools, Floats
from graphsvx.estimators.least_squares import player_blocks
from graphsvx.utils.constraints import Checked, Count, Range
from graphsvx.utils.imports import require_extra

CHANGE = "change"


@dataclass(frozen=True, eq=False)
class Network:
    """Associations and Bayesian network, learned from rows of perturbations."""

    strength: Floats
    """Signed Cramér's V of each node with the change, in [-1, 1]; 0 where not significant."""
    p_values: Floats
    blanket: list[int]
    """Markov blanket of the change: positions of nodes, strongest first."""
    edges: list[tuple[str, str]]
    """Directed edges between "node <position>" and "change"."""
    bic: float
    """BIC of the network, less that of the network without edges."""
    chances: list[tuple[float, float]]
    """For each node of the blanket: P(change | left alone), P(change | perturbed)."""


def chi_square(perturbed: Bools, changed: Bools) -> tuple[Floats, Floats]:
    """Signed phi (Cramér's V of a 2 x 2 table) and p-value of each column with `changed`.

    Positive where perturbing the node makes a change more likely. A constant column is
    independent of everything.
    """
    y = changed.astype(np.float64)
    y_off = y - y.mean()
    squares, excess = np.zeros((2, perturbed.shape[1]))
    for part in player_blocks(perturbed):  # in float64 all at once would take much memory
        x_off = perturbed[:, part].astype(np.float64)
        x_off -= x_off.mean(0)
        squares[part] = (x_off**2).sum(0)
        # Observed less expected in the cell (perturbed, changed); the other cells have the same.
        excess[part] = (x_off * y_off[:, None]).sum(0)
    size = np.sqrt(squares * (y_off**2).sum())
    phi = np.where(size > 0, excess / np.where(size > 0, size, 1), 0.0)
    distance = np.abs(excess)
    # Yates's correction, as in pgmpy's test of the blanket.
    corrected = np.maximum(distance - 0.5, 0) / np.where(distance > 0, distance, 1)
    return phi, chdtrc(1, len(y) * (phi * corrected) ** 2)


@dataclass(frozen=True)
class BayesNetwork(Checked):
    """Tests, blanket and structure."""

    significance: Annotated[float, Range(0, 1, inside=True)] = 0.05
    most: Count = 6
    """At most so many nodes in the blanket; tests given the others need rows for each cell."""

    def __call__(self, perturbed: Bools, changed: Bools) -> Network:
        """`perturbed` [rows, nodes] and `changed` [rows]."""
        phi, p_values = chi_square(perturbed, changed)
        dependent = p_values < self.significance
        ranked = np.argsort(-np.abs(phi), kind="stable")
        candidates = [int(i) for i in ranked[: self.most] if dependent[i]]
        table = _table(perturbed, changed, candidates)
        blanket = self._shrink(table, candidates)
        edges, bic = _climb(table[[*(_name(i) for i in blanket), CHANGE]]) if blanket else ([], 0.0)
        chances = [
            (float(changed[~perturbed[:, i]].mean()), float(changed[perturbed[:, i]].mean()))
            for i in blanket
        ]
        return Network(np.where(dependent, phi, 0.0), p_values, blanket, edges, bic, chances)

    def _shrink(self, table: Any, candidates: list[int]) -> list[int]:
        """Drop, weakest first, nodes that are independent of the change given the others."""
        if len(candidates) < 2:
            return candidates
        test = require_extra("pgmpy.ci_tests").ChiSquare(data=table)
        blanket = list(candidates)
        for candidate in reversed(candidates):
            conditions = [_name(i) for i in blanket if i != candidate]
            test(X=_name(candidate), Y=CHANGE, Z=conditions, significance_level=self.significance)
            # Where the others settle the change, no cell is left to test: nothing to add.
            if len(blanket) > 1 and not test.p_value_ < self.significance:
                blanket.remove(candidate)
        return blanket


def _name(position: int) -> str:
    return f"node {position}"


def _table(perturbed: Bools, changed: Bools, columns: list[int]) -> Any:
    pandas = require_extra("pandas")
    data = {_name(i): perturbed[:, i].astype(np.int64) for i in columns}
    # Categories, so that pgmpy takes them for states and not for numbers.
    return pandas.DataFrame({**data, CHANGE: changed.astype(np.int64)}).astype("category")


def _climb(table: Any) -> tuple[list[tuple[str, str]], float]:
    """The best network by BIC; perturbations may cause a change, never the reverse."""
    discovery = require_extra("pgmpy.causal_discovery")
    score = require_extra("pgmpy.structure_score").BIC(table)
    nodes = [column for column in table.columns if column != CHANGE]
    search = discovery.HillClimbSearch(
        scoring_method=score,
        expert_knowledge=discovery.ExpertKnowledge(
            forbidden_edges=[(CHANGE, node) for node in nodes]
        ),
        return_type="dag",
        show_progress=False,
    )
    edges = sorted((str(a), str(b)) for a, b in search.fit(table).causal_graph_.edges())
    gain = 0.0
    for node in table.columns:
        parents = tuple(a for a, b in edges if b == node)
        gain += score.local_score(node, parents) - score.local_score(node, ())
    return edges, float(gain)
