"""Players in groups: what tables, plots, pages and words show first where there are many."""

from __future__ import annotations

import math
from dataclasses import dataclass

from graphsvx.results.base import BaseExplanation
from graphsvx.results.ranking import Entry, Players, entries
from graphsvx.results.regions import SEVERAL, Region

FOLDED_FROM = 31
"""Players from which on groups are shown."""
MOST_BRANCHES = 12
"""Branches that are shown; where there are more, nodes are grouped by distance."""


@dataclass(frozen=True)
class Fold:
    """Players that are shown as a group: a ring, a branch, all features or all edges."""

    name: str
    """In words, with the number of players: "52 nodes 1 hop away"."""
    credit: float
    error: float
    """Standard error of the sum: 0 where exact, NaN where it is not known."""
    entries: tuple[Entry, ...]
    """Those with the largest absolute credit first."""

    @property
    def sure(self) -> bool:
        """Whether the sum is exact or at least two standard errors away from 0."""
        return not math.isfinite(self.error) or abs(self.credit) >= 2 * self.error


def folds(explanation: BaseExplanation, players: Players = "all") -> list[Fold]:
    """Groups that hold every player once, nearest nodes first; empty where there are few players.

    Nodes are grouped by branch where most of them have only one way to the explained node and
    there are few branches, else by distance; features are one group, edges are one.
    """
    ranked = entries(explanation, players)
    if len(ranked) < FOLDED_FROM or explanation.selection is not None:
        return []
    kinds = {kind: [e for e in ranked if e.kind == kind] for kind in ("node", "feature", "edge")}
    groups = _of_nodes(explanation, kinds["node"])
    for kind in ("feature", "edge"):
        if kinds[kind]:
            groups.append(_total(explanation, kind, kinds[kind]))
    return groups if len(groups) > 1 else []


def unsure_note(players: list[Entry]) -> str:
    """How many of these cannot be told from 0, in brackets; empty if none."""
    unsure = sum(not entry.sure for entry in players)
    return f" ({unsure} of them may be 0)" if unsure else ""


def _of_nodes(explanation: BaseExplanation, ranked: list[Entry]) -> list[Fold]:
    if not ranked:
        return []
    grouped = explanation.groups is not None and bool(explanation.groups.nodes)
    if explanation.kind != "node" or grouped:
        return [_total(explanation, "node", ranked)]
    entry_of = {entry.key[0]: entry for entry in ranked}
    return [
        Fold(
            name,
            region.value,
            region.error,
            tuple(entry_of[node] for node in region.members if node in entry_of),
        )
        for region, name in _regions(explanation)
    ]


def _regions(explanation: BaseExplanation) -> list[tuple[Region, str]]:
    """Branches or rings, and their names in words."""
    branches = explanation.branches()
    mixed = sum(len(region.members) for region in branches if region.key == SEVERAL)
    if 1 < len(branches) <= MOST_BRANCHES and 2 * mixed <= explanation.node_credit.players:
        return [(region, _branch_name(explanation, region)) for region in branches]
    return [(region, _ring_name(region)) for region in explanation.by_hop()]


def _branch_name(explanation: BaseExplanation, region: Region) -> str:
    if region.key == SEVERAL:
        return f"{_count(len(region.members), 'node')} with several ways"
    neighbour = explanation.node_label(region.key)
    others = len(region.members) - 1
    return neighbour if not others else f"{neighbour} and {_count(others, 'node')} behind it"


def _ring_name(region: Region) -> str:
    nodes = _count(len(region.members), "node")
    return nodes if region.key == SEVERAL else f"{nodes} {_count(region.key, 'hop')} away"


def _total(explanation: BaseExplanation, kind: str, ranked: list[Entry]) -> Fold:
    """All players of a kind; what a game shares out in total is known without error."""
    played = {game.name for game in explanation.certificate.games}
    finite = all(math.isfinite(entry.error) for entry in ranked)
    exact = (finite and f"{kind}s" in played) or all(entry.error == 0 for entry in ranked)
    return Fold(
        _count(len(ranked), kind),
        math.fsum(entry.credit for entry in ranked),
        0.0 if exact else math.nan,
        tuple(ranked),
    )


def _count(number: int, item: str) -> str:
    return f"{number} {item}" + "s" * (number != 1)
