"""GraphSVX: its settings, its games, and the explanation that it returns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

import torch

from graphsvx.core import players as choosing
from graphsvx.core import reference
from graphsvx.core.players import Directions, FeatureChoice, GroupsSetting, Hops, Samples, Sides
from graphsvx.core.query import Query
from graphsvx.core.random import derive_rng
from graphsvx.core.reference import ReferenceSetting
from graphsvx.engine.evaluator import Evaluator, run_verified
from graphsvx.errors import BudgetError, InputError, UnsupportedError
from graphsvx.estimators.gaussian_process import GaussianProcess
from graphsvx.estimators.lasso import Lasso
from graphsvx.estimators.least_squares import Fit, RegressionSetting
from graphsvx.games.graph_game import GraphGame, Side, feature_setup
from graphsvx.generators import CutEdges, GameSetup, Generator, Indirect, Isolate
from graphsvx.generators.base import GeneratorSetting
from graphsvx.masks import Auto, SmarterSeparate
from graphsvx.masks.base import MaskSetting
from graphsvx.methods import build_explanation
from graphsvx.methods.base import Method
from graphsvx.methods.build_explanation import field_record
from graphsvx.methods.pipeline import (
    PlayedGame,
    fit_all,
    play_all,
    play_until_tolerance,
    score_alone,
)
from graphsvx.methods.replay import replays_agree
from graphsvx.results.certificate import Certificate
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import MOST, Block, Checked, Range

MethodSetting = Annotated[
    Method, Block("an explainer with its settings, such as GraphSVX()", arguments=2)
]
"""A method as an argument."""

# Model calls and largest favoured order S that the paper used (appendix, running times).
_PAPER: dict[str, tuple[int, int]] = {
    "ba-shapes": (400, 1),
    "ba-community": (800, 1),
    "tree-cycles": (1400, 4),
    "tree-grid": (1500, 4),
}
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
    tolerance_met: bool | None


@dataclass(frozen=True)
class GraphSVX(Checked):
    """Shapley values of the explained node's features and of the nodes around it.

    Features play with the node isolated, nodes play with all features on (relative efficiency);
    each of the two games is exact where its distinct perturbed graphs fit the budget.
    """

    samples: Samples = 1000
    """Model calls per explanation, all games together (P)."""
    hops: Hops = None
    """How far away nodes play (k); None: as far as the model looks."""
    mask: MaskSetting = Auto()  # noqa: RUF009  (a frozen record)
    """MASK: which coalitions are played."""
    indirect: Literal[False, "mean", "target"] = False
    """Short for `generator=Indirect(...)`: join cut-off nodes along a shortest path (algorithm 2);
    changes the game."""
    features: FeatureChoice = 0.25
    """Features that play: outside mu +- lambda sigma, "all" or "nonzero"."""
    players: Sides | None = None
    """Who gets credit; everything else stays as it is. None: "both" nodes and features for a
    node, several nodes or a link; "nodes" for a graph; "features" with `features_of="subgraph"`."""
    regression: RegressionSetting = GaussianProcess()  # noqa: RUF009  (a frozen record)
    """EXPL: how values become credit; `Lasso(k=5)` is selective."""
    r: Annotated[float | None, Range(0, 1)] = None
    """Share of the samples that goes to features; None: as in algorithm 3."""
    tolerance: Annotated[float | None, Range(0, inside=True)] = None
    """Keep sampling until every standard error is below this, or `max_samples` are spent."""
    max_samples: Samples = 100_000
    reference: ReferenceSetting = None
    """Contrastive: what switched-off features become in place of mu: a node id, "class:c" (the
    mean of the nodes of class c) or a vector."""
    features_of: Literal["node", "subgraph"] = "node"
    """"subgraph": a feature is switched off at the node and its whole neighbourhood, to a mean
    drawn from the data (`monte_carlo` nodes); no node credit."""
    monte_carlo: Annotated[int, Range(1, MOST, error=BudgetError)] = 1000
    """Nodes that are drawn for the mean of `features_of="subgraph"`."""
    balance: Annotated[float | None, Range(0, 1)] = None
    """Social: alpha, the share of prediction - base that node credit is rescaled to."""
    groups: GroupsSetting = ()
    """{name: members}: nodes (or edges, if edges play) that switch on and off together."""
    feature_groups: GroupsSetting = ()
    """{name: columns}: features that switch on and off together."""
    directions: Directions = "together"
    """Edges as players: the two directions of an edge as one player, or "apart"."""
    erase: bool = False
    """Whole graphs: a switched-off node also loses its features to the reference, so that a
    pooling model does not see it at all. False: it keeps them, as in Eq. 2."""
    generator: GeneratorSetting = None
    """GEN: how a coalition becomes a perturbed graph. None: `Isolate()` where nodes or features
    play (Eq. 1-2), `CutEdges()` where edges play."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_combinations()

    def _check_combinations(self) -> None:
        features_only = self.players == "features" or self.features_of == "subgraph"
        no_features = self.players in ("nodes", "edges")
        generator = self.generator
        cuts_edges = getattr(generator, "edge_players", False)
        wrong = (
            (self.features_of == "subgraph" and self.players not in (None, "features"),
             f'features_of="subgraph" gives no credit to {self.players}: the effects of nodes and '
             f'of their features overlap; leave players out or use players="features"'),
            (self.balance is not None and (features_only or no_features),
             'balance= weighs nodes against features, so both must play; use players="both"'),
            (self.reference is not None and no_features and not self.erase and generator is None,
             f'reference= is what switched-off features become, but with players="{self.players}" '
             f"no feature is switched off"),
            (bool(self.groups) and features_only,
             "groups= are groups of nodes (or edges), but only features play; use feature_groups="),
            (bool(self.feature_groups) and no_features,
             f'feature_groups= are groups of features, but with players="{self.players}" no '
             f"feature plays"),
            (self.erase and (features_only or self.players == "edges" or bool(self.indirect)),
             "erase= is about switched-off nodes without the indirect effect; use it with "
             'players="nodes" and indirect=False'),
            (bool(self.indirect) and self.players == "edges",
             "the indirect effect joins cut-off nodes, but edges play; use indirect=False"),
            (self.tolerance is not None and isinstance(self.regression, Lasso),
             "tolerance= needs standard errors, which a Lasso does not give; use Smooth()"),
            (generator is not None and bool(self.indirect),
             "indirect= is short for generator=Indirect(...); give one of the two"),
            (generator is not None and self.erase,
             "erase= is short for generator=Isolate(erase=True); give one of the two"),
            (generator is not None and self.players == "edges" and not cuts_edges,
             f'players="edges" needs a generator of edges, such as CutEdges(), got {generator!r}'),
            (cuts_edges and self.players != "edges",
             f'{generator!r} switches edges off, so edges must play; use players="edges"'),
        )  # fmt: skip
        for is_so, message in wrong:
            if is_so:
                raise InputError(message)

    @staticmethod
    def paper(dataset: str = "tree-cycles", **changes: Any) -> GraphSVX:
        """The paper's own setting: SmarterSeparate, indirect effect, its budgets and S.

        Data sets without a budget in the paper get 1,000 samples and S = 1; sets of whole
        graphs have no indirect effect.
        """
        from graphsvx.datasets.registry import checked_name  # noqa: PLC0415  (slow to import)

        samples, order = _PAPER.get(checked_name(dataset), (1000, 1))
        settings: dict[str, Any] = {
            "samples": samples,
            "mask": SmarterSeparate(order=order),
            "indirect": False if dataset in _GRAPH_SETS else "mean",
        }
        return GraphSVX(**{**settings, **changes})

    def __call__(self, query: Query, seed: int) -> Explanation:
        """Evaluate the games and distribute the prediction among the players."""
        sides = self._sides(query)
        self._check_names(query, sides)

        def run(evaluator: Evaluator) -> _Run:
            setup, played = self._play(query, evaluator, sides, seed)
            outputs, target = query.choose_outputs(played[-1].values[1])
            fits, met = fit_all(played, self.regression, outputs), None
            if self.tolerance is not None:
                played, fits, met = play_until_tolerance(
                    played, fits, mask=self.mask, regression=self.regression, outputs=outputs,
                    tolerance=self.tolerance, most=self.max_samples, seed=seed,
                )  # fmt: skip
            return _Run(evaluator, setup, played, fits, outputs, target, met)

        return self._explanation(
            query,
            run_verified(
                query, self.hops, seed, run,
                holds=lambda evaluator, result: replays_agree(evaluator, result.played, seed),
            ),
            seed,
        )  # fmt: skip

    def _play(
        self, query: Query, evaluator: Evaluator, sides: Sides, seed: int
    ) -> tuple[GameSetup, list[PlayedGame]]:
        setup = self._setup(query, evaluator, sides, seed)
        generator = self._generator(sides).prepare(setup, derive_rng(seed, "paths"))
        games = self._games(query, evaluator, setup, generator)
        return setup, play_all(games, self.mask, self.regression, self.samples, self.r, seed)

    def _sides(self, query: Query) -> Sides:
        """The kinds of players, or an error for settings that do not fit this kind of query."""
        if query.kind != "graph":
            if self.erase:
                raise InputError(
                    "erase= is for whole graphs: nobody sees the features of an isolated node "
                    "but a model that pools over all nodes; leave it out"
                )
            if self.players is None:
                return "features" if self.features_of == "subgraph" else "both"
            return self.players
        sides = self.players or ("features" if self.features_of == "subgraph" else "nodes")
        if sides == "both" or self.balance is not None:
            raise InputError(
                "a graph is explained by its nodes or by its features, not both; "
                'use players="nodes" or players="features", without balance='
            )
        if self.indirect or isinstance(self.generator, Indirect):
            raise UnsupportedError(
                "the indirect effect needs an explained node to find the way to; "
                "use indirect=False for whole graphs"
            )
        if self.players is None and sides == "nodes" and not self.erase and self.generator is None:
            for name in ("reference", "feature_groups"):
                if getattr(self, name):
                    raise InputError(
                        f"{name}= is about features, but by default the nodes of a graph play; "
                        f'use players="features"'
                    )
        return sides

    def _check_names(self, query: Query, sides: Sides) -> None:
        graph = query.graph
        choosing.check_groups(self.feature_groups, graph.num_features, "feature")
        if sides == "edges":
            for label, members in self.groups:
                choosing.edge_positions(graph, label, members, self.directions)
        else:
            choosing.check_groups(self.groups, graph.num_nodes, "node")

    def _setup(self, query: Query, evaluator: Evaluator, sides: Sides, seed: int) -> GameSetup:
        graph, field = query.graph, evaluator.field
        other = reference.resolve_reference(graph, self.reference)
        if sides == "edges":
            reach = min((h for h in (self.hops, evaluator.depth) if h is not None), default=None)
            edges = choosing.find_edge_players(graph, field, reach, self.directions, self.groups)
            return GameSetup(graph, field, edges, other)
        feature_nodes = None
        if query.kind == "graph":
            feature_nodes = field.size
        elif self.features_of == "subgraph":
            feature_nodes = int(choosing.within_hops(field, self.hops).sum())
        players = choosing.find_players(
            graph, field, self.hops, self.features, sides,
            feature_nodes=feature_nodes, reference=None if self.reference is None else other,
            groups=self.groups, feature_groups=self.feature_groups,
        )  # fmt: skip
        if self.features_of == "subgraph" and self.reference is None:
            other = reference.monte_carlo_mean(graph, self.monte_carlo, derive_rng(seed, "monte"))
        return GameSetup(graph, field, players, other, feature_nodes)

    def _generator(self, sides: Sides) -> Generator:
        if self.generator is not None:
            return self.generator
        if sides == "edges":
            return CutEdges()
        return Indirect(self.indirect) if self.indirect else Isolate(self.erase)

    def _games(
        self, query: Query, evaluator: Evaluator, setup: GameSetup, generator: Generator
    ) -> list[GraphGame]:
        """The games to evaluate; the last one ends in the full prediction."""

        def game(side: Side) -> GraphGame:
            return GraphGame(query, evaluator, setup, generator, side, rest_on=side == "nodes")

        players = setup.players
        if players.edges:
            return [game("edges")]
        if players.features and not players.nodes:
            return [game("features")]
        if not self.mask.separate and players.features:
            return [game("joint")]
        games = []
        if players.features and not (generator == Isolate() or isinstance(generator, Indirect)):
            games.append(game("features"))
        elif players.features:
            # All nodes are off, so there is no indirect effect.
            alone = feature_setup(setup, evaluator)
            games.append(
                GraphGame(query, evaluator, alone, Isolate(), "features", False, full_setup=setup)
            )
        return [*games, game("nodes")]

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
        certificate = Certificate(
            games=tuple(
                game.report(fit, row, type(self.mask).__name__)
                for game, fit in zip(played, fits, strict=True)
                if game.game.players
            ),
            residual=float((prediction - base - values.sum(1))[row]),
            seed=seed,
            depth=evaluator.depth,
            checks=evaluator.checks,
            fallback=evaluator.fallback,
            tolerance_met=run.tolerance_met,
        )
        feature_credit, node_credit, edge_credit = build_explanation.credits(
            evaluator.field, setup.players, values, errors
        )
        groups = selection = None
        meaning = (
            "Shapley value: the player's fair share of the difference between the "
            "prediction and the base value"
        )
        if setup.players.names:
            groups = build_explanation.groups(evaluator.field, setup.players)
        if isinstance(self.regression, Lasso):
            alone = score_alone(played, fits, row, target)
            selection = build_explanation.selection(fits, row, alone)
            meaning = (
                "share of the difference between the prediction and the base value among the "
                "few players that a Lasso chose"
            )
        explanation = Explanation(
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
            field=field_record(query, evaluator),
            method=self._description,
            meaning=meaning,
            scale=query.model.scale,
            class_names=query.class_names,
            reference=self.reference,
            groups=groups,
            selection=selection,
        )
        if self.balance is None:
            return explanation
        return build_explanation.balanced(explanation, self.balance)
