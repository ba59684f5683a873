"""Random credit: the floor that every explainer has to beat."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar

import torch

from graphsvx import players as choosing
from graphsvx.baselines.blocks import Block, Blocks, Properties
from graphsvx.baselines.stage import prepare, record, refuse_unless, report
from graphsvx.constraints import Checked
from graphsvx.explain.direct import direct
from graphsvx.explanation import Explanation
from graphsvx.generators.replace import Unchanged
from graphsvx.players import FeatureChoice, Sides
from graphsvx.query import Query


def uniform(players: int, rng: torch.Generator) -> torch.Tensor:
    """A mask with every entry uniform in [0, 1]."""
    return torch.rand(players, generator=rng, dtype=torch.float64)


def _stream(query: Query, seed: int) -> torch.Generator:
    """A stream of its own for every question: with one for all, the players in the same place
    would be lucky everywhere, and a mean over many questions would be no mean over many draws."""
    asked = hashlib.sha256(f"{seed} {query.kind} {query.centres.tolist()}".encode())
    if query.kind == "graph":
        asked.update(query.graph.edge_index.cpu().numpy().tobytes())
    return torch.Generator().manual_seed(int.from_bytes(asked.digest()[:7], "little"))


@dataclass(frozen=True)
class Random(Checked):
    """Uniform numbers in [0, 1] for the same players as GraphSVX's (or for edges)."""

    players: Sides = "both"
    features: FeatureChoice = 0.25

    blocks: ClassVar[Blocks] = Blocks(
        title="Random",
        mask=Block("M_N, M_F (or M_E) uniform in [0, 1]", uniform),
        gen=Block("unchanged", Unchanged),
        expl=Block("the mask itself", direct),
        explains=("nodes", "features", "edges"),
        tasks=("node", "nodes", "graph"),
        properties=Properties(
            decomposable=False,
            general=True,
            robust=False,
            meaningful=False,
            selective=False,
            contrastive=False,
        ),
    )

    def __call__(self, query: Query, seed: int) -> Explanation:
        """Draw."""
        refuse_unless(query, self, "node", "nodes", "graph")
        stage = prepare(query, seed)
        predictions = stage.scores()
        outputs, target = query.choose(predictions)
        rng = _stream(query, seed)
        area = stage.found.field
        here = choosing.find(query.graph, area, None, self.features, self.players)
        node_ids = torch.from_numpy(area.ids[here.node_members])
        edge_ids = stage.edge_ids() if self.players == "edges" else torch.zeros(2, 0).long()
        drawn = [
            [uniform(count, rng) for _ in outputs]
            for count in (len(here.feature_members), len(node_ids), edge_ids.shape[1])
        ]
        return record(
            query, stage.found, self, seed,
            outputs=outputs,
            target=target,
            predictions=predictions,
            features=direct(torch.from_numpy(here.feature_members), drawn[0]),
            nodes=direct(node_ids, drawn[1]),
            edges=direct(edge_ids, drawn[2]),
            meaning="a random number in [0, 1], which means nothing",
            games=(report("random", sum(len(rows[0]) for rows in drawn), 1, "uniform"),),
        )  # fmt: skip
