"""PGM-Explainer and Random: baselines over the players of GraphSVX."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Bools, Floats, Ids
from graphsvx.core.players import FeatureChoice, Hops, Sides
from graphsvx.core.query import Query
from graphsvx.errors import BudgetError
from graphsvx.estimators.bayes import CHANGE, BayesNetwork, Network
from graphsvx.estimators.direct import mask_as_credit
from graphsvx.games.base import require_memory
from graphsvx.generators.replace import ReplaceRows, Unchanged
from graphsvx.methods.baseline import Baseline, Block, Blocks, Properties, game_report
from graphsvx.methods.local_graph import (
    baseline_setup,
    played_field,
    scores_in_parts,
    unperturbed_prediction,
)
from graphsvx.methods.pipeline import Prediction
from graphsvx.results.details import BayesianNetwork, ChangeProbability
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import MOST, Count, Range

# --- PGM-Explainer: a probabilistic graphical model of which nodes the prediction hangs on ----


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
        meaning="Cramér's V between -1 and 1: how strongly a fall of the score depends on the "
        "node's features being replaced; 0 if that may be chance",
        properties=Properties(general=True, selective=True),
        source="Vu and Thai 2020",
        package="pgmpy",
    )

    def explain(self, query: Query, seed: int) -> Explanation:
        """Perturb, test, learn."""
        evaluator, setup = played_field(query, seed, "nodes", hops=self.hops)
        ids = setup.field.ids[setup.players.node_members]
        require_memory(query.memory, 4 * self.samples * len(ids), self.samples, len(ids))
        perturbed = coin_flips(self.samples, len(ids), self.rate, seed)
        # Row 0 is the graph as it is.
        on = np.concatenate([np.ones((1, len(ids)), dtype=bool), ~perturbed])
        no_features, generator = np.zeros((len(on), 0), dtype=bool), ReplaceRows(self.by)
        scores = scores_in_parts(
            evaluator,
            lambda part: generator(setup, no_features[part], on[part]),
            on,
            32 * setup.field.size,
        )
        prediction = Prediction.of(query, evaluator, scores[0])
        fell: Floats = (scores[:1] - scores[1:]).numpy()
        networks = [self._learn(perturbed, fell[:, output]) for output in prediction.outputs]
        strengths = [torch.from_numpy(network.strength) for network in networks]
        nodes = mask_as_credit(torch.from_numpy(ids), strengths)
        report = game_report("nodes", len(ids), self.samples + 1, "coin_flips")
        network = _in_user_ids(networks[prediction.row], ids)
        return self.record(seed, prediction, nodes=nodes, game=report, network=network)

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
        p_values=dict(zip(map(str, ids.tolist()), network.p_values.tolist(), strict=True)),
        chance_of_change=tuple(
            ChangeProbability(int(ids[i]), *chances)
            for i, chances in zip(network.blanket, network.chances, strict=True)
        ),
    )


# --- Random: what every explainer should outperform -------------------------------------------


def uniform(players: int, rng: torch.Generator) -> Tensor:
    """A mask with every entry uniform in [0, 1]."""
    return torch.rand(players, generator=rng, dtype=torch.float64)


def _rng_of(query: Query, seed: int) -> torch.Generator:
    """A separate random stream for each query.

    With the same stream for all queries, players at the same position would get the same values,
    and a mean over queries would not be a mean over independent draws.
    """
    digest = hashlib.sha256(f"{seed} {query.kind} {query.centres.tolist()}".encode())
    if query.kind == "graph":
        digest.update(query.graph.edge_index.cpu().numpy().tobytes())
    return torch.Generator().manual_seed(int.from_bytes(digest.digest()[:7], "little"))


@dataclass(frozen=True)
class Random(Baseline):
    """Uniform random numbers in [0, 1] for the players of GraphSVX."""

    players: Sides = "both"
    features: FeatureChoice = 0.25

    explains_typed_graphs: ClassVar[bool] = True
    blocks: ClassVar[Blocks] = Blocks(
        title="Random",
        mask=Block("M_N, M_F (or M_E) uniform in [0, 1]", uniform),
        gen=Block("unchanged", Unchanged),
        expl=Block("the mask itself", mask_as_credit),
        explains=("nodes", "features", "edges"),
        meaning="a random number in [0, 1], which means nothing",
        properties=Properties(general=True),
    )

    def explain(self, query: Query, seed: int) -> Explanation:
        """Draw a random value for every player and output."""
        prediction, rng = unperturbed_prediction(query, seed), _rng_of(query, seed)
        players = baseline_setup(prediction.evaluator, self.players, self.features).players
        counts = players.features, players.nodes, players.edges
        sides = [torch.stack([uniform(count, rng) for _ in prediction.outputs]) for count in counts]
        values = torch.cat(sides, 1)
        credit = values, torch.full_like(values, torch.nan)
        report = game_report("random", values.shape[1], 1, "uniform")
        return self.record(seed, prediction, players=players, credit=credit, game=report)
