"""Named explainers: each a choice of MASK, GEN and EXPL."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, Protocol

import torch

from graphsvx import players as choosing
from graphsvx import record, reference
from graphsvx.certificate import Certificate
from graphsvx.constraints import MOST, Block, Checked, Range
from graphsvx.engine.survey import Survey, surveys
from graphsvx.errors import BudgetError, InputError, ModelError, UnsupportedError
from graphsvx.explain.regression import Fit, RegressionSetting
from graphsvx.explain.selective import Lasso
from graphsvx.explain.smooth import Smooth
from graphsvx.explanation import Explanation
from graphsvx.game import GraphGame, Side, feature_scene
from graphsvx.generators import CutEdges, Generator, Indirect, Isolate, Scene
from graphsvx.masks import Auto, SmarterSeparate
from graphsvx.masks.base import MaskSetting
from graphsvx.players import Directions, FeatureChoice, GroupsSetting, Hops, Samples, Sides
from graphsvx.playing import (
    Played,
    fit_all,
    play_all,
    play_until_sure,
    score_alone,
    stream,
)
from graphsvx.query import Query
from graphsvx.record import neighbourhood, no_edges
from graphsvx.reference import ReferenceSetting
from graphsvx.replay import holds

__all__ = ["GraphSVX", "Method", "MethodSetting", "neighbourhood", "no_edges"]


class Method(Protocol):
    """Anything that answers a query."""

    def __call__(self, query: Query, seed: int) -> Explanation:
        """The explanation; the same seed gives the same bits."""
        ...


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
    """GEN: join cut-off nodes along a shortest path (algorithm 2); changes the game."""
    features: FeatureChoice = 0.25
    """Features that play: outside mu +- lambda sigma, "all" or "nonzero"."""
    players: Sides | None = None
    """Who gets credit; everything else stays as it is. None: "both" nodes and features for a
    node, several nodes or a link; "nodes" for a graph; "features" with `features_of="subgraph"`."""
    regression: RegressionSetting = Smooth()  # noqa: RUF009  (a frozen record)
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

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_combinations()

    def _check_combinations(self) -> None:
        features_only = self.players == "features" or self.features_of == "subgraph"
        no_features = self.players in ("nodes", "edges")
        wrong = (
            (self.features_of == "subgraph" and self.players not in (None, "features"),
             f'features_of="subgraph" gives no credit to {self.players}: the effects of nodes and '
             f'of their features overlap; leave players out or use players="features"'),
            (self.balance is not None and (features_only or no_features),
             'balance= weighs nodes against features, so both must play; use players="both"'),
            (self.reference is not None and no_features and not self.erase,
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
        from graphsvx.data.registry import checked_name  # noqa: PLC0415  (slow to import)

        samples, order = _PAPER.get(checked_name(dataset), (1000, 1))
        settings: dict[str, Any] = {
            "samples": samples,
            "mask": SmarterSeparate(order=order),
            "indirect": False if dataset in _GRAPH_SETS else "mean",
        }
        return GraphSVX(**{**settings, **changes})

    def __call__(self, query: Query, seed: int) -> Explanation:
        """Play the games and share the prediction out."""
        sides = self._sides(query)
        self._check_names(query, sides)
        failure: ModelError | None = None
        for found in surveys(query, self.hops, seed):
            try:
                scene, played = self._play(query, found, sides, seed)
                outputs, target = query.choose(played[-1].values[1])
                fits, met = fit_all(played, self.regression, outputs), None
                if self.tolerance is not None:
                    played, fits, met = play_until_sure(
                        played, fits, mask=self.mask, regression=self.regression, outputs=outputs,
                        tolerance=self.tolerance, most=self.max_samples, seed=seed,
                    )  # fmt: skip
            except (
                ModelError
            ) as error:  # the model's fault or that of a shortcut: a slower way tells
                failure = error
                continue
            if holds(found, played, seed):
                return self._explanation(
                    query, found, scene, played=played, fits=fits, outputs=outputs, target=target,
                    seed=seed, met=met,
                )  # fmt: skip
        raise failure or ModelError("the model gives another output each time it is called")

    def _play(
        self, query: Query, found: Survey, sides: Sides, seed: int
    ) -> tuple[Scene, list[Played]]:
        scene = self._scene(query, found, sides, seed)
        generator = self._generator(sides).prepare(scene, stream(seed, "paths"))
        games = self._games(query, found, scene, generator)
        return scene, play_all(games, self.mask, self.samples, self.r, seed)

    def _sides(self, query: Query) -> Sides:
        """Who plays, or an error for what does not go together with this question."""
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
        if self.indirect:
            raise UnsupportedError(
                "the indirect effect needs an explained node to find the way to; "
                "use indirect=False for whole graphs"
            )
        if self.players is None and sides == "nodes" and not self.erase:
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

    def _scene(self, query: Query, found: Survey, sides: Sides, seed: int) -> Scene:
        graph, area = query.graph, found.field
        other = reference.resolve(graph, self.reference)
        if sides == "edges":
            reach = min((h for h in (self.hops, found.depth) if h is not None), default=None)
            edges = choosing.find_edges(graph, area, reach, self.directions, self.groups)
            return Scene(graph, area, edges, other)
        bearers = None
        if query.kind == "graph":
            bearers = area.size
        elif self.features_of == "subgraph":
            bearers = int(choosing.within(area, self.hops).sum())
        here = choosing.find(
            graph, area, self.hops, self.features, sides,
            bearers=bearers, reference=None if self.reference is None else other,
            groups=self.groups, feature_groups=self.feature_groups,
        )  # fmt: skip
        if self.features_of == "subgraph" and self.reference is None:
            other = reference.monte_carlo_mean(graph, self.monte_carlo, stream(seed, "monte"))
        return Scene(graph, area, here, other, bearers)

    def _generator(self, sides: Sides) -> Generator:
        if sides == "edges":
            return CutEdges()
        return Indirect(self.indirect) if self.indirect else Isolate(self.erase)

    def _games(
        self, query: Query, found: Survey, scene: Scene, generator: Generator
    ) -> list[GraphGame]:
        """The games that are played, the one that ends in the full prediction last."""

        def game(side: Side) -> GraphGame:
            return GraphGame(query, found, scene, generator, side, rest_on=side == "nodes")

        here = scene.players
        if here.edges:
            return [game("edges")]
        if here.features and not here.nodes:
            return [game("features")]
        if not self.mask.separate and here.features:
            return [game("joint")]
        games = []
        if here.features:
            # All nodes are off, so nothing can be joined again.
            alone = feature_scene(scene, found)
            games.append(
                GraphGame(query, found, alone, Isolate(), "features", False, whole_scene=scene)
            )
        return [*games, game("nodes")]

    @cached_property
    def _words(self) -> str:
        return repr(self)

    def _explanation(
        self, query: Query, found: Survey, scene: Scene, *, played: list[Played], fits: list[Fit],
        outputs: tuple[int, ...], target: int, seed: int, met: bool | None,
    ) -> Explanation:  # fmt: skip
        rows = [one.rows(outputs) for one in played]
        prediction = rows[-1].full.clone()
        base = fits[0].base.clone()
        for one, fit in zip(rows[1:], fits[1:], strict=True):
            base += fit.base - one.empty
        values = torch.cat([fit.values for fit in fits], 1)
        errors = torch.cat([fit.errors for fit in fits], 1)
        row = outputs.index(target)
        certificate = Certificate(
            games=tuple(
                one.report(fit, row, type(self.mask).__name__)
                for one, fit in zip(played, fits, strict=True)
                if one.game.players
            ),
            residual=float((prediction - base - values.sum(1))[row]),
            seed=seed,
            hops=found.depth,
            checks=found.checks,
            fallback=found.fallback,
            tolerance_met=met,
        )
        feature_credit, node_credit, edge_credit = record.credits(
            found.field, scene.players, values, errors
        )
        extra: dict[str, Any] = {}
        meaning = (
            "Shapley value: the player's fair share of the difference between the "
            "prediction and the base value"
        )
        if self.reference is not None:
            given = self.reference
            extra["reference"] = list(given) if isinstance(given, tuple) else given
        if scene.players.names:
            extra["groups"] = record.groups(found.field, scene.players)
        if isinstance(self.regression, Lasso):
            alone = score_alone(played, fits, row, target)
            extra["selective"] = record.selective(fits, row, alone)
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
            neighbourhood=neighbourhood(query, found),
            method=self._words,
            meaning=meaning,
            scale=query.model.scale,
            class_names=query.class_names,
            extra=extra,
        )
        if self.balance is None:
            return explanation
        return record.balanced(explanation, self.balance)
