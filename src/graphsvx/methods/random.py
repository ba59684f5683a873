"""Random credit: the baseline that every explainer should outperform."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar

import torch

from graphsvx.core.players import FeatureChoice, Sides
from graphsvx.core.query import Query
from graphsvx.estimators.direct import mask_as_credit
from graphsvx.generators.replace import Unchanged
from graphsvx.methods.base import Block, Blocks, Properties
from graphsvx.methods.baseline import Baseline, baseline_setup, build_explanation, game_report
from graphsvx.methods.build_explanation import credits
from graphsvx.methods.local_graph import unperturbed_prediction
from graphsvx.results.explanation import Explanation


def uniform(players: int, rng: torch.Generator) -> torch.Tensor:
    """A mask with every entry uniform in [0, 1]."""
    return torch.rand(players, generator=rng, dtype=torch.float64)


def _derive_rng(query: Query, seed: int) -> torch.Generator:
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
        tasks=("node", "nodes", "graph"),
        properties=Properties(general=True),
    )

    def explain(self, query: Query, seed: int) -> Explanation:
        """Draw a random value for every player and output."""
        prediction, rng = unperturbed_prediction(query, seed), _derive_rng(query, seed)
        evaluator, outputs = prediction.evaluator, prediction.outputs
        players = baseline_setup(query, evaluator, self.players, self.features).players
        counts = players.features, players.nodes, players.edges
        sides = [torch.stack([uniform(count, rng) for _ in outputs]) for count in counts]
        values = torch.cat(sides, 1)
        features, nodes, edges = credits(
            evaluator.field, players, values, torch.full_like(values, torch.nan)
        )
        return build_explanation(
            self,
            seed,
            prediction,
            features=features,
            nodes=nodes,
            edges=edges,
            players=players,
            meaning="a random number in [0, 1], which means nothing",
            game=game_report("random", values.shape[1], 1, "uniform"),
        )
