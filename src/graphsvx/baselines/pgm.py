"""PGM-Explainer: a probabilistic graphical model of which nodes the prediction hangs on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from graphsvx import players as choosing
from graphsvx.baselines.blocks import Block, Blocks, Properties
from graphsvx.baselines.stage import play, record, refuse_unless, report
from graphsvx.constraints import MOST, Checked, Count, Range
from graphsvx.engine.states import Bools
from graphsvx.engine.survey import Survey, survey
from graphsvx.errors import BudgetError
from graphsvx.explain.bayes import CHANGE, BayesNetwork, Network
from graphsvx.explain.direct import direct
from graphsvx.explanation import Explanation
from graphsvx.extras import package
from graphsvx.generators import Scene
from graphsvx.generators.replace import ReplaceRows
from graphsvx.players import Hops
from graphsvx.query import Query

Floats = NDArray[np.float64]


def coin_flips(rows: int, players: int, rate: float, seed: int) -> Bools:
    """MASK: each node is perturbed in each row with probability `rate`."""
    return np.random.default_rng(seed).random((rows, players)) < rate


@dataclass(frozen=True)
class PGMExplainer(Checked):
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
        """Perturb, test, learn."""
        refuse_unless(query, self, "node", "nodes", "graph")
        package("pgmpy.ci_tests")
        found = survey(query, self.hops, seed)
        here = choosing.find(query.graph, found.field, self.hops, "all", "nodes")
        scene = Scene(query.graph, found.field, here, query.graph.statistics.mean)
        perturbed = coin_flips(self.samples, len(here.node_members), self.rate, seed)
        # Row 0 is the graph as it is.
        rows = np.concatenate([np.zeros((1, perturbed.shape[1]), dtype=bool), perturbed])
        scores = self._scores(query, found, scene, rows)
        predictions = torch.from_numpy(scores[0])
        outputs, target = query.choose(predictions)
        ids = found.field.ids[here.node_members]
        fell = scores[:1] - scores[1:]
        networks = [self._learn(perturbed, fell[:, output]) for output in outputs]
        row = outputs.index(target)
        return record(
            query, found, self, seed,
            outputs=outputs,
            target=target,
            predictions=predictions,
            nodes=direct(
                torch.from_numpy(ids), [torch.from_numpy(one.strength) for one in networks]
            ),
            meaning=(
                "Cramér's V between -1 and 1: how strongly a fall of the score depends on the "
                "node's features being replaced; 0 if that may be chance"
            ),
            games=(report("nodes", len(ids), self.samples + 1, "coin_flips"),),
            extra={"network": _as_dict(networks[row], ids)},
        )  # fmt: skip

    def _scores(self, query: Query, found: Survey, scene: Scene, rows: Bools) -> Floats:
        step = max(1, query.memory // (32 * max(1, found.field.size)))
        none = np.zeros((len(rows), 0), dtype=bool)
        parts = [
            play(query, found, ReplaceRows(self.by)(scene, none[i : i + step], ~rows[i : i + step]))
            for i in range(0, len(rows), step)
        ]
        scores: Floats = torch.cat(parts).numpy()
        return scores

    def _learn(self, perturbed: Bools, fell: Floats) -> Network:
        changed: Bools = fell > (fell.mean() if self.drop is None else self.drop)
        if np.ptp(fell) <= 1e-9:
            changed = np.zeros(len(fell), dtype=bool)  # rounding is no change
        return BayesNetwork(self.significance, self.blanket)(perturbed, changed)


def _as_dict(network: Network, ids: NDArray[np.int64]) -> dict[str, object]:
    """The network in the user's node ids, ready for JSON."""

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
            {"node": int(ids[i]), "left_alone": alone, "perturbed": with_it}
            for i, (alone, with_it) in zip(network.blanket, network.chances, strict=True)
        ],
    }
