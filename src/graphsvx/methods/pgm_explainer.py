"""PGM-Explainer: a probabilistic graphical model of which nodes the prediction hangs on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch

from graphsvx.core.arrays import Bools, Floats, Ids
from graphsvx.core.players import Hops
from graphsvx.core.query import Query
from graphsvx.engine.choose import choose_evaluator
from graphsvx.engine.evaluator import Evaluator
from graphsvx.errors import BudgetError
from graphsvx.estimators.bayes import CHANGE, BayesNetwork, Network
from graphsvx.estimators.direct import mask_as_credit
from graphsvx.games.base import require_memory
from graphsvx.generators import GameSetup
from graphsvx.generators.replace import ReplaceRows
from graphsvx.methods.base import Block, Blocks, Properties
from graphsvx.methods.baseline import (
    Baseline,
    Prediction,
    baseline_setup,
    build_explanation,
    game_report,
    perturbed_scores,
)
from graphsvx.results.details import BayesianNetwork, ChangeProbability
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import MOST, Count, Range
from graphsvx.utils.extras import require_extra


def coin_flips(rows: int, players: int, rate: float, seed: int) -> Bools:
    """MASK: each node is perturbed in each row with probability `rate`."""
    rng, flips = np.random.default_rng(seed), np.empty((rows, players), dtype=bool)
    for row in flips:  # one by one: random numbers take eight times the memory of flips
        np.less(rng.random(players), rate, out=row)
    return flips


@dataclass(frozen=True)
class PGMExplainer(Baseline):
    """Nodes whose perturbation the change of the prediction depends on, as a Bayesian network.

    I(.) of the paper: a row counts as changed if the explained score falls by more than
    `drop`, or, without one, by more than it does on average over the rows.
    """

    samples: Annotated[int, Range(10, MOST, error=BudgetError)] = 1000
    rate: Annotated[float, Range(0, 1, inside=True)] = 0.5
    drop: float | None = None
    by: Literal["mean", "zero"] = "mean"
    """What features are replaced by; where all nodes are alike the mean changes nothing."""
    significance: Annotated[float, Range(0, 1, inside=True)] = 0.05
    blanket: Count = 6
    """At most so many nodes in the Markov blanket."""
    hops: Hops = None

    blocks: ClassVar[Blocks] = Blocks(
        title="PGM-Explainer",
        mask=Block("M_N in {0, 1}, independent coin flips", coin_flips),
        gen=Block("X' = M_N X + (1 - M_N) mu, A' = A", ReplaceRows),
        expl=Block("Bayesian network of M_N and the change of prediction, by BIC", BayesNetwork),
        explains=("nodes",),
        tasks=("node", "nodes", "graph"),
        properties=Properties(general=True, selective=True),
        source="Vu and Thai 2020",
        package="pgmpy",
    )

    def explain(self, query: Query, seed: int) -> Explanation:
        """Perturb, test, learn."""
        require_extra("pgmpy.ci_tests")
        evaluator = choose_evaluator(query, self.hops, seed)
        setup = baseline_setup(query, evaluator, "nodes", hops=self.hops)
        ids = evaluator.field.ids[setup.players.node_members]
        require_memory(query.memory, 4 * self.samples * len(ids), self.samples, len(ids))
        perturbed = coin_flips(self.samples, len(ids), self.rate, seed)
        # Row 0 is the graph as it is.
        rows = np.concatenate([np.zeros((1, len(ids)), dtype=bool), perturbed])
        scores = self._scores(query, evaluator, setup, rows)
        prediction = Prediction.of(query, evaluator, torch.from_numpy(scores[0]))
        fell, outputs = scores[:1] - scores[1:], prediction.outputs
        networks = [self._learn(perturbed, fell[:, output]) for output in outputs]
        return build_explanation(
            self,
            seed,
            prediction,
            nodes=mask_as_credit(
                torch.from_numpy(ids), [torch.from_numpy(network.strength) for network in networks]
            ),
            meaning=(
                "Cramér's V between -1 and 1: how strongly a fall of the score depends on the "
                "node's features being replaced; 0 if that may be chance"
            ),
            game=game_report("nodes", len(ids), self.samples + 1, "coin_flips"),
            network=_in_user_ids(networks[outputs.index(prediction.target)], ids),
        )

    def _scores(self, query: Query, evaluator: Evaluator, setup: GameSetup, rows: Bools) -> Floats:
        step = max(1, query.memory // (32 * max(1, evaluator.field.size)))
        none = np.zeros((len(rows), 0), dtype=bool)
        parts = [
            perturbed_scores(
                query,
                evaluator,
                ReplaceRows(self.by)(setup, none[i : i + step], ~rows[i : i + step]),
            )
            for i in range(0, len(rows), step)
        ]
        scores: Floats = torch.cat(parts).numpy()
        return scores

    def _learn(self, perturbed: Bools, fell: Floats) -> Network:
        changed: Bools = fell > (fell.mean() if self.drop is None else self.drop)
        if np.ptp(fell) <= 1e-9:
            changed = np.zeros(len(fell), dtype=bool)  # rounding is no change
        return BayesNetwork(self.significance, self.blanket)(perturbed, changed)


def _in_user_ids(network: Network, ids: Ids) -> BayesianNetwork:
    """The network in the user's node ids."""

    def named(name: str) -> str:
        return name if name == CHANGE else f"node {ids[int(name.split()[1])]}"

    return BayesianNetwork(
        blanket=tuple(int(ids[i]) for i in network.blanket),
        edges=tuple((named(a), named(b)) for a, b in network.edges),
        bic_gain=float(network.bic),
        p_values={str(int(node)): float(p) for node, p in zip(ids, network.p_values, strict=True)},
        chance_of_change=tuple(
            ChangeProbability(int(ids[i]), float(alone), float(perturbed))
            for i, (alone, perturbed) in zip(network.blanket, network.chances, strict=True)
        ),
    )
