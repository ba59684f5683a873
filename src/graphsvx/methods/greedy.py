"""Greedy: the player with the largest effect is removed, until the prediction changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Bools, Ids
from graphsvx.core.players import FeatureChoice, Hops
from graphsvx.core.query import Query
from graphsvx.engine.choose import run_verified
from graphsvx.engine.evaluator import Evaluator
from graphsvx.estimators.direct import mask_as_credit
from graphsvx.games import GraphGame, require_memory
from graphsvx.generators import Isolate
from graphsvx.methods.baseline import Baseline, Block, Blocks, Properties, game_report
from graphsvx.methods.local_graph import baseline_setup
from graphsvx.methods.pipeline import Prediction
from graphsvx.methods.playing import coalitions_agree
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import Range

_Run = tuple[Explanation, GraphGame, Bools]
"""The explanation, its game, and the coalitions after each removal."""


def one_less(on: Bools) -> tuple[Bools, Ids]:
    """MASK: the coalitions [players on, players] with one more player off, and those players."""
    players_on = np.flatnonzero(on)
    coalitions = np.tile(on, (len(players_on), 1))
    coalitions[np.arange(len(players_on)), players_on] = False
    return coalitions, players_on


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
        meaning="the score lost when the player was taken away, in the order of `removed`; "
        "0 for players that were still there when the prediction had changed",
        properties=Properties(
            decomposable=True, general=True, robust=True, meaningful=True, selective=True
        ),
    )

    def explain(self, query: Query, seed: int) -> Explanation:
        """Remove players greedily for each explained output."""

        def holds(evaluator: Evaluator, result: _Run) -> bool:
            _, game, coalitions = result
            if not evaluator.checks.matches(game.full_output):
                return False
            rng, count = np.random.default_rng(seed), evaluator.checks.replays
            sample = rng.permutation(len(coalitions))[:count]
            return not count or coalitions_agree(game, coalitions[sample], rng)

        return run_verified(query, self.hops, seed, lambda e: self._run(query, e, seed), holds)[0]

    def _run(self, query: Query, evaluator: Evaluator, seed: int) -> _Run:
        setup = baseline_setup(evaluator, self.players, self.features, self.hops)
        game = GraphGame(query, evaluator, setup, Isolate(), "joint", rest_on=True)
        empty, full = game.values(game.end_states())
        prediction = Prediction.of(query, evaluator, full)
        require_memory(game.memory, 3 * game.players**2, game.players, game.players)
        coalitions = list[Bools]()
        losses, bases, removed = zip(
            *(self._remove(game, full, empty, k, coalitions) for k in prediction.outputs),
            strict=True,
        )
        values = torch.stack(losses)
        explanation = self.record(
            seed,
            prediction,
            players=setup.players,
            credit=(values, torch.full_like(values, torch.nan)),
            bases=torch.stack(bases),
            game=game_report("joint", game.players, game.calls, "one_less"),
        )
        names = explanation.player_names
        named = tuple(tuple(names[i] for i in order) for order in removed)
        return replace(explanation, removed=named), game, np.stack(coalitions)

    def _remove(
        self, game: GraphGame, full: Tensor, empty: Tensor, output: int, left: list[Bools]
    ) -> tuple[Tensor, Tensor, list[int]]:
        """The loss of each player, the score after the last removal, and who was removed.

        The coalitions that are left, the full one first, are added to `left`.
        """
        on: Bools = np.ones(game.players, dtype=bool)
        losses = torch.zeros(game.players, dtype=torch.float64)
        score, order = full, list[int]()
        left.append(on.copy())
        while on.any() and len(order) < (self.rounds or game.players):
            coalitions, removable = one_less(on)
            scores = game.values(game.states(coalitions))
            best = int(scores[:, output].argmin())
            if score[output] <= scores[best, output]:
                break  # no removal decreases the score any more
            player = int(removable[best])
            losses[player], on[player] = score[output] - scores[best, output], False
            order.append(player)
            left.append(on.copy())
            score = scores[best]
            if game.query.model.scale != "value" and len(full) > 1:
                changed = bool(score.argmax() != full.argmax())
            else:
                # Regression has no class to change: stop at 90 % of the way to the empty
                # coalition's score.
                moved, most = (score - full)[output], (empty - full)[output]
                changed = bool(moved.abs() >= 0.9 * most.abs())
            if changed:
                break
        return losses, score[output].double(), order
