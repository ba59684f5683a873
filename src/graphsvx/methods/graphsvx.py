"""GraphSVX: its settings, its games, and the explanation that it returns."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Unpack

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.query import Query
from graphsvx.engine.choose import run_verified
from graphsvx.engine.evaluator import Evaluator
from graphsvx.engine.profile import ModelProfile, profile_for
from graphsvx.engine.structure import LOW_PRECISION
from graphsvx.errors import InputError, ModelError, NoInfluenceWarning, UnsupportedError
from graphsvx.estimators.gaussian_process import GaussianProcess
from graphsvx.estimators.indices import KSII, IndexSetting
from graphsvx.estimators.lasso import Lasso
from graphsvx.estimators.least_squares import EstimatorSetting, Fit
from graphsvx.generators import GameSetup, Indirect, Isolate, RemoveRows
from graphsvx.generators.base import GeneratorSetting
from graphsvx.generators.indirect import Variant
from graphsvx.masks import Auto, SmarterSeparate
from graphsvx.masks.base import MaskSetting
from graphsvx.methods import build_explanation
from graphsvx.methods.base import Method
from graphsvx.methods.build_explanation import field_record, no_influence
from graphsvx.methods.cells import EvaluatedGames
from graphsvx.methods.edge_features import EdgeFeatureSettings, explain_edge_features
from graphsvx.methods.increments import (
    FIRST_CALLS,
    MOST_AT_ONCE,
    AllCalls,
    Clock,
    ErrorBelow,
    Goal,
    Increments,
    RelativeErrorBelow,
    calls_needed,
    default_first_calls,
    first_of_many,
    limited_by_cost,
    measures_differences,
)
from graphsvx.methods.names_by_type import with_types
from graphsvx.methods.pipeline import (
    PlayableGame,
    PlayedGame,
    fit_all,
    play_all,
    score_alone,
)
from graphsvx.methods.player_kinds import (
    KINDS,
    DefaultPlayers,
    EdgeFeatures,
    KindName,
    PlayerKind,
)
from graphsvx.methods.replay import first_coalitions_agree, replays_agree
from graphsvx.methods.settings import (
    Budget,
    FlatSettings,
    check_parts,
    field_names,
    read_generator,
    read_players,
)
from graphsvx.methods.setup_games import setup_games
from graphsvx.results.certificate import Certificate
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import Block, Checked, Range, changed_fields, checked, shown
from graphsvx.utils.printable import did_you_mean

Order = Annotated[int, Range(1, 3)]
"""Players of the largest sets whose interactions are computed."""

MethodSetting = Annotated[
    Method, Block("an explainer with its settings, such as GraphSVX()", arguments=2)
]
"""A method as an argument."""

# Model calls and largest favoured order S that the paper used (appendix, running times).
_PAPER: dict[str, tuple[int, int]] = {
    "ba-shapes": (400, 1), "ba-community": (800, 1),
    "tree-cycles": (1400, 4), "tree-grid": (1500, 4),
    "ba-2motifs": (1000, 1), "mutag": (1000, 1), "cora": (1000, 1), "pubmed": (1000, 1),
}  # fmt: skip
# Coalitions that are replayed at least, and the share of a limit by the clock that they may take.
_FEWEST_REPLAYS, _SHARE_OF_REPLAYS, _SHARE_OF_FIRST_REPLAYS = 1, 0.25, 0.05
# Where whole graphs are explained: nothing is further away than anything else.
_GRAPH_SETS = ("ba-2motifs", "mutag")


@dataclass(frozen=True, eq=False)
class _Run:
    """The evaluated games of one explanation."""

    evaluator: Evaluator
    setup: GameSetup
    played: list[PlayedGame]
    fits: list[Fit]
    outputs: tuple[int, ...]
    target: int
    goal: Goal | None = None


@dataclass(frozen=True, init=False)
class GraphSVX(Checked):
    """Shapley values of the explained node's features and of the nodes around it.

    Five parts: who plays, within which budget, and the paper's three blocks. The fields of players
    and budget are keywords too: `GraphSVX(samples=400, players="edges", hops=2)` is
    `GraphSVX(budget=Budget(samples=400), players=Edges(hops=2))`. `indirect="mean"` is short for
    `generator=Indirect("mean")` (algorithm 2), `erase=True` for `generator=Isolate(erase=True)`
    (whole graphs: a pooling model does not see the features of a switched-off node), `erase="rows"`
    for `generator=RemoveRows()` (switched-off nodes are removed: for models that make edges of
    their own, or mix all nodes).

    Each game is exact where its distinct perturbed graphs fit the budget.
    """

    explains_typed_graphs: ClassVar[bool] = True

    players: PlayerKind = DefaultPlayers()
    """Who gets credit; everything else stays as it is."""
    budget: Budget = Budget()
    """How many model calls are made."""
    mask: MaskSetting = Auto()
    """MASK: which coalitions are played."""
    generator: GeneratorSetting = None
    """GEN: how a coalition becomes a perturbed graph. None: `Isolate()` where nodes or features
    play (Eq. 1-2), `CutEdges()` where edges play."""
    estimator: EstimatorSetting = GaussianProcess()
    """EXPL: how values become credit; `Lasso(k=5)` is selective."""
    order: Order = 1
    """Largest sets of players whose interactions are computed: pairs (2) or triples (3)."""
    index: IndexSetting = KSII()
    """What an interaction is, where `order` is above 1: `KSII()`, `SII()`, `STII()`, ..."""

    def __init__(
        self,
        *,
        players: PlayerKind | KindName | None = None,
        budget: Budget | None = None,
        mask: MaskSetting = Auto(),
        generator: GeneratorSetting = None,
        estimator: EstimatorSetting = GaussianProcess(),
        order: int = 1,
        index: IndexSetting = KSII(),
        **flat: Unpack[FlatSettings],
    ) -> None:
        settings: dict[str, Any] = {**flat}
        if not isinstance(budget, Budget | None):
            raise InputError(f"budget must be a Budget, got {shown(budget)}; use samples=400")
        spent = {name: settings.pop(name) for name in field_names(Budget) if name in settings}
        generator = read_generator(generator, settings)
        parts: dict[str, Any] = {
            "players": read_players(players, settings, SETTINGS),
            "budget": replace(Budget() if budget is None else budget, **spent),
            "mask": mask, "generator": generator, "estimator": estimator, "order": order,
            "index": index,
        }  # fmt: skip
        for name, part in parts.items():
            object.__setattr__(self, name, part)
        super().__post_init__()
        self._check_parts(self.players)

    def _check_parts(self, kind: PlayerKind) -> None:
        check_parts(kind, self.budget, self.mask, self.generator, self.estimator, self.order)

    @staticmethod
    def paper(dataset: str = "tree-cycles", variant: Variant = "paper", **changes: Any) -> GraphSVX:
        """The paper's own setting: SmarterSeparate, indirect effect, its budgets and S.

        The indirect effect is that of the paper's text and algorithm 2 (`Indirect()`). With
        `variant="released"` it is that of the authors' code, which acts on coalitions of fewer
        than S nodes only and leaves out the last edge of each path (`Indirect("target",
        variant="released", order=S)`); on whole graphs, switched-off nodes then lose their
        features too (`Isolate(erase=True)`). All published accuracies come from that code.

        Where the paper names no budget: 1,000 samples and S = 1; sets of whole graphs have no
        indirect effect.

        Raises:
            InputError: the paper has no such data set.

        """
        if not isinstance(dataset, str) or dataset not in _PAPER:
            hint = did_you_mean(str(dataset), _PAPER)
            raise InputError(
                f"dataset must be one of the paper's, {', '.join(_PAPER)}; {hint}got {dataset!r}"
            )
        samples, order = _PAPER[dataset]
        settings: dict[str, Any] = {"samples": samples, "mask": SmarterSeparate(order=order)}
        released = checked(variant, Variant, "variant") == "released"
        if not {"indirect", "erase", "generator"} & set(changes):
            if dataset in _GRAPH_SETS:
                settings["generator"] = Isolate(erase=True) if released else None
            else:
                effect = Indirect("target", variant="released", order=order)
                settings["generator"] = effect if released else Indirect()
        return GraphSVX(**{**settings, **changes})

    def settings(self) -> dict[str, Any]:
        """What differs from the defaults, as keywords: `GraphSVX(**method.settings())` is equal."""
        parts = changed_fields(self)
        budget, players = parts.pop("budget", Budget()), parts.pop("players", DefaultPlayers())
        names = {kind: name for name, kind in KINDS.items()}
        if type(players) not in (DefaultPlayers, *names):
            return {**changed_fields(budget), "players": players, **parts}
        if type(players) in names:
            parts["players"] = names[type(players)]
        return {**changed_fields(budget), **changed_fields(players), **parts}

    def with_settings(self, **changes: Any) -> GraphSVX:
        """A copy with other parts, or with other fields of its parts: `samples=400`."""
        return GraphSVX(
            **{**{name: getattr(self, name) for name in field_names(GraphSVX)}, **changes}
        )

    def __call__(self, query: Query, seed: int) -> Explanation:
        """Evaluate the games and distribute the prediction among the players."""
        kind, query = self._kind(query), self.prepared(query)
        kind.check_names(query.graph)
        if isinstance(kind, EdgeFeatures):
            return self._explain_edge_features(query, kind, seed)

        played_at = start = time.monotonic()
        limit, profile = self.budget.seconds, profile_for(query.model, query.graph)

        def run(evaluator: Evaluator) -> _Run:
            nonlocal played_at
            clock = None
            if limit is not None:
                after, of_call = profile.seconds_after_games, profile.seconds_of_played
                clock = Clock(limit, start, after, of_call)
            setup, games = self._checked_games(query, evaluator, kind, seed, profile)
            began = time.monotonic()
            played = self._play(games, seed, clock)
            outputs, target = query.choose_outputs(played[-1].values[1])
            fits = fit_all(played, self.estimator, outputs)
            goal = self._goal()
            if goal is None:
                return _Run(evaluator, setup, list(played), fits, outputs, target)
            increments = Increments(
                goal, self.mask, self.estimator, outputs, seed, self.budget.most_calls, clock
            )
            first = time.monotonic() - began
            played, fits = increments.play([replace(game, seconds=first) for game in played], fits)
            played_at = time.monotonic()
            if clock is not None:
                calls = sum(game.game.calls for game in played)
                profile.seconds_of_played = (played_at - began) / max(calls, 1)
            return _Run(evaluator, setup, list(played), fits, outputs, target, goal)

        def holds(evaluator: Evaluator, result: _Run) -> bool:
            replays = evaluator.checks.replays
            if limit is not None and replays:
                affordable = int(_SHARE_OF_REPLAYS * limit / max(profile.seconds_of_replay, 1e-9))
                replays = min(replays, max(_FEWEST_REPLAYS, affordable))
            began = time.monotonic()
            agree = replays_agree(evaluator.checks, replays, result.played, seed)
            profile.seconds_of_replay = (time.monotonic() - began) / max(replays, 1)
            return agree

        verified = run_verified(query, kind.hops, seed, run, holds)
        games = EvaluatedGames(
            query, verified.evaluator, verified.setup, verified.played[-1],
            self.budget.samples or FIRST_CALLS, seed,
        )  # fmt: skip
        explanation = kind.refine(self._explanation(query, verified, seed), games)
        if explanation.certificate.no_influence is not None:
            warnings.warn(explanation.certificate.no_influence, NoInfluenceWarning, stacklevel=3)
        if query.graph.has_types:
            apart = getattr(kind, "directions", "together") == "apart"
            field, players = verified.evaluator.field, verified.setup.players
            explanation = with_types(explanation, query, field, players, apart)
        finished = kind.finish(explanation)
        profile.seconds_after_games = time.monotonic() - played_at
        return finished

    def prepared(self, query: Query) -> Query:
        """The query with what its evaluator has to know of the generator.

        Raises:
            UnsupportedError: nodes cannot be removed from a typed graph, nor from one whose data
                has numbers of nodes.

        """
        if not isinstance(self.generator, RemoveRows):
            return query
        if query.graph.has_types:
            raise UnsupportedError(
                "nodes of typed graphs cannot be removed, only isolated; leave erase= out"
            )
        for name, attribute in query.graph.attributes.items():
            if attribute.owner == "graph" and "index" in name:
                raise UnsupportedError(
                    f"nodes cannot be removed from a graph whose data.{name} has their numbers; "
                    f"leave erase= out"
                )
        return replace(query, removes_rows=True)

    def _goal(self) -> Goal | None:
        """When calls end; None: after `samples`."""
        if self.budget.tolerance is not None:
            return ErrorBelow(self.budget.tolerance)
        many = self.budget.seconds is None and (self.budget.samples or 0) > MOST_AT_ONCE
        if many and measures_differences(self.mask, self.estimator):
            return AllCalls()
        by_default = self.budget.samples is None and not isinstance(self.estimator, Lasso)
        return RelativeErrorBelow() if by_default or self.budget.seconds is not None else None

    def _by_default(self, goal: Goal | None) -> bool:
        """Whether the number of calls follows the games alone."""
        return isinstance(goal, RelativeErrorBelow) and self.budget.most_calls is None

    def _explain_edge_features(self, query: Query, kind: EdgeFeatures, seed: int) -> Explanation:
        if self.budget.tolerance is not None or self.generator is not None:
            raise InputError(
                'players="edge_attr" takes samples=, mask= and estimator= only; leave tolerance= '
                "and generator= out"
            )
        settings = EdgeFeatureSettings(
            kind.reference, self.budget.first_calls, self.mask, self.estimator, self
        )
        return explain_edge_features(query, settings, seed)

    def _kind(self, query: Query) -> PlayerKind:
        """Who plays for this query, or an error for settings that do not fit it."""
        if query.kind == "graph" and isinstance(self.generator, Indirect):
            raise UnsupportedError(
                "the indirect effect needs an explained node to find the way to; "
                "use indirect=False for whole graphs"
            )
        hetero = query.graph.has_types and not query.graph.types.flat
        if hetero and isinstance(self.generator, Indirect) and self.generator.inner == "target":
            raise UnsupportedError(
                'indirect="target" gives nodes the features of the explained one, but node types '
                'have features of their own; use indirect="mean"'
            )
        kind = self.players.for_query(query)
        self._check_parts(kind)
        return kind

    def _checked_games(
        self, query: Query, evaluator: Evaluator, kind: PlayerKind, seed: int, profile: ModelProfile
    ) -> tuple[GameSetup, list[PlayableGame]]:
        """The games of a query; a ModelError where the evaluator fails on a few coalitions."""
        calls, limit = self.budget.first_calls, self.budget.seconds
        setup, games = setup_games(query, evaluator, kind, self.generator, self.mask, seed, calls)
        in_time = limit is None or profile.seconds_of_replay < _SHARE_OF_FIRST_REPLAYS * limit
        rng = np.random.default_rng(seed)
        if in_time and not all(first_coalitions_agree(game, rng) for game in games):
            raise ModelError("batches of perturbed graphs give other outputs than plain calls")
        return setup, games

    def _play(
        self, games: list[PlayableGame], seed: int, clock: Clock | None
    ) -> list[PlayedGame]:  # fmt: skip
        calls, goal = self.budget.first_calls, self._goal()
        by_default = self._by_default(goal)
        if by_default:
            calls = default_first_calls(games, self.estimator)
        elif clock is not None:
            calls = clock.first_calls(games, calls)
        elif isinstance(goal, AllCalls):
            calls = first_of_many(games, calls)
        share = self.budget.feature_share
        return play_all(games, self.mask, self.estimator, calls, share, seed, by_default)

    def games(self, query: Query, evaluator: Evaluator, seed: int) -> list[PlayableGame]:
        """The games of a query, not evaluated; that of nodes (or edges) comes last."""
        kind, calls = self._kind(query), self.budget.first_calls
        return setup_games(query, evaluator, kind, self.generator, self.mask, seed, calls)[1]

    def hops(self, query: Query) -> int | None:
        """How far away from the explained node players are; None: as far as the model looks."""
        return self._kind(query).hops

    def _accuracy(self, run: _Run, values: Tensor, errors: Tensor) -> dict[str, Any]:
        """What the certificate says of errors and of the calls that were made."""
        size, has_errors = float(values.norm()), not bool(errors.isnan().any())
        needed = [] if run.goal is None else run.goal.needed(run.fits)
        return {
            "tolerance_met": None if self.budget.tolerance is None else max(needed, default=0) <= 1,
            "relative_error": float(errors.norm()) / size if has_errors and size > 0 else None,
            "calls_needed": None if run.goal is None else calls_needed(
                run.goal, run.played, run.fits
            ),
            "by_clock": self.budget.seconds is not None and bool(errors.any()),
            "by_cost": self._by_default(run.goal) and bool(errors.any()) and limited_by_cost(
                [game.game for game in run.played]
            ),
        }  # fmt: skip

    def _certificate(
        self, query: Query, run: _Run, residual: float, values: Tensor, errors: Tensor, seed: int
    ) -> Certificate:
        """What was exact and what was checked; `values` and `errors` are the target's."""
        row = run.outputs.index(run.target)
        return Certificate(
            games=tuple(
                game.report(fit, row, type(self.mask).__name__)
                for game, fit in zip(run.played, run.fits, strict=True)
                if game.game.players
            ),
            residual=residual,
            seed=seed,
            depth=run.evaluator.depth,
            checks=run.evaluator.checks.passed,
            fallback=run.evaluator.checks.fallback,
            no_influence=no_influence(query, self.generator, run.played, run.outputs),
            precision=_low_precision(query, run.played[-1].game.played().dtype),
            **self._accuracy(run, values, errors),
        )

    @cached_property
    def _description(self) -> str:
        return repr(self)

    def _explanation(self, query: Query, run: _Run, seed: int) -> Explanation:
        evaluator, setup, played, fits = run.evaluator, run.setup, run.played, run.fits
        outputs, target = run.outputs, run.target
        rows = [game.estimator_rows(outputs) for game in played]
        prediction = rows[-1].full.clone()
        base = fits[0].base.clone()
        for game_rows, fit in zip(rows[1:], fits[1:], strict=True):
            base += fit.base - game_rows.empty
        values = torch.cat([fit.values for fit in fits], 1)
        errors = torch.cat([fit.errors for fit in fits], 1)
        row = outputs.index(target)
        residual = float((prediction - base - values.sum(1))[row])
        certificate = self._certificate(query, run, residual, values[row], errors[row], seed)
        feature_credit, node_credit, edge_credit = build_explanation.credits(
            evaluator.field, setup.players, values, errors
        )
        groups = selection = None
        meaning = build_explanation.SHAPLEY_VALUE
        if setup.players.names:
            groups = build_explanation.groups(evaluator.field, setup.players)
        if isinstance(self.estimator, Lasso):
            alone = score_alone(played, fits, row, target)
            selection = build_explanation.selection(fits, row, alone)
            meaning = build_explanation.LASSO_SHARE
        interactions = None
        if self.order > 1:
            interactions = build_explanation.interactions(
                played, fits, outputs, self.index, self.order
            )
        field = field_record(query, evaluator)
        return Explanation(
            kind=query.kind,
            centres=tuple(query.centres.tolist()),
            outputs=outputs,
            target=target,
            bases=base,
            predictions=prediction,
            feature_credit=feature_credit,
            node_credit=node_credit,
            edge_credit=edge_credit,
            certificate=certificate,
            field=field,
            method=self._description,
            meaning=meaning,
            scale=query.model.scale,
            class_names=query.class_names,
            reference=getattr(self.players, "reference", None),
            groups=groups,
            selection=selection,
            interactions=interactions,
            region_errors=build_explanation.region_errors(field, node_credit, played, fits),
        )


def _low_precision(query: Query, output: torch.dtype) -> str | None:
    """The type that the model computes in if it is below single precision, by what was seen."""
    device, structure = query.graph.x.device.type, profile_for(query.model, query.graph).structure
    if output in LOW_PRECISION:
        return _name(output)
    if torch.is_autocast_enabled(device):
        return f"{_name(torch.get_autocast_dtype(device))} (autocast)"
    if structure is None or structure.precision is None:
        return None
    return f"{_name(structure.precision)} in part"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


SETTINGS = (*field_names(GraphSVX), *FlatSettings.__annotations__)
"""Keywords of `GraphSVX`: its parts, and the fields of these."""
