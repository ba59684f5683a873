"""Named explainers: each a choice of MASK, GEN and EXPL."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from graphsvx import players as choosing
from graphsvx.certificate import Certificate, GameReport
from graphsvx.engine.survey import Survey, survey
from graphsvx.errors import BudgetError, InputError
from graphsvx.explain.regression import WLS, Fit, Regression
from graphsvx.explanation import Credit, Explanation, Neighbourhood
from graphsvx.game import GraphGame, Side, feature_scene
from graphsvx.generators import Generator, Indirect, Isolate, Scene
from graphsvx.masks import Auto, Mask, Masks, SmarterSeparate
from graphsvx.masks.smart import split_budget
from graphsvx.players import FeatureChoice, Sides
from graphsvx.query import Query


class Method(Protocol):
    """Anything that answers a query."""

    def __call__(self, query: Query, seed: int) -> Explanation:
        """The explanation; the same seed gives the same bits."""
        ...


# Model calls and largest favoured order S that the paper used (appendix, running times).
_PAPER: dict[str, tuple[int, int]] = {
    "ba-shapes": (400, 1),
    "ba-community": (800, 1),
    "tree-cycles": (1400, 4),
    "tree-grid": (1500, 4),
}


@dataclass(frozen=True)
class GraphSVX:
    """Shapley values of the explained node's features and of the nodes around it.

    Features play with the node isolated, nodes play with all features on (relative efficiency);
    each of the two games is exact where its distinct perturbed graphs fit the budget.
    """

    samples: int = 1000
    """Model calls per explanation, all games together (P)."""
    hops: int | None = None
    """How far away nodes play (k); None: as far as the model looks."""
    mask: Mask = Auto()
    """MASK: which coalitions are played."""
    indirect: Literal[False, "mean", "target"] = False
    """GEN: join cut-off nodes along a shortest path (algorithm 2); changes the game."""
    features: FeatureChoice = 0.25
    """Features that play: outside mu +- lambda sigma, "all" or "nonzero"."""
    players: Sides = "both"
    """Who gets credit; the other side stays as it is."""
    regression: Regression = WLS()
    """EXPL: how values become credit."""
    r: float | None = None
    """Share of the samples that goes to features; None: as in algorithm 3."""
    tolerance: float | None = None
    """Keep sampling until every standard error is below this, or `max_samples` are spent."""
    max_samples: int = 100_000

    def __post_init__(self) -> None:
        if isinstance(self.samples, bool) or not isinstance(self.samples, int) or self.samples < 2:
            raise BudgetError(f"samples must be an integer of at least 2, got {self.samples!r}")
        if self.hops is not None and (not isinstance(self.hops, int) or self.hops < 0):
            raise InputError(f"hops must be an integer of at least 0, got {self.hops!r}")
        if self.indirect not in (False, "mean", "target"):
            raise InputError(f'indirect must be False, "mean" or "target", got {self.indirect!r}')
        if self.players not in ("both", "nodes", "features"):
            raise InputError(
                f'players must be "both", "nodes" or "features", got {self.players!r}'
            )
        if self.tolerance is not None and not self.tolerance > 0:
            raise InputError(f"tolerance must be above 0, got {self.tolerance}")

    @staticmethod
    def paper(dataset: str = "tree-cycles", **changes: Any) -> GraphSVX:
        """The paper's own setting: SmarterSeparate, indirect effect, its budgets and S.

        Data sets without a budget in the paper get 1,000 samples and S = 1.
        """
        samples, order = _PAPER.get(dataset, (1000, 1))
        settings: dict[str, Any] = {
            "samples": samples,
            "mask": SmarterSeparate(order=order),
            "indirect": "mean",
        }
        return GraphSVX(**{**settings, **changes})

    def __call__(self, query: Query, seed: int) -> Explanation:
        """Play the games and share the prediction out."""
        found = survey(query, self.hops, seed)
        scene = self._scene(query, found)
        generator: Generator = Indirect(self.indirect) if self.indirect else Isolate()
        generator = generator.prepare(scene, _rng(seed, "paths"))
        games = self._games(query, found, scene, generator)
        played = self._play(games, self.samples, seed)
        outputs, target = query.choose(games[-1].values(_full(games[-1]))[0])
        fits = self._fit(played, outputs)
        met = None
        if self.tolerance is not None:
            played, fits, met = self._until_sure(games, played, fits, outputs, seed)
        return self._explanation(query, found, scene, played, fits, outputs, target, seed, met)

    def _scene(self, query: Query, found: Survey) -> Scene:
        here = choosing.find(query.graph, found.field, self.hops, self.features, self.players)
        return Scene(query.graph, found.field, here, query.graph.statistics.mean)

    def _games(
        self, query: Query, found: Survey, scene: Scene, generator: Generator
    ) -> list[GraphGame]:
        """The games that are played, the one that ends in the full prediction last."""

        def game(side: Side) -> GraphGame:
            return GraphGame(query, found, scene, generator, side, rest_on=side == "nodes")

        here = scene.players
        if not self.mask.separate:
            return [game("joint")]
        games = []
        if here.features and not here.nodes:
            return [game("features")]
        if here.features:
            # All nodes are off, so nothing can be joined again.
            alone = feature_scene(scene, found)
            games.append(GraphGame(query, found, alone, Isolate(), "features", rest_on=False))
        return [*games, game("nodes")]

    def _play(self, games: list[GraphGame], samples: int, seed: int) -> list[_Played]:
        """Each game with its share of the samples; what one leaves goes to the other."""
        if len(games) == 1:
            return [_play(games[0], self.mask, samples, seed)]
        features, nodes = games
        share = split_budget(samples, features.players, nodes.players, self.r)
        if features.players < 30 and 1 << features.players <= share:
            first = _play(features, self.mask, share, seed)
            return [first, _play(nodes, self.mask, max(2, samples - features.calls), seed)]
        second = _play(nodes, self.mask, max(2, samples - share), seed)
        return [_play(features, self.mask, max(2, samples - nodes.calls), seed), second]

    def _fit(self, played: list[_Played], outputs: tuple[int, ...]) -> list[Fit]:
        fits = []
        for one in played:
            chosen = one.values[:, list(outputs)]
            fits.append(self.regression(one.masks, chosen[2:], chosen[0], chosen[1]))
        return fits

    def _until_sure(
        self, games: list[GraphGame], played: list[_Played], fits: list[Fit],
        outputs: tuple[int, ...], seed: int,
    ) -> tuple[list[_Played], list[Fit], bool]:  # fmt: skip
        """Double the budget of each game until its errors are below the tolerance."""
        played, fits = list(played), list(fits)
        for i, game in enumerate(games):
            budget = max(played[i].budget, 4)
            most = self.max_samples // len(games)
            while not self._sure(fits[i]) and budget < most:
                budget = min(2 * budget, most)
                played[i] = _play(game, self.mask, budget, seed)
                fits[i] = self._fit([played[i]], outputs)[0]
        return played, fits, all(self._sure(fit) for fit in fits)

    def _sure(self, fit: Fit) -> bool:
        assert self.tolerance is not None
        return bool((fit.errors <= self.tolerance).all())  # NaN is not sure

    def _explanation(
        self, query: Query, found: Survey, scene: Scene, played: list[_Played], fits: list[Fit],
        outputs: tuple[int, ...], target: int, seed: int, met: bool | None,
    ) -> Explanation:  # fmt: skip
        here, area = scene.players, found.field
        chosen = list(outputs)
        prediction = played[-1].values[1, chosen]
        base = fits[0].base.clone()
        for one, fit in zip(played[1:], fits[1:], strict=True):
            base += fit.base - one.values[0, chosen]
        values = torch.cat([fit.values for fit in fits], 1)
        errors = torch.cat([fit.errors for fit in fits], 1)
        b = here.features
        row = outputs.index(target)
        reports = tuple(
            one.report(float(fit.r2[row]), type(self.mask).__name__)
            for one, fit in zip(played, fits, strict=True)
            if one.game.players
        )
        certificate = Certificate(
            games=reports,
            residual=float((prediction - base - values.sum(1))[row]),
            seed=seed,
            hops=found.depth,
            checks=found.checks,
            fallback=found.fallback,
            tolerance_met=met,
        )
        return Explanation(
            kind=query.kind,
            centres=tuple(query.centres.tolist()),
            outputs=outputs,
            target=target,
            bases=base,
            predictions=prediction,
            feature_credit=Credit(
                torch.from_numpy(here.feature_members), values[:, :b], errors[:, :b]
            ),
            node_credit=Credit(
                torch.from_numpy(area.ids[here.node_members]), values[:, b:], errors[:, b:]
            ),
            edge_credit=no_edges(len(outputs)),
            certificate=certificate,
            neighbourhood=neighbourhood(query, found),
            method=repr(self),
            meaning=(
                "Shapley value: the player's fair share of the difference between the "
                "prediction and the base value"
            ),
            scale=query.model.scale,
            class_names=query.class_names,
        )


def no_edges(outputs: int) -> Credit:
    """Edge credit of a method that gives none."""
    return replace(Credit.none(outputs), ids=torch.zeros(2, 0, dtype=torch.long))


def neighbourhood(query: Query, found: Survey) -> Neighbourhood:
    """The field without its rim, for drawing and export."""
    area, graph = found.field, query.graph
    inner = area.inner
    ids = torch.from_numpy(area.ids[: area.size])
    ends = np.stack([area.ids[area.source[inner]], area.ids[area.target[inner]]])
    return Neighbourhood(
        ids=ids,
        hops=torch.from_numpy(area.hops),
        edge_index=torch.from_numpy(ends),
        classes=None if graph.y is None or graph.y.is_floating_point() else graph.y.cpu()[ids],
        num_nodes=graph.num_nodes,
        num_features=graph.num_features,
    )


@dataclass(frozen=True, eq=False)
class _Played:
    """A game's chosen rows with their values: the empty and the full coalition first."""

    game: GraphGame
    masks: Masks
    values: Tensor
    budget: int

    def report(self, r2: float, mask: str) -> GameReport:
        return GameReport(
            name=self.game.side,
            players=self.game.players,
            exact=self.masks.exact,
            asked=self.budget,
            made=self.game.calls,
            rows=len(self.masks.rows) + 2,
            r2=r2,
            mask=mask,
        )


def _rng(seed: int, purpose: str) -> torch.Generator:
    """A stream of its own for each purpose, so that no budget changes another's draws."""
    number = int.from_bytes(purpose.encode()[:7], "little")
    return torch.Generator().manual_seed((seed * 1_000_003 + number) % 2**63)


def _ends(game: GraphGame) -> np.ndarray:
    rows = np.zeros((2, game.players), dtype=bool)
    rows[1] = True
    return game.states(rows)


def _full(game: GraphGame) -> np.ndarray:
    return _ends(game)[1:]


def _play(game: GraphGame, mask: Mask, budget: int, seed: int) -> _Played:
    ends = _ends(game)
    none = np.zeros((0, game.players), dtype=bool)
    if game.players == 0:
        masks = Masks(none, game.states(none), np.zeros(0), exact=True)
    else:
        masks = mask(game, budget, _rng(seed, game.side))
    values = game.values(np.concatenate([ends, masks.states]))
    return _Played(game, masks, values, budget)
