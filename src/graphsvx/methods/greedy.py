"""Greedy: repeatedly remove the player with the largest effect until the prediction changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Bools
from graphsvx.core.players import FeatureChoice, Hops
from graphsvx.core.query import Query
from graphsvx.engine.choose import run_verified
from graphsvx.engine.evaluator import Evaluator
from graphsvx.estimators.direct import mask_as_credit
from graphsvx.games.base import require_memory
from graphsvx.games.graph_game import GraphGame
from graphsvx.generators import Isolate
from graphsvx.methods.base import Block, Blocks, Properties
from graphsvx.methods.baseline import (
    Baseline,
    Prediction,
    baseline_setup,
    build_explanation,
    game_report,
)
from graphsvx.methods.replay import coalitions_agree
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import Range


def one_less(on: Bools) -> tuple[Bools, np.ndarray]:
    """MASK: the coalitions [players on, players] with one more player off, and those players."""
    players_on = np.flatnonzero(on)
    coalitions = np.tile(on, (len(players_on), 1))
    coalitions[np.arange(len(players_on)), players_on] = False
    return coalitions, players_on


def _numbered(kind: str, ids: Tensor) -> list[str]:
    return [f"{kind} {i}" for i in ids.tolist()]


@dataclass(frozen=True)
class Greedy(Baseline):
    """Removes the most contributory feature or node until the prediction changes.

    The value of a player is the decrease of the score at its removal, 0 for players that were not
    removed. Values add up to prediction - base, where base is the score after the last removal.
    """

    players: Literal["both", "nodes", "features"] = "both"
    features: FeatureChoice = 0.25
    hops: Hops = None
    rounds: Annotated[int | None, Range(1)] = None
    """Maximum number of removals; None: until the prediction changes."""

    explains_typed_graphs: ClassVar[bool] = True
    blocks: ClassVar[Blocks] = Blocks(
        title="Greedy",
        mask=Block("M_N, M_F with one more player off in each round", one_less),
        gen=Block("Eq. 1-2: features to their mean, nodes without edges", Isolate),
        expl=Block("the loss of score at each removal", mask_as_credit),
        explains=("nodes", "features"),
        tasks=("node", "nodes", "graph"),
        properties=Properties(
            decomposable=True, general=True, robust=True, meaningful=True, selective=True
        ),
    )

    def explain(self, query: Query, seed: int) -> Explanation:
        """Remove players greedily for each explained output."""

        def holds(evaluator: Evaluator, result: tuple[Explanation, GraphGame, Bools]) -> bool:
            _, game, coalitions = result
            if not evaluator.checks.matches(game.full_output):
                return False
            rng, count = np.random.default_rng(seed), evaluator.checks.replays
            sample = rng.permutation(len(coalitions))[:count]
            return not count or coalitions_agree(game, coalitions[sample], rng)

        return run_verified(query, self.hops, seed, lambda e: self._run(query, e, seed), holds)[0]

    def _run(
        self, query: Query, evaluator: Evaluator, seed: int
    ) -> tuple[Explanation, GraphGame, Bools]:
        """The explanation, its game, and the coalitions after each removal."""
        setup = baseline_setup(query, evaluator, self.players, self.features, self.hops)
        players = setup.players
        game = GraphGame(query, evaluator, setup, Isolate(), "joint", rest_on=True)
        ends = game.end_states()
        game.record_output_of(int(ends[1]))
        empty, full = game.values(ends)
        prediction = Prediction.of(query, evaluator, full)
        rows, bases, removed = zip(
            *(self._remove(query, game, full, empty, output) for output in prediction.outputs),
            strict=True,
        )
        b, nodes = players.features, evaluator.field.ids[players.node_members]
        explanation = build_explanation(
            self,
            seed,
            prediction,
            bases=torch.tensor(bases, dtype=torch.float64),
            features=mask_as_credit(
                torch.from_numpy(players.feature_members), [row[:b] for row in rows]
            ),
            nodes=mask_as_credit(torch.from_numpy(nodes), [row[b:] for row in rows]),
            meaning=(
                "the score lost when the player was taken away, in the order of `removed`; "
                "0 for players that were still there when the prediction had changed"
            ),
            game=game_report("joint", game.players, game.calls, "one_less"),
        )
        names = [
            *(explanation.feature_credit.names or _numbered("feature", explanation.feature_ids)),
            *(explanation.node_credit.names or _numbered("node", explanation.node_ids)),
        ]
        everyone = np.arange(game.players)
        left = np.stack(
            [
                np.isin(everyone, order[:count], invert=True)
                for order in removed
                for count in range(len(order) + 1)
            ]
        )
        named = tuple(tuple(names[i] for i in order) for order in removed)
        return replace(explanation, removed=named), game, left

    def _remove(
        self, query: Query, game: GraphGame, full: Tensor, empty: Tensor, output: int
    ) -> tuple[Tensor, float, list[int]]:
        require_memory(game.memory, 3 * game.players**2, game.players, game.players)
        on: Bools = np.ones(game.players, dtype=bool)
        values = torch.zeros(game.players, dtype=torch.float64)
        score = full
        order: list[int] = []
        while on.any() and (self.rounds is None or len(order) < self.rounds):
            coalitions, removable = one_less(on)
            scores = game.values(game.states(coalitions))
            best = int(scores[:, output].argmin())
            if score[output] <= scores[best, output]:
                break  # no removal decreases the score any more
            values[removable[best]] = score[output] - scores[best, output]
            on[removable[best]] = False
            order.append(int(removable[best]))
            score = scores[best]
            if self._changed(query, score, full, empty, output):
                break
        return values, float(score[output]), order

    def _changed(
        self, query: Query, score: Tensor, full: Tensor, empty: Tensor, output: int
    ) -> bool:
        if query.model.scale != "value" and len(full) > 1:
            return int(score.argmax()) != int(full.argmax())
        # Regression has no class to change: stop at 90 % of the way to the empty coalition's score.
        return bool((score - full)[output].abs() >= 0.9 * (empty - full)[output].abs())
