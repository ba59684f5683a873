"""Random credit: the baseline that every explainer should outperform."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar

import torch

from graphsvx.core import players as choosing
from graphsvx.core.players import FeatureChoice, Sides
from graphsvx.core.query import Query
from graphsvx.estimators.direct import mask_as_credit
from graphsvx.generators import GameSetup
from graphsvx.generators.replace import Unchanged
from graphsvx.methods.base import Block, Blocks, Properties
from graphsvx.methods.local_graph import (
    build_explanation,
    game_report,
    local_graph_of,
    refuse_unless,
)
from graphsvx.methods.typed_baselines import baseline_setup, explain_players
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import Checked


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
class Random(Checked):
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

    def __call__(self, query: Query, seed: int) -> Explanation:
        """Draw a random value for every player and output."""
        if query.graph.has_types:
            return self._on_typed_graph(query, seed)
        refuse_unless(query, self, "node", "nodes", "graph")
        local_graph = local_graph_of(query, seed)
        predictions = local_graph.scores()
        outputs, target = query.choose_outputs(predictions)
        rng = _derive_rng(query, seed)
        field = local_graph.evaluator.field
        players = choosing.find_players(query.graph, field, None, self.features, self.players)
        node_ids = torch.from_numpy(field.ids[players.node_members])
        edge_ids = local_graph.edge_ids() if self.players == "edges" else torch.zeros(2, 0).long()
        scores = [
            [uniform(count, rng) for _ in outputs]
            for count in (len(players.feature_members), len(node_ids), edge_ids.shape[1])
        ]
        return build_explanation(
            query, local_graph.evaluator, self, seed,
            outputs=outputs,
            target=target,
            predictions=predictions,
            features=mask_as_credit(torch.from_numpy(players.feature_members), scores[0]),
            nodes=mask_as_credit(node_ids, scores[1]),
            edges=mask_as_credit(edge_ids, scores[2]),
            meaning="a random number in [0, 1], which means nothing",
            games=(game_report("random", sum(len(rows[0]) for rows in scores), 1, "uniform"),),
        )  # fmt: skip

    def _on_typed_graph(self, query: Query, seed: int) -> Explanation:
        rng = _derive_rng(query, seed)

        def draw(setup: GameSetup, outputs: tuple[int, ...]) -> torch.Tensor:
            players = setup.players
            count = players.features + players.nodes + players.edges
            return torch.stack([uniform(count, rng) for _ in outputs])

        return explain_players(
            query, self, seed,
            lambda evaluator: baseline_setup(query, evaluator, self.players, self.features),
            draw,
            lambda players, _: game_report("random", players, 1, "uniform"),
            "a random number in [0, 1], which means nothing",
        )  # fmt: skip
