"""Search for the smallest sets of players that keep a prediction, or change it.

Sets are tried by size, so that the first one found is a smallest one; where connected sets decide
(`Game.player_edges`), only these are tried. Beyond the budget the search goes on greedily and the
answer says up to which size it is a proof. Every answer is a plain call of the model on the whole
graph; if that disagrees with the evaluator, the search is repeated with a slower one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations, islice
from math import comb
from typing import Annotated, Literal

import numpy as np
from torch import Tensor

from graphsvx.core.arrays import Bools, Floats, Ids
from graphsvx.core.modules import evaluation_mode, modules
from graphsvx.core.query import Query
from graphsvx.core.row_ids import RowIds
from graphsvx.engine.choose import choose_evaluator, run_verified
from graphsvx.engine.evaluator import Evaluator
from graphsvx.errors import InputError
from graphsvx.games.lookup_game import MOST_LOOK_UPS, LookupGame
from graphsvx.methods.pipeline import PlayableGame
from graphsvx.methods.playing import Plan
from graphsvx.results.details import PlayerSet
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import MOST, Range, checked
from graphsvx.utils.exclusive import exclusive

Share = Annotated[float, Range(0, 1)]
_Budget = Annotated[int, Range(2, MOST)]
_BLOCK = 1 << 12  # coalitions that are evaluated together


@dataclass(frozen=True, eq=False)
class Question:
    """How the games of an explanation are played, to evaluate sets of its players later."""

    plan: Plan

    @property
    def query(self) -> Query:
        """What was explained."""
        return self.plan.query

    def sufficient(
        self, explanation: Explanation, share: float | Literal["class"], budget: int
    ) -> PlayerSet:
        """The smallest set of players that keeps the score (or the class) by itself."""
        if share != "class":
            share = checked(share, Share, "share")
        target = explanation.target
        prediction, base = explanation.prediction, explanation.base
        if share == "class":
            self._require_classes()
            return self._smallest(
                explanation,
                budget,
                "sufficient",
                _class_margin(target, 1),
                explanation.class_name(target),
            )
        least = share * prediction
        if self.query.model.scale != "probability":
            least = base + share * (prediction - base)
        sign = 1.0 if prediction >= base or self.query.model.scale == "probability" else -1.0
        slack = 1e-9 * max(abs(prediction), abs(base))

        def margin(scores: Floats) -> Floats:
            return sign * (scores[:, target] - least) + slack

        bound = "at least" if sign > 0 else "at most"
        return self._smallest(explanation, budget, "sufficient", margin, f"{bound} {least:.4g}")

    def flip(self, explanation: Explanation, budget: int) -> PlayerSet:
        """The smallest set of players whose removal changes the predicted class."""
        self._require_classes()
        predicted = self._predicted(explanation)
        return self._smallest(
            explanation,
            budget,
            "flip",
            _class_margin(predicted, -1),
            f"not {explanation.class_name(predicted)}",
        )

    def scores(self, coalitions: Bools, target: int) -> Floats:
        """Scores of coalitions of the game of nodes (or edges, or features), [coalitions]."""
        with self._ready():
            game = self._game()
            return game.values(game.states(coalitions))[:, target].numpy()

    def _game(self) -> PlayableGame:
        """The game of nodes (or edges, or features), not evaluated."""
        evaluator = choose_evaluator(self.query, self.plan.kind.hops, self.plan.seed)
        return self.plan.games(evaluator)[1][-1]

    def players(self, explanation: Explanation) -> int:
        """Number of players of that game."""
        features, total = explanation.feature_credit.players, len(explanation.player_names)
        return total - features if total > features else features

    def _predicted(self, explanation: Explanation) -> int:
        """The class that the model predicts, whichever one is explained."""
        if len(explanation.outputs) > 1:
            return explanation.outputs[int(explanation.predictions.argmax())]
        if self.query.target is None:
            return explanation.target
        with self._ready():
            game = self._game()
            everyone = np.ones(game.players, dtype=bool)
            return int(_plain_scores(self.query, game, everyone)[0].argmax())

    @contextmanager
    def _ready(self) -> Iterator[None]:
        """No other explanation is computed meanwhile, and the model is in evaluation mode."""
        with (
            exclusive(),
            evaluation_mode([*self.query.model.submodules, *modules(self.query.decoder)]),
        ):
            yield

    def _require_classes(self) -> None:
        if self.query.model.scale == "value":
            raise InputError('a model with scale="value" has no classes; use sufficient(0.9)')

    def _smallest(
        self,
        explanation: Explanation,
        budget: int,
        question: Literal["sufficient", "flip"],
        margin: Callable[[Floats], Floats],
        expected: str,
    ) -> PlayerSet:
        budget = checked(budget, _Budget, "budget")
        first = len(explanation.player_names)

        def run(evaluator: Evaluator) -> tuple[_Answer, PlayableGame]:
            game = self.plan.games(evaluator)[1][-1]
            game.coalitions_for(budget)
            search = _Search(game, question == "flip", margin, budget)
            return search.smallest(), game

        def holds(evaluator: Evaluator, result: tuple[_Answer, PlayableGame]) -> bool:  # noqa: ARG001  (a check's arguments)
            answer, game = result
            if not answer.found:
                return True
            return bool(margin(_plain_scores(self.query, game, answer.coalition).numpy())[0] > 0)

        with self._ready():
            answer, game = run_verified(self.query, self.plan.kind.hops, self.plan.seed, run, holds)
            scores = _plain_scores(self.query, game, answer.coalition)[0]
        selected = ~answer.coalition if question == "flip" else answer.coalition
        members = np.flatnonzero(selected)
        # The game of nodes comes last, after that of features.
        positions = tuple((members + first - game.players).tolist()) if answer.found else ()
        names = explanation.player_names
        return PlayerSet(
            question=question,
            players=tuple(names[position] for position in positions),
            positions=positions,
            found=answer.found,
            score=float(scores[explanation.target]),
            predicted=int(scores.argmax()),
            wanted=expected,
            none_below=answer.none_below,
            calls=game.calls,
        )


def _class_margin(target: int, sign: int) -> Callable[[Floats], Floats]:
    """How far the target is ahead of all other outputs (sign 1), or behind one (sign -1).

    Of equal scores argmax decides, as in the model's own prediction: the margin is never 0.
    """
    least = np.finfo(np.float64).tiny

    def margin(scores: Floats) -> Floats:
        ahead = scores[:, target] - np.delete(scores, target, axis=1).max(1)
        wins = scores.argmax(1) == target
        return sign * np.where(wins, np.maximum(ahead, least), np.minimum(ahead, -least))

    return margin


def _plain_scores(query: Query, game: PlayableGame, coalition: Bools) -> Tensor:
    """Scores of one coalition from a plain call on the whole graph, [1, outputs]."""
    field, perturbation = game.perturbed(coalition[None])
    return query.scores(game.evaluator.plain(field).evaluate(field, perturbation)).cpu()


@dataclass(frozen=True, eq=False)
class _Answer:
    coalition: Bools
    found: bool
    none_below: int


@dataclass(frozen=True, eq=False)
class _Search:
    """Sets by size: switched on alone, or switched off alone."""

    game: PlayableGame
    off: bool
    margin: Callable[[Floats], Floats]
    budget: int

    def smallest(self) -> _Answer:
        """A smallest set with a positive margin, or the best that a greedy search finds."""
        players, edges = self.game.players, self.game.player_edges()
        sets = np.zeros((1, players), dtype=bool)
        for size in range(players + 1):
            best, score = self._best(sets)
            if score > 0:
                return _Answer(self._coalition(best), True, size)
            larger = self._all_of_size(size + 1) if edges is None else self._extended(sets, edges)
            if larger is None:
                return self._greedy(size + 1)
            if not len(larger):
                break
            sets = larger
        return _Answer(np.ones(players, dtype=bool), False, players + 1)

    def _coalition(self, members: Bools) -> Bools:
        return ~members if self.off else members

    def _best(self, sets: Bools) -> tuple[Bools, float]:
        """The set with the largest margin; the first of equal ones."""
        margins = self._margins(sets)
        best = int(margins.argmax())
        return sets[best], float(margins[best])

    def _margins(self, sets: Bools) -> Floats:
        parts = [
            self.margin(self.game.values(self.game.states(self._coalition(part))).numpy())
            for part in np.split(sets, range(_BLOCK, len(sets), _BLOCK))
        ]
        return np.concatenate(parts)

    def _left(self) -> int:
        """Sets that the budget still allows."""
        if isinstance(self.game, LookupGame):
            return self.budget * MOST_LOOK_UPS - self.game.looked_up
        return self.budget - self.game.calls

    def _all_of_size(self, size: int) -> Bools | None:
        """All sets of a size; None if the budget does not allow them."""
        players = self.game.players
        count = comb(players, size)
        if count > self._left():
            return None
        sets = np.zeros((count, players), dtype=bool)
        members = np.array([*combinations(range(players), size)], dtype=np.int64)
        if size <= players:
            np.put_along_axis(sets, members.reshape(count, size), True, axis=1)
        return sets

    def _extended(self, sets: Bools, edges: Bools) -> Bools | None:
        """Sets with one player more that can differ from all smaller ones.

        On: a neighbour of the set. Off: a player that is still reached, if all others of the set
        are still next to what is reached.
        """
        reached, adjacent = _reach(self._coalition(sets), edges, self.game.reach)
        row, player = np.nonzero(reached & ~sets if self.off else adjacent)
        if len(row) > 8 * max(1, self._left()):
            return None
        larger = sets[row]
        larger[np.arange(len(row)), player] = True
        _, new = RowIds().add(larger)
        larger = larger[new]
        if self.off and len(larger):
            _, adjacent = _reach(~larger, edges, self.game.reach)
            larger = larger[(adjacent | ~larger).all(1)]
        return larger if len(larger) <= self._left() else None

    def _greedy(self, none_below: int) -> _Answer:
        """Grow by the best margin; then drop one, or swap two for one, while it still holds."""
        players = self.game.players
        members = np.zeros(players, dtype=bool)
        while not self._holds(members):
            if members.all():
                return _Answer(np.ones(players, dtype=bool), False, none_below)
            members, _ = self._best(_with_one_changed(members, np.flatnonzero(~members)))
        better = True
        while better:
            better = False
            fewer = _with_one_changed(members, np.flatnonzero(members))
            for candidates in (fewer, _two_for_one(members)):
                if len(candidates):
                    best, score = self._best(candidates)
                    if score > 0:
                        members, better = best, True
                        break
        return _Answer(self._coalition(members), True, none_below)

    def _holds(self, members: Bools) -> bool:
        return float(self._margins(members[None])[0]) > 0


def _with_one_changed(members: Bools, players: Ids) -> Bools:
    """The set with one of these players more (or less), for each of them."""
    sets = np.repeat(members[None], len(players), 0)
    sets[np.arange(len(players)), players] ^= True
    return sets


def _two_for_one(members: Bools, most: int = 2000) -> Bools:
    swaps = (
        (pair, new)
        for pair in combinations(np.flatnonzero(members).tolist(), 2)
        for new in np.flatnonzero(~members).tolist()
    )
    sets = []
    for pair, new in islice(swaps, most):
        swapped = members.copy()
        swapped[list(pair)] = False
        swapped[new] = True
        sets.append(swapped)
    return np.array(sets, dtype=bool).reshape(-1, len(members))


def _reach(on: Bools, edges: Bools, reach: int | None) -> tuple[Bools, Bools]:
    """Players that reach the explained node through players that are on, [sets, M].

    And those that are off and send to the explained node, or to a player that is reached soon
    enough for its sender to matter.
    """
    among = edges[:-1].astype(np.float32)
    sends = np.repeat(edges[-1:], len(on), 0)
    reached, adjacent = np.zeros_like(on), np.zeros_like(on)
    for _ in range(edges.shape[1] if reach is None else reach):
        adjacent |= sends & ~on
        new = sends & on & ~reached
        reached |= new
        if not new.any():
            break
        sends = new.astype(np.float32) @ among > 0
    return reached, adjacent
