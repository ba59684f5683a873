"""PGM-Explainer: a probabilistic graphical model of node perturbations and the prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from graphsvx.core import players as choosing
from graphsvx.core.arrays import Bools
from graphsvx.core.players import Hops
from graphsvx.core.query import Query
from graphsvx.engine.evaluator import Evaluator, choose_evaluator
from graphsvx.errors import BudgetError
from graphsvx.estimators.bayes import CHANGE, BayesNetwork, Network
from graphsvx.estimators.direct import mask_as_credit
from graphsvx.generators import GameSetup
from graphsvx.generators.replace import ReplaceRows
from graphsvx.methods.base import Block, Blocks, Properties
from graphsvx.methods.local_graph import (
    build_explanation,
    game_report,
    perturbed_scores,
    refuse_unless,
)
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import MOST, Checked, Count, Range
from graphsvx.utils.extras import require_extra

Floats = NDArray[np.float64]


def coin_flips(rows: int, players: int, rate: float, seed: int) -> Bools:
    """MASK: Boolean [rows, players]; each node is perturbed with probability `rate`."""
    return np.random.default_rng(seed).random((rows, players)) < rate


@dataclass(frozen=True)
class PGMExplainer(Checked):
    """A Bayesian network of node perturbations and the change of the prediction.

    I(.) of the paper: a sample counts as changed if the explained score decreases by more than
    `drop`, or, without `drop`, by more than the mean decrease over all samples.
    """

    samples: Annotated[int, Range(10, MOST, error=BudgetError)] = 1000
    rate: Annotated[float, Range(0, 1, inside=True)] = 0.5
    drop: float | None = None
    by: Literal["mean", "zero"] = "mean"
    """Replacement of features; with identical features at all nodes the mean changes nothing."""
    significance: Annotated[float, Range(0, 1, inside=True)] = 0.05
    blanket: Count = 6
    """Maximum number of nodes in the Markov blanket."""
    hops: Hops = None

    blocks: ClassVar[Blocks] = Blocks(
        title="PGM-Explainer",
        mask=Block("M_N in {0, 1}, independent coin flips", coin_flips),
        gen=Block("X' = M_N X + (1 - M_N) mu, A' = A", ReplaceRows),
        expl=Block("Bayesian network of M_N and the change of prediction, by BIC", BayesNetwork),
        explains=("nodes",),
        tasks=("node", "nodes", "graph"),
        properties=Properties(
            decomposable=False,
            general=True,
            robust=False,
            meaningful=False,
            selective=True,
            contrastive=False,
        ),
        source="Vu and Thai 2020",
        package="pgmpy",
    )

    def __call__(self, query: Query, seed: int) -> Explanation:
        """Sample perturbations, test dependence, and fit a network for each explained output."""
        refuse_unless(query, self, "node", "nodes", "graph")
        require_extra("pgmpy.ci_tests")
        evaluator = choose_evaluator(query, self.hops, seed)
        players = choosing.find_players(query.graph, evaluator.field, self.hops, "all", "nodes")
        setup = GameSetup(query.graph, evaluator.field, players, query.graph.statistics.mean)
        perturbed = coin_flips(self.samples, len(players.node_members), self.rate, seed)
        # Row 0 is the unperturbed graph.
        rows = np.concatenate([np.zeros((1, perturbed.shape[1]), dtype=bool), perturbed])
        scores = self._scores(query, evaluator, setup, rows)
        predictions = torch.from_numpy(scores[0])
        outputs, target = query.choose_outputs(predictions)
        ids = evaluator.field.ids[players.node_members]
        decrease = scores[:1] - scores[1:]
        networks = [self._learn(perturbed, decrease[:, output]) for output in outputs]
        row = outputs.index(target)
        return build_explanation(
            query, evaluator, self, seed,
            outputs=outputs,
            target=target,
            predictions=predictions,
            nodes=mask_as_credit(
                torch.from_numpy(ids), [torch.from_numpy(network.strength) for network in networks]
            ),
            meaning=(
                "Cramér's V between -1 and 1: how strongly a fall of the score depends on the "
                "node's features being replaced; 0 if that may be chance"
            ),
            games=(game_report("nodes", len(ids), self.samples + 1, "coin_flips"),),
            extra={"network": _as_dict(networks[row], ids)},
        )  # fmt: skip

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

    def _learn(self, perturbed: Bools, decrease: Floats) -> Network:
        changed: Bools = decrease > (decrease.mean() if self.drop is None else self.drop)
        if np.ptp(decrease) <= 1e-9:
            changed = np.zeros(len(decrease), dtype=bool)  # differences by rounding only
        return BayesNetwork(self.significance, self.blanket)(perturbed, changed)


def _as_dict(network: Network, ids: NDArray[np.int64]) -> dict[str, object]:
    """The network with the user's node ids, ready for JSON."""

    def named(name: str) -> str:
        return name if name == CHANGE else f"node {ids[int(name.split()[1])]}"

    return {
        "blanket": [int(ids[i]) for i in network.blanket],
        "edges": [[named(a), named(b)] for a, b in network.edges],
        "bic_gain": network.bic,
        "p_values": {
            str(int(node)): float(p) for node, p in zip(ids, network.p_values, strict=True)
        },
        "chance_of_change": [
            {"node": int(ids[i]), "left_alone": unperturbed, "perturbed": perturbed}
            for i, (unperturbed, perturbed) in zip(network.blanket, network.chances, strict=True)
        ],
    }
