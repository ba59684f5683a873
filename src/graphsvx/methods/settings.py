"""Settings of GraphSVX: its budget, and flat keywords that stand for fields of its parts."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal, TypedDict

from graphsvx.core.players import Directions, FeatureChoice, Samples
from graphsvx.errors import BudgetError, InputError
from graphsvx.estimators.lasso import Lasso
from graphsvx.generators import Indirect, Isolate, RemoveRows
from graphsvx.masks import Mask
from graphsvx.methods.increments import FIRST_CALLS
from graphsvx.methods.player_kinds import (
    KINDS,
    Cells,
    DefaultPlayers,
    EdgeFeatures,
    Edges,
    Features,
    KindName,
    MetaPaths,
    Nodes,
    PlayerKind,
    Relations,
    SubgraphFeatures,
)
from graphsvx.utils.constraints import MOST, Checked, Range, checked, shown

_FIRST_BY_CLOCK = 200  # calls before the first look at the clock


@dataclass(frozen=True)
class Budget(Checked):
    """How much may be spent on an explanation."""

    samples: Annotated[int | None, Range(2, MOST, error=BudgetError)] = None
    """Model calls per explanation, all games together (P). None: 1,000, and more in games that are
    not exact with them, until the relative error is below 1 % or as many are made as the size of
    the receptive field allows in about a second (10,000 at most, 30,000 where the differences that
    single players make are measured). Layers without fast code: at most as many as their cost, by a
    count, allows in about two seconds, about 100 in all at least."""
    feature_share: Annotated[float | None, Range(0, 1)] = None
    """Share of the samples that goes to features (r); None: as in algorithm 3."""
    tolerance: Annotated[float | None, Range(0, inside=True)] = None
    """Keep sampling until every standard error is below this, or `max_samples` are spent."""
    max_samples: Samples = 100_000
    seconds: Annotated[float | None, Range(0, inside=True)] = None
    """A limit by the clock; no new round of calls starts that would exceed it. The same seed may
    then give other bits, and the certificate says so."""

    @property
    def first_calls(self) -> int:
        """Of the first round, of all games together."""
        if self.seconds is not None:
            return min(_FIRST_BY_CLOCK, self.samples or _FIRST_BY_CLOCK)
        return self.samples or FIRST_CALLS

    @property
    def most_calls(self) -> int | None:
        """Of all games together; None: as many as the games allow by default."""
        if self.tolerance is None and self.samples is not None:
            return self.samples
        return None if self.tolerance is None and self.seconds is None else self.max_samples


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
    indirect: Literal[False, "mean", "target"]
    erase: Literal[False, True, "rows"]


# Where a keyword does not belong to the players: what it is about, and what to do.
MISPLACED = {
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


def field_names(part: type) -> tuple[str, ...]:
    """Names of the fields of a dataclass."""
    return tuple(field.name for field in fields(part))


def read_players(
    players: PlayerKind | str | None, settings: dict[str, Any], keywords: tuple[str, ...]
) -> PlayerKind:
    """The kind of players with the flat settings that are left; `keywords` are all of GraphSVX."""
    for name in settings:
        if name in RENAMED:
            raise InputError(f"{name}= is called {RENAMED[name]} now")
        if name not in FlatSettings.__annotations__:
            raise InputError(f"GraphSVX has the settings {', '.join(keywords)}, got {name!r}")
    if players is None and settings.get("balance") is not None:
        players = "both"
    if isinstance(players, str):
        players = checked(players, KindName, "players")
    kind = (
        DefaultPlayers()
        if players is None
        else KINDS[players]()
        if isinstance(players, str)
        else players
    )
    if not isinstance(kind, PlayerKind):
        raise InputError(
            f"players must be one of {', '.join(KINDS)}, or a kind of players such as "
            f"Edges(hops=2), got {shown(players)}"
        )
    allowed = field_names(type(kind))
    for name in settings:
        if name not in allowed:
            raise InputError(f"{name}= {MISPLACED[name]}; got players={type(kind).__name__}()")
    return replace(kind, **settings)


def read_generator(generator: Any, settings: dict[str, Any]) -> Any:
    """The generator, from the keywords that are short for one."""
    indirect = checked(
        settings.pop("indirect", False), Literal[False, "mean", "target"], "indirect"
    )
    erase = checked(settings.pop("erase", False), Literal[False, True, "rows"], "erase")
    if not indirect and not erase:
        return generator
    erasing = RemoveRows() if erase == "rows" else Isolate(erase=True)
    name, block = ("indirect", Indirect(indirect)) if indirect else ("erase", erasing)
    if generator is not None or (indirect and erase):
        raise InputError(f"{name}= is short for generator={block!r}; give one generator")
    return block


def check_parts(
    players: PlayerKind, budget: Budget, mask: Mask, generator: Any, estimator: Any, order: int
) -> None:
    """Raise InputError for parts of GraphSVX that do not go together."""
    cuts_edges = bool(getattr(generator, "edge_players", False))
    edges_play = isinstance(players, (Edges, Relations, MetaPaths))
    if generator is not None and cuts_edges != edges_play:
        raise InputError(
            f'{generator!r} switches edges off, so edges must play; use players="edges"'
            if cuts_edges
            else f'players="edges" needs a generator of edges, such as CutEdges(), got '
            f"{generator!r}"
        )
    if isinstance(players, Cells) and generator not in (None, Isolate()):
        raise InputError(
            f"cells are features of nodes that switch off by isolation, got {generator!r}"
        )
    if isinstance(players, Cells) and not mask.separate:
        raise InputError(f"cells need a mask with a game of nodes alone, got {mask!r}")
    if isinstance(players, EdgeFeatures) and (budget.tolerance is not None or generator):
        raise InputError(
            'players="edge_attr" takes samples=, mask= and estimator= only; leave tolerance= '
            "and generator= out"
        )
    erases = isinstance(generator, RemoveRows) or getattr(generator, "erase", False)
    if erases and isinstance(players, (Features, SubgraphFeatures)):
        raise InputError('erase= is about switched-off nodes; use it with players="nodes"')
    unused = isinstance(players, Nodes) and generator in (None, Isolate(), RemoveRows())
    if unused and getattr(players, "reference", None) is not None:
        raise InputError(
            f"reference= {MISPLACED['reference']}; "
            f'use players="features", or erase=True where nodes play'
        )
    if order > 1 and isinstance(estimator, Lasso):
        raise InputError(
            "order= is about interactions of all players, of which a Lasso leaves some out; "
            "use GaussianProcess() or WLS()"
        )
    if order > 1 and getattr(players, "balance", None) is not None:
        raise InputError("balance= rescales credit, which interactions would not follow")
    if budget.tolerance is not None and isinstance(estimator, Lasso):
        raise InputError(
            "tolerance= needs standard errors, which a Lasso does not give; "
            "use GaussianProcess() or WLS()"
        )
