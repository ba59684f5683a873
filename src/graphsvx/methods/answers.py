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
from typing import Annotated, Literal, NamedTuple

import numpy as np
from torch import Tensor

from graphsvx.core.arrays import Bools, Floats, Ids, RowIds, no_ids
from graphsvx.core.model import evaluation_mode, modules
from graphsvx.engine.choose import choose_evaluator, run_verified
from graphsvx.engine.evaluator import Evaluator
from graphsvx.errors import InputError
from graphsvx.games.lookup_game import MOST_LOOK_UPS, LookupGame
from graphsvx.methods.pipeline import PlayableGame
from graphsvx.methods.playing import Plan
from graphsvx.results.details import PlayerSet
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import MOST, Range, Share, checked
from graphsvx.utils.exclusive import exclusive

_Budget = Annotated[int, Range(2, MOST)]
_BLOCK = 1 << 12  # coalitions that are evaluated together

Margin = Callable[[Floats], Floats]
"""How far scores [coalitions, outputs] are above what is asked; 0 and below: it is not done."""


class Question(Plan):
    """A plan whose games can be played again, to evaluate sets of the explained players later.

    These are the players of the game of nodes (or edges, or features).
    """

    def sufficient(
        self, explanation: Explanation, share: float | Literal["class"], budget: int
    ) -> PlayerSet:
        """The smallest set of players that keeps the score (or the class) by itself."""
        target, scale = explanation.target, self.query.model.scale
        if share == "class":
            margin, name = self._class_margin(target, 1), explanation.class_name(target)
            return self._smallest(explanation, budget, "sufficient", margin, name)
        share = float(checked(share, Share, "share"))
        prediction, base = explanation.prediction, explanation.base
        least = share * prediction if scale == "probability" else base + share * (prediction - base)
        sign = 1.0 if prediction >= base or scale == "probability" else -1.0
        slack = 1e-9 * max(abs(prediction), abs(base))

        def is_kept(scores: Floats) -> Floats:
            return sign * (scores[:, target] - least) + slack

        expected = f"{'at least' if sign > 0 else 'at most'} {least:.4g}"
        return self._smallest(explanation, budget, "sufficient", is_kept, expected)

    def flip(self, explanation: Explanation, budget: int) -> PlayerSet:
        """The smallest set of players whose removal changes the predicted class."""
        predicted = explanation.target
        if len(explanation.outputs) > 1:
            predicted = explanation.outputs[int(explanation.predictions.argmax())]
        elif self.query.target is not None:  # the model may predict another class
            with self._game() as game:
                everyone = np.ones(game.players, dtype=bool)
                predicted = int(_plain_scores(game, everyone)[0].argmax())
        margin, expected = self._class_margin(predicted, -1), explanation.class_name(predicted)
        return self._smallest(explanation, budget, "flip", margin, f"not {expected}")

    def scores(self, coalitions: Bools, target: int) -> Floats:
        """Scores of coalitions, [coalitions]."""
        with self._game() as game:
            return game.values(game.states(coalitions))[:, target].numpy()

    def players(self, explanation: Explanation) -> int:
        """Number of players."""
        features, total = explanation.feature_credit.players, len(explanation.player_names)
        return total - features if total > features else features

    @contextmanager
    def _ready(self) -> Iterator[None]:
        """No other explanation is computed meanwhile, and the model is in evaluation mode."""
        parts = [*self.query.model.submodules, *modules(self.query.decoder)]
        with exclusive(), evaluation_mode(parts):
            yield

    @contextmanager
    def _game(self) -> Iterator[PlayableGame]:
        with self._ready():
            yield self.games(choose_evaluator(self.query, self.kind.hops, self.seed))[-1]

    def _class_margin(self, target: int, sign: int) -> Margin:
        """How far the target is ahead of all other outputs (sign 1), or behind one (sign -1).

        Of equal scores argmax decides, as in the model's own prediction: the margin is never 0.
        """
        if self.query.model.scale == "value":
            raise InputError('a model with scale="value" has no classes; use sufficient(0.9)')
        least = np.finfo(np.float64).tiny

        def margin(scores: Floats) -> Floats:
            ahead = scores[:, target] - np.delete(scores, target, axis=1).max(1)
            wins = scores.argmax(1) == target
            return sign * np.where(wins, np.maximum(ahead, least), np.minimum(ahead, -least))

        return margin

    def _smallest(
        self,
        explanation: Explanation,
        budget: int,
        question: Literal["sufficient", "flip"],
        margin: Margin,
        expected: str,
    ) -> PlayerSet:
        budget, off = checked(budget, _Budget, "budget"), question == "flip"

        def run(evaluator: Evaluator) -> tuple[_Answer, PlayableGame]:
            game = self.games(evaluator)[-1]
            game.coalitions_for(budget)
            return _Search(game, off, margin, budget).smallest(), game

        def holds(_: Evaluator, result: tuple[_Answer, PlayableGame]) -> bool:
            answer, game = result
            plain = _plain_scores(game, answer.coalition).numpy()
            return not answer.found or bool(margin(plain)[0] > 0)

        with self._ready():
            answer, game = run_verified(self.query, self.kind.hops, self.seed, run, holds)
            scores = _plain_scores(game, answer.coalition)[0]
        names = explanation.player_names
        members = np.flatnonzero(answer.coalition != off) if answer.found else no_ids()
        positions = (members + len(names) - game.players).tolist()
        return PlayerSet(
            question=question,
            players=tuple(names[position] for position in positions),
            positions=tuple(positions),
            found=answer.found,
            score=float(scores[explanation.target]),
            predicted=int(scores.argmax()),
            wanted=expected,
            none_below=answer.none_below,
            calls=game.calls,
        )


def _plain_scores(game: PlayableGame, coalition: Bools) -> Tensor:
    """Scores of one coalition from a plain call on the whole graph, [1, outputs]."""
    field, perturbation = game.perturbed(coalition[None])
    return game.query.scores(game.evaluator.plain(field).evaluate(field, perturbation)).cpu()


class _Answer(NamedTuple):
    coalition: Bools
    found: bool
    none_below: int


@dataclass(frozen=True, eq=False)
class _Search:
    """Sets by size: switched on alone, or switched off alone."""

    game: PlayableGame
    off: bool
    margin: Margin
    budget: int

    def smallest(self) -> _Answer:
        """A smallest set with a positive margin, or the best that a greedy search finds."""
        players, edges = self.game.players, self.game.player_edges()
        sets = np.zeros((1, players), dtype=bool)
        for size in range(players + 1):
            best, score = self._best(sets)
            if score > 0:
                return _Answer(best != self.off, True, size)
            larger = self._extended(sets, edges)
            if larger is None:
                return self._greedy(size + 1)
            if not len(larger):
                break
            sets = larger
        return _Answer(np.ones(players, dtype=bool), False, players + 1)

    def _best(self, sets: Bools) -> tuple[Bools, float]:
        """The set with the largest margin; the first of equal ones."""
        parts = np.split(sets != self.off, range(_BLOCK, len(sets), _BLOCK))
        scores = [self.game.values(self.game.states(part)).numpy() for part in parts]
        margins = np.concatenate([self.margin(part) for part in scores])
        best = int(margins.argmax())
        return sets[best], float(margins[best])

    def _left(self) -> int:
        if isinstance(self.game, LookupGame):
            return self.budget * MOST_LOOK_UPS - self.game.looked_up
        return self.budget - self.game.calls

    def _extended(self, sets: Bools, edges: Bools | None) -> Bools | None:
        """Sets with one player more that can differ from all smaller ones; None: beyond the budget.

        On: a neighbour of the set. Off: a player that is still reached, if all others of the set
        are still next to what is reached. Without edges: any player.
        """
        most = self._left()
        if edges is None:  # after its last member, so that each set is made once
            plays = ~np.logical_or.accumulate(sets[:, ::-1], 1)[:, ::-1]
        else:
            reached, adjacent = _reach(sets != self.off, edges, self.game.reach)
            plays = reached & ~sets if self.off else adjacent
            most = 8 * max(1, most)
        if np.count_nonzero(plays) > most:  # before they are listed, which takes more memory
            return None
        row, player = np.nonzero(plays)
        larger = sets[row]
        larger[np.arange(len(row)), player] = True
        if edges is not None:
            _, new = RowIds().add(larger)
            larger = larger[new]
            if self.off and len(larger):
                _, adjacent = _reach(~larger, edges, self.game.reach)
                larger = larger[(adjacent | ~larger).all(1)]
        return larger if len(larger) <= self._left() else None

    def _greedy(self, none_below: int) -> _Answer:
        """Grow by the best margin; then drop one while it still holds."""
        players = self.game.players
        members = np.zeros(players, dtype=bool)
        while not self._best(members[None])[1] > 0:
            if members.all():
                return _Answer(np.ones(players, dtype=bool), False, none_below)
            members, _ = self._best(_with_one_changed(members, np.flatnonzero(~members)))
        while members.any():
            best, score = self._best(_with_one_changed(members, np.flatnonzero(members)))
            if score <= 0:
                break
            members = best
        return _Answer(members != self.off, True, none_below)


def _with_one_changed(members: Bools, players: Ids) -> Bools:
    sets = np.repeat(members[None], len(players), 0)
    sets[np.arange(len(players)), players] ^= True
    return sets


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
