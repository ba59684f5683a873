"""XGNN: what does the model think a graph of this class looks like? A generator is trained for it.

Model-level: the answer is a generated graph, not credit. It is asked through a graph question,
which names the model, the class, and with its features the candidate nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from graphsvx.core.query import Query
from graphsvx.errors import InputError, ModelError, UnsupportedError
from graphsvx.methods.baseline import Baseline, Block, Blocks, Properties, game_report
from graphsvx.methods.local_graph import model_restored, unperturbed_prediction
from graphsvx.results.details import FieldRecord, GeneratedGraph
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import MOST, Count, Range, Rate

MUTAG_VALENCES = (4, 2, 1, 1, 3, 1, 1, 2, 3, 1, 1, 1, 1, 2)
"""Bonds of C, O, Cl, H, N, F, Br, S, P, I, Na, K, Li, Ca: the order in MUTAG."""


@dataclass(frozen=True, eq=False)
class Grown:
    """G_t: the kinds of its nodes (positions among the candidates) and its undirected edges."""

    kinds: tuple[int, ...]
    edges: frozenset[tuple[int, int]] = frozenset()

    def ends(self) -> Tensor:
        """edge_index, both directions, in a fixed order."""
        pairs = sorted(self.edges)
        directed = pairs + [(v, u) for u, v in pairs]
        return torch.tensor(directed, dtype=torch.long).reshape(-1, 2).t()

    def allowed(self, most_nodes: int, valences: tuple[int, ...]) -> Tensor:
        """Which (start, end) an edge may join, [nodes, nodes + candidates].

        `valences`: the most edges at a node of each kind of candidates.
        """
        size = len(self.kinds)
        most, ends = torch.tensor(valences), self.ends()
        free = torch.bincount(ends[0], minlength=size) < most[list(self.kinds)]
        among = free[:, None] & free[None] & ~torch.eye(size, dtype=torch.bool)
        among[ends[0], ends[1]] = False
        new = free[:, None] & (most > 0)[None] & (size < most_nodes)
        return torch.cat([among, new], 1)

    def joined(self, start: int, end: int) -> Grown:
        """GEN: one more edge; an `end` beyond the nodes is a new node of kind end - nodes."""
        if end < len(self.kinds):
            return replace(self, edges=self.edges | {(min(start, end), max(start, end))})
        new = len(self.kinds)
        return Grown((*self.kinds, end - new), self.edges | {(start, new)})


class Policy(nn.Module):
    """MASK: where the next edge starts and ends; a GCN over graph and candidates, two MLPs."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.first = nn.Linear(features + 3, hidden)
        self.second = nn.Linear(hidden, hidden)
        self.start = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.end = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(
        self, graph: Grown, candidates: Tensor, allowed: Tensor, rng: torch.Generator
    ) -> tuple[int, int, Tensor]:
        """A drawn (start, end) among the allowed ones, and its log-probability."""
        size = len(graph.kinds)
        x = torch.cat([candidates[list(graph.kinds)], candidates])
        adjacency = torch.eye(len(x))
        ends = graph.ends()
        adjacency[ends[0], ends[1]] = 1.0
        # Besides its features: the node's degree, if it was added last (M_N), if it is new.
        place = torch.zeros(len(x), 3)
        place[:, 0] = adjacency.sum(1) - 1
        place[size - 1, 1] = 1.0
        place[size:, 2] = 1.0
        x = torch.cat([x, place.to(x)], 1)
        scale = adjacency.sum(1).rsqrt()
        adjacency = scale[:, None] * adjacency * scale[None]
        hidden = (adjacency @ self.first(x)).relu()
        hidden = (adjacency @ self.second(hidden)).relu()
        start_scores = self.start(hidden[:size])[:, 0].masked_fill(~allowed.any(1), -torch.inf)
        start, start_log = _draw(start_scores, rng)
        pairs = torch.cat([hidden, hidden[start].expand_as(hidden)], 1)
        end_scores = self.end(pairs)[:, 0].masked_fill(~allowed[start], -torch.inf)
        end, end_log = _draw(end_scores, rng)
        return start, end, start_log + end_log


def _draw(scores: Tensor, rng: torch.Generator) -> tuple[int, Tensor]:
    log = scores.log_softmax(0)
    if bool(log.isnan().any()):
        raise ModelError("training broke down: the policy gives NaN; use a smaller lr")
    action = int(torch.multinomial(log.detach().exp(), 1, generator=rng))
    return action, log[action]


@dataclass(frozen=True)
class XGNN(Baseline):
    """A graph that the model gives the class, grown edge by edge by a trained policy."""

    steps: Count = 12
    """Edges that are added."""
    nodes: Count = 8
    """At most so many nodes."""
    valences: tuple[Annotated[int, Range(0)], ...] | None = None
    """Most edges at a node of each candidate kind (`MUTAG_VALENCES`); None: `degree` for all."""
    degree: Count = 4
    candidates: tuple[tuple[float, ...], ...] | None = None
    """Feature vectors of the kinds of nodes; None: the distinct rows of data.x."""
    start: Annotated[int | None, Range(0)] = None
    """Kind of the first node; None: drawn anew for each episode."""
    episodes: Count = 100
    rollouts: Annotated[int, Range(0, MOST)] = 2
    """Completions from each state whose score is added to the reward; 0: its own episode's end."""
    lr: Rate = 0.01
    hidden: Annotated[int, Range(1, 10_000)] = 16
    tries: Count = 20
    """Graphs drawn from the trained policy, of which the best is returned."""

    blocks: ClassVar[Blocks] = Blocks(
        title="XGNN",
        mask=Block("M_E = A_t, M_N = the node added last: a policy, trained through f", Policy),
        gen=Block(
            "G_{t+1} = G_t with one more edge, perhaps to a new candidate node", Grown.joined
        ),
        expl=Block("the last graph G_T", Grown),
        explains=("graph",),
        tasks=("model",),
        meaning="no credit: `generated` is a graph that the model gives this class, and the "
        "prediction is that graph's",
        properties=Properties(general=True),
        source="Yuan et al. 2020",
        notes="validity rules are masks on actions, so that no invalid graph is ever made",
    )

    @staticmethod
    def molecules(**changes: Any) -> XGNN:
        """For MUTAG: one-hot atoms with their valences, grown from a carbon."""
        kinds = len(MUTAG_VALENCES)
        atoms = tuple(tuple(float(i == j) for j in range(kinds)) for i in range(kinds))
        defaults = {"candidates": atoms, "valences": MUTAG_VALENCES, "start": 0, "nodes": 12}
        return XGNN(**{**defaults, **changes})

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("valences", "candidates"):
            if vars(self)[name] == ():
                raise InputError(f"{name} must be one entry for each kind of node, got none")

    def explain(self, query: Query, seed: int) -> Explanation:
        """Train the policy, then let it draw.

        Raises:
            UnsupportedError: all outputs are asked for, or the model takes attributes.
            InputError: `valences` or `start` do not fit the candidates.

        """
        if query.all_outputs:
            raise UnsupportedError('XGNN explains one class at a time; leave targets="all" out')
        for extra in sorted({"edge_attr"} & query.model.takes | {*query.graph.attributes}):
            raise UnsupportedError(
                f"XGNN grows nodes and edges without attributes, got a model that takes {extra}; "
                f"wrap it in a module that fills them in"
            )
        candidates = self._candidates(query)
        kinds, valences = len(candidates), self.valences or (self.degree,) * len(candidates)
        if len(valences) != kinds:
            raise InputError(
                f"valences must have one entry for each of {kinds} candidates, got {len(valences)}"
            )
        if self.start is not None and self.start >= kinds:
            raise InputError(f"start must be from 0 to {kinds - 1}, got {self.start}")
        prediction = unperturbed_prediction(query, seed)
        torch.manual_seed(seed)
        with model_restored(query.model.call):
            policy = Policy(candidates.shape[1], self.hidden)
            rng = torch.Generator().manual_seed(seed)
            growth = _Growth(self, query, candidates, valences, prediction.target, policy, rng)
            before, _ = growth.draws()
            history = growth.train()
            after, graphs = growth.draws()
        score, best = max(
            zip(after, graphs, strict=True), key=lambda scored: (scored[0], -len(scored[1].edges))
        )
        ends, x, ids = best.ends(), candidates[list(best.kinds)], torch.arange(len(best.kinds))
        hops = torch.zeros_like(ids)
        return self.record(
            seed,
            replace(prediction, scores=growth.scores([best])[0]),
            game=game_report("growth", len(candidates), growth.calls, "Policy"),
            kind="model",
            field=FieldRecord(ids, hops, ends, torch.tensor(best.kinds), len(ids), x.shape[1]),
            generated=GeneratedGraph(
                kinds=best.kinds,
                x=tuple(map(tuple, x.tolist())),
                edge_index=(tuple(ends[0].tolist()), tuple(ends[1].tolist())),
                score=score,
                mean_score_untrained=float(np.mean(before)),
                mean_score_trained=float(np.mean(after)),
                history=tuple(history),
            ),
        )

    def _candidates(self, query: Query) -> Tensor:
        if self.candidates is None:
            # MUTAG's and BA-2motifs' nodes have few distinct rows; continuous features do not.
            rows = torch.unique(query.graph.x.detach().cpu(), dim=0)
            if len(rows) > 64:
                raise InputError(
                    f"data.x has {len(rows)} distinct rows, too many kinds of nodes; say which "
                    f"ones to use: XGNN(candidates=((...), ...))"
                )
            # torch.unique sorts rows ascending; one-hot kinds then come last first.
            return rows.flip(0)
        rows = torch.tensor(self.candidates, dtype=query.graph.x.dtype)
        if rows.dim() != 2 or rows.shape[1] != query.graph.num_features:
            raise InputError(
                f"candidates must be vectors of {query.graph.num_features} features, "
                f"got shape {list(rows.shape)}"
            )
        return rows


@dataclass(eq=False)
class _Growth:
    """Where graphs grow: episodes, their scores, and the policy gradient."""

    settings: XGNN
    query: Query
    candidates: Tensor
    valences: tuple[int, ...]
    target: int
    policy: Policy
    rng: torch.Generator
    calls: int = 0

    def grow(self, graph: Grown | None = None, done: int = 0) -> tuple[list[Grown], list[Tensor]]:
        """`graph` with `done` edges, by default a first node, and what it becomes edge by edge."""
        settings = self.settings
        if graph is None:
            start = settings.start
            if start is None:
                start = int(torch.randint(len(self.candidates), (1,), generator=self.rng))
            graph = Grown((start,))
        graphs, logs = [graph], list[Tensor]()
        while done + len(logs) < settings.steps:
            allowed = graphs[-1].allowed(settings.nodes, self.valences)
            if not bool(allowed.any()):
                break
            start, end, log = self.policy(graphs[-1], self.candidates.float(), allowed, self.rng)
            graphs.append(graphs[-1].joined(start, end))
            logs.append(log)
        return graphs, logs

    @torch.no_grad()
    def scores(self, graphs: Sequence[Grown]) -> Tensor:
        listed = [Data(self.candidates[list(graph.kinds)], graph.ends()) for graph in graphs]
        batch: Any = Batch.from_data_list(listed).to(self.query.graph.x.device)
        self.calls += len(graphs)
        weights = torch.ones(batch.num_edges).to(batch.x)
        out = self.query.model(batch.x, batch.edge_index, weights, None, batch.batch)
        return self.query.scores(out[:, None, :]).cpu()

    @torch.no_grad()
    def draws(self) -> tuple[list[float], list[Grown]]:
        graphs = [self.grow()[0][-1] for _ in range(self.settings.tries)]
        return self.scores(graphs)[:, self.target].tolist(), graphs

    def train(self) -> list[float]:
        """REINFORCE, rewards against their moving average; the final score of every episode."""
        optimiser = torch.optim.Adam(self.policy.parameters(), lr=self.settings.lr)
        mean, square, history = 0.0, 0.0, []
        for episode in range(self.settings.episodes):
            graphs, logs = self.grow()
            if not logs:
                continue
            reward = self.rewards(graphs[1:])
            history.append(float(self.scores(graphs[-1:])[:, self.target]))
            share = 1.0 if episode == 0 else 0.1
            mean += share * (float(reward.mean()) - mean)
            square += share * (float((reward**2).mean()) - square)
            spread = max(square - mean**2, 0.0) ** 0.5 + 1e-3
            gain = ((reward - mean) / spread).to(logs[0])
            loss = -(torch.stack(logs) * gain).sum()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        return history

    def worth(self, graphs: Sequence[Grown]) -> Tensor:
        """What a graph is rewarded for: the log of a probability, any other score as it is.

        Far from the class all probabilities are next to 0, but not their logarithms.
        """
        scores = self.scores(graphs)[:, self.target]
        return scores.clamp(min=1e-30).log() if self.query.model.scale == "probability" else scores

    @torch.no_grad()
    def rewards(self, graphs: Sequence[Grown]) -> Tensor:
        """f(G_{t+1}) plus what completions of G_{t+1} come to on average."""
        rollouts = range(self.settings.rollouts)
        ends = [
            self.grow(graph, done)[0][-1]
            for done, graph in enumerate(graphs, start=1)
            for _ in rollouts
        ] or graphs[-1:]
        final = self.worth(ends).reshape(-1, max(1, len(rollouts))).mean(1)
        return self.worth(graphs) + final
