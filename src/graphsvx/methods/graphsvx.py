"""GraphSVX: its settings, its games, and the explanation that it returns."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, ClassVar, Literal, TypedDict, Unpack

from graphsvx.core.players import Directions, FeatureChoice
from graphsvx.core.query import Query
from graphsvx.errors import InputError, NoInfluenceWarning, UnsupportedError
from graphsvx.estimators import KSII, EstimatorSetting, GaussianProcess, IndexSetting, Lasso
from graphsvx.generators import GeneratorSetting, Indirect, Isolate, RemoveRows, Variant, trait
from graphsvx.masks import Auto, MaskSetting, SmarterSeparate
from graphsvx.methods.answers import Question
from graphsvx.methods.explaining import explanation_of
from graphsvx.methods.increments import Budget
from graphsvx.methods.pipeline import Sampling
from graphsvx.methods.player_kinds import KINDS, DefaultPlayers, KindName, PlayerKind
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import Checked, Range, changed_fields, checked, shown
from graphsvx.utils.printable import did_you_mean

Order = Annotated[int, Range(1, 3)]
"""Players of the largest sets whose interactions are computed."""

# Model calls and largest favoured order S that the paper used (appendix, running times).
_PAPER: dict[str, tuple[int, int]] = {
    "ba-shapes": (400, 1),
    "ba-community": (800, 1),
    "tree-cycles": (1400, 4),
    "tree-grid": (1500, 4),
    "ba-2motifs": (1000, 1),
    "mutag": (1000, 1),
    "cora": (1000, 1),
    "pubmed": (1000, 1),
}
# Where whole graphs are explained: nothing is further away than anything else.
_GRAPH_SETS = ("ba-2motifs", "mutag")


_Indirect = Literal[False, "mean", "target"]
_Erase = Literal[False, True, "rows"]


class FlatSettings(TypedDict, total=False):
    """Fields of `Budget`, of the players and of the generator as keywords of `GraphSVX`."""

    samples: int | None
    feature_share: float | None
    tolerance: float | None
    max_samples: int
    seconds: float | None
    hops: int | None
    features: FeatureChoice
    feature_groups: Any
    groups: Any
    reference: Any
    balance: float | None
    directions: Directions
    node_types: tuple[str, ...] | None
    monte_carlo: int
    top_nodes: int
    top_features: int
    indirect: _Indirect
    erase: _Erase


# Where a keyword does not belong to the players: what it is about, and what to do.
_MISPLACED = {
    "features": "chooses features, but no feature plays",
    "feature_groups": "are groups of features, but no feature plays",
    "groups": "are groups of nodes (or edges), but only features play; use feature_groups=",
    "reference": "is what switched-off features become, but no feature is switched off",
    "balance": 'weighs nodes against features, so both must play; use players="both"',
    "directions": 'is about edges as players; use players="edges"',
    "node_types": "chooses nodes by their type, but no node plays",
    "monte_carlo": 'draws the mean of players="subgraph_features"',
    "top_nodes": 'chooses the nodes of players="cells"',
    "top_features": 'chooses the features of players="cells"',
}

RENAMED = {  # earlier names of settings, and what they are called now
    "regression": "estimator=",
    "r": "feature_share=",
    "features_of": 'players="subgraph_features"',
}


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
        spent = {name: settings.pop(name) for name in _field_names(Budget) if name in settings}
        generator = _read_generator(generator, settings)
        vars(self).update(
            players=_read_players(players, settings),
            budget=replace(Budget() if budget is None else budget, **spent),
            mask=mask,
            generator=generator,
            estimator=estimator,
            order=order,
            index=index,
        )
        super().__post_init__()
        self._check_parts(self.players)

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
                f"dataset must be one of the paper's, {', '.join(_PAPER)}; "
                f"{hint}got {shown(dataset)}"
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
        return GraphSVX(**(vars(self) | changes))

    def __call__(self, query: Query, seed: int) -> Explanation:
        """Evaluate the games and distribute the prediction among the players."""
        explanation = explanation_of(self.plan(query, seed), self)
        if explanation.certificate.no_influence is not None:
            warnings.warn(explanation.certificate.no_influence, NoInfluenceWarning, stacklevel=3)
        return explanation

    def plan(self, query: Query, seed: int) -> Question:
        """How the games of a query are played.

        Raises:
            InputError: the settings do not go together for this kind of question.
            UnsupportedError: the settings do not fit the query.

        """
        graph, generator = query.graph, self.generator
        if isinstance(generator, Indirect):
            if query.kind == "graph":
                raise UnsupportedError(
                    "the indirect effect needs an explained node to find the way to; "
                    "use indirect=False for whole graphs"
                )
            if graph.has_types and not graph.types.flat and generator.inner == "target":
                raise UnsupportedError(
                    'indirect="target" gives nodes the features of the explained one, but node '
                    'types have features of their own; use indirect="mean"'
                )
        kind = self.players.for_query(query)
        self._check_parts(kind)
        if isinstance(generator, RemoveRows):
            _refuse_numbered_nodes(query)
            query = replace(query, removes_rows=True)
        generator = kind.generator if generator is None else generator
        sampling = Sampling(self.mask, self.estimator, seed)
        return Question(query, kind, generator, sampling, self.budget)

    def _check_parts(self, players: PlayerKind) -> None:
        """Raise an InputError if parts do not go together."""
        generator, settings = self.generator, vars(players)
        selective = isinstance(self.estimator, Lasso)
        cuts_edges = bool(trait(generator, "edge_players"))
        edges_play = bool(trait(players.generator, "edge_players"))
        keeps_features = generator in (None, Isolate(), RemoveRows())
        erases = generator == RemoveRows() or trait(generator, "erase")
        reasons = {
            f'{generator!r} switches edges off, so edges must play; use players="edges"': (
                cuts_edges and not edges_play
            ),
            f'players="edges" needs a generator of edges, such as CutEdges(), got {generator!r}': (
                edges_play and generator is not None and not cuts_edges
            ),
            'erase= is about switched-off nodes; use it with players="nodes"': (
                erases and players.sides == "features"
            ),
            f"reference= {_MISPLACED['reference']}; "
            f'use players="features", or erase=True where nodes play': (
                keeps_features
                and players.sides == "nodes"
                and settings.get("reference") is not None
            ),
            "balance= rescales credit, which interactions would not follow": (
                self.order > 1 and settings.get("balance") is not None
            ),
            "order= is about interactions of all players, of which a Lasso leaves some out; "
            "use GaussianProcess() or WLS()": selective and self.order > 1,
            "tolerance= needs standard errors, which a Lasso does not give; "
            "use GaussianProcess() or WLS()": selective and self.budget.tolerance is not None,
        }
        conflicts = [reason for reason, holds in reasons.items() if holds]
        for reason in (*conflicts, *players.conflicts(self)):
            raise InputError(reason)


def _field_names(part: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(part))


SETTINGS = (*_field_names(GraphSVX), *FlatSettings.__annotations__)
"""Keywords of `GraphSVX`: its parts, and the fields of these."""


def _read_players(players: PlayerKind | str | None, settings: dict[str, Any]) -> PlayerKind:
    """The kind of players with the flat settings that are left."""
    for name in settings:
        if name in RENAMED:
            raise InputError(f"{name}= is called {RENAMED[name]} now")
        if name not in FlatSettings.__annotations__:
            raise InputError(f"GraphSVX has the settings {', '.join(SETTINGS)}, got {name!r}")
    if players is None:
        players = DefaultPlayers() if settings.get("balance") is None else "both"
    if isinstance(players, str):
        players = KINDS[checked(players, KindName, "players")]()
    if not isinstance(players, PlayerKind):
        raise InputError(
            f"players must be one of {', '.join(KINDS)}, or a kind of players such as "
            f"Edges(hops=2), got {shown(players)}"
        )
    for name in settings:
        if name not in _field_names(type(players)):
            raise InputError(f"{name}= {_MISPLACED[name]}; got players={type(players).__name__}()")
    return replace(players, **settings)


def _read_generator(generator: Any, settings: dict[str, Any]) -> Any:
    """The generator, from the keywords that are short for one."""
    indirect = checked(settings.pop("indirect", False), _Indirect, "indirect")
    erase = checked(settings.pop("erase", False), _Erase, "erase")
    if not indirect and not erase:
        return generator
    erasing = RemoveRows() if erase == "rows" else Isolate(erase=True)
    name, block = ("indirect", Indirect(indirect)) if indirect else ("erase", erasing)
    if generator is not None or (indirect and erase):
        raise InputError(f"{name}= is short for generator={block!r}; give one generator")
    return block


def _refuse_numbered_nodes(query: Query) -> None:
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
