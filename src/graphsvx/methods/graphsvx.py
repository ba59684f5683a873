"""GraphSVX: its settings, its games, and the explanation that it returns."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Unpack

from graphsvx.core.query import Query
from graphsvx.errors import InputError, NoInfluenceWarning, UnsupportedError
from graphsvx.estimators import KSII, EstimatorSetting, GaussianProcess, IndexSetting
from graphsvx.generators import GeneratorSetting, Indirect, Isolate, RemoveRows, Variant
from graphsvx.masks import Auto, MaskSetting, SmarterSeparate
from graphsvx.methods.baseline import Method
from graphsvx.methods.build_explanation import with_types
from graphsvx.methods.cells import with_cells
from graphsvx.methods.edge_features import explain_edge_features
from graphsvx.methods.player_kinds import (
    KINDS,
    Cells,
    DefaultPlayers,
    EdgeFeatures,
    KindName,
    PlayerKind,
)
from graphsvx.methods.playing import Plan
from graphsvx.methods.record import record
from graphsvx.methods.settings import (
    Budget,
    FlatSettings,
    check_parts,
    field_names,
    read_generator,
    read_players,
)
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
            "mask": mask,
            "generator": generator,
            "estimator": estimator,
            "order": order,
            "index": index,
        }
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
        plan = self.plan(query, seed)
        kind, query = plan.kind, plan.query
        kind.check_names(query.graph)
        if isinstance(kind, EdgeFeatures):
            return explain_edge_features(plan, kind.reference, self)
        played = plan.play()
        explanation = record(
            plan,
            played,
            self.order,
            self.index,
            method=self._description,
            reference=getattr(self.players, "reference", None),
        )
        if isinstance(kind, Cells):
            explanation = with_cells(explanation, plan, played, kind)
        if explanation.certificate.no_influence is not None:
            warnings.warn(explanation.certificate.no_influence, NoInfluenceWarning, stacklevel=3)
        apart = getattr(kind, "directions", "together") == "apart"
        field, players = played.evaluator.field, played.setup.players
        finished = kind.finish(with_types(explanation, query, field, players, apart))
        plan.finish(played)
        return finished

    def plan(self, query: Query, seed: int) -> Plan:
        """How the games of a query are played.

        Raises:
            UnsupportedError: the settings do not fit the query.

        """
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
        generator = kind.generator if self.generator is None else self.generator
        return Plan(
            self.prepared(query), seed, kind, generator, self.mask, self.estimator, self.budget
        )

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

    @cached_property
    def _description(self) -> str:
        return repr(self)


SETTINGS = (*field_names(GraphSVX), *FlatSettings.__annotations__)
"""Keywords of `GraphSVX`: its parts, and the fields of these."""
