"""The players of an explanation as rows that tables, plots, pages and words share.

Ranked entries, groups of them where there are many, and cells as a matrix; how numbers are written.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from graphsvx.core.arrays import Bools, Floats
from graphsvx.results.credit import (
    NO_FEATURES,
    OTHER_FEATURES,
    SEVERAL,
    PlayerKind,
    RankedCell,
    Region,
    Together,
    Uncertain,
)
from graphsvx.utils.constraints import checked
from graphsvx.utils.printable import count

if TYPE_CHECKING:
    from graphsvx.results.explanation import Explanation

Players = Literal["all", "nodes", "features", "edges"]
Player = tuple[PlayerKind, tuple[int, ...], str]
"""Kind, id and name."""


@dataclass(frozen=True)
class Entry(Uncertain):
    """A player, or players that are shown as a group: a ring, a branch, all features or edges."""

    kind: PlayerKind
    key: tuple[int, ...]
    """The id: a node, a column of x, or the two ends of an edge; (-1,) of several players."""
    name: str
    """Of a group in words, with the number of players: "52 nodes 1 hop away"."""
    credit: float
    error: float
    """Standard error: 0 where exact, NaN where it is not known."""
    members: tuple[Entry, ...] = ()
    """Of a group, those with the largest absolute credit first."""

    @property
    def player(self) -> Player:
        """What tells it from others; the id of a named group is another in each explanation."""
        return self.kind, self.key if min(self.key) >= 0 else (-1,), self.name


def entries(explanation: Explanation, players: Players = "all") -> list[Entry]:
    """Players of the given kind, those with the largest absolute credit first."""
    ranked = listed(explanation, players)
    if explanation.selection is not None:
        # A selective explanation lists the chosen players only.
        ranked = [entry for entry in ranked if entry.credit != 0]
    return sorted(ranked, key=lambda entry: -abs(entry.credit))


def leading(ranked: list[Entry], top: int) -> tuple[list[Entry], list[Entry]]:
    """The first `top` players whose interval does not hold 0, and all others.

    Where it holds 0 for every player, the first `top` of them, to be shown as uncertain.
    """
    shown = ([entry for entry in ranked if entry.sure] or ranked)[:top]
    return shown, without(ranked, shown)


def without(entries: list[Entry], shown: list[Entry]) -> list[Entry]:
    """The entries that are not among those shown."""
    seen = {entry.player for entry in shown}
    return [entry for entry in entries if entry.player not in seen]


def listed(explanation: Explanation, players: Players = "all") -> list[Entry]:
    """Players of the given kind in the order of the record: features, nodes, edges."""
    players, row = checked(players, Players, "players"), explanation.row
    return [
        Entry(kind, *part)
        for kind, credit in explanation.credit_by_kind.items()
        if players in ("all", f"{kind}s")
        for part in zip(
            credit.keys(),
            credit.labels(kind),
            credit.values[row].tolist(),
            credit.errors[row].tolist(),
            strict=True,
        )
    ]


def cell_name(explanation: Explanation, cell: RankedCell) -> str:
    """A cell in words: "age of node 5", "presence of node 5"."""
    return f"{_feature(explanation, cell)} of {explanation.node_label(cell.node)}"


def _feature(explanation: Explanation, cell: RankedCell) -> str:
    cells = explanation.cells
    return str(cell.feature) if cells is None else cells.feature_name(cell.feature)


def leading_cells(explanation: Explanation, top: int) -> list[RankedCell]:
    """The `top` cells by absolute credit whose interval does not hold 0; none without cells."""
    cells = [] if explanation.cells is None else explanation.top_cells(by="absolute")
    return [cell for cell in cells if cell.sure and cell.value][:top]


def leading_pairs(explanation: Explanation, top: int | None = None) -> list[Together]:
    """The sure ones among the `top` pairs of players that interact most; none if not computed."""
    pairs = [] if explanation.interactions is None else explanation.together(top)
    return [pair for pair in pairs if pair.sure]


def scale_of(explanation: Explanation) -> str:
    """What the numbers are, in words: "probability", "log-odds"."""
    return explanation.scale.replace("_", "-")


def signed(value: float, digits: int = 3) -> str:
    """A credit as people read it: with its sign, a real minus, and no digits that say nothing."""
    if not math.isfinite(value):
        return "–"
    text = f"{value:+.{digits}f}"
    if float(text) == 0 and value != 0:
        text = f"{value:+.0e}"
    elif float(text) == 0:
        text = "0"
    return text.replace("-", "−")


def decimal(value: float, digits: int = 3) -> str:
    """A score: `digits` decimals and a real minus."""
    return f"{value:.{digits}f}".replace("-", "−")


# --- groups, where there are many players --------------------------------------------------

FOLDED_FROM = 31
"""Players from which on groups are shown."""
MOST_BRANCHES = 12
"""Branches that are shown; where there are more, nodes are grouped by distance."""


def folds(explanation: Explanation, players: Players = "all") -> list[Entry]:
    """Groups that hold every player once, nearest nodes first; empty where there are few players.

    Nodes are grouped by branch where most of them have only one way to the explained node and
    there are few branches, else by distance; features are one group, edges are one.
    """
    ranked = entries(explanation, players)
    if len(ranked) < FOLDED_FROM or explanation.selection is not None:
        return []
    kinds: dict[PlayerKind, tuple[Entry, ...]] = {
        kind: tuple(e for e in ranked if e.kind == kind) for kind in ("node", "feature", "edge")
    }
    groups = []
    if explanation.kind == "node" and not explanation.node_groups:
        entry_of = {entry.key[0]: entry for entry in kinds.pop("node")}
        for region, name in _regions(explanation) if entry_of else []:
            members = tuple(entry_of[node] for node in region.members if node in entry_of)
            groups.append(Entry("node", (-1,), name, region.value, region.error, members))
    groups += [_total(explanation, kind, of_kind) for kind, of_kind in kinds.items() if of_kind]
    return groups if len(groups) > 1 else []


def unsure_note(players: list[Entry]) -> str:
    """How many of these cannot be told from 0, in brackets; empty if none."""
    unsure = sum(not entry.sure for entry in players)
    return f" ({unsure} of them may be 0)" if unsure else ""


def _regions(explanation: Explanation) -> list[tuple[Region, str]]:
    """Branches or rings, and their names in words."""
    branches = explanation.branches()
    mixed = sum(len(region.members) for region in branches if region.key == SEVERAL)
    by_branch = 1 < len(branches) <= MOST_BRANCHES
    by_branch = by_branch and 2 * mixed <= explanation.node_credit.players
    named = []
    for region in branches if by_branch else explanation.by_hop():
        nodes, others = count(len(region.members), "node"), len(region.members) - 1
        if region.key == SEVERAL:
            name = f"{nodes} with several ways" if by_branch else nodes
        elif by_branch:
            name = explanation.node_label(region.key)
            name += f" and {count(others, 'node')} behind it" if others else ""
        else:
            name = f"{nodes} {count(region.key, 'hop')} away"
        named.append((region, name))
    return named


def _total(explanation: Explanation, kind: PlayerKind, ranked: tuple[Entry, ...]) -> Entry:
    """All players of a kind; what a game shares out in total is known without error."""
    played = {game.name for game in explanation.certificate.games}
    finite = all(math.isfinite(entry.error) for entry in ranked)
    exact = (finite and f"{kind}s" in played) or all(entry.error == 0 for entry in ranked)
    credit = math.fsum(entry.credit for entry in ranked)
    error = 0.0 if exact else math.nan
    return Entry(kind, (-1,), count(len(ranked), kind), credit, error, ranked)


# --- cells as a matrix: rows are nodes, columns features and what has none -----------------


@dataclass(frozen=True, eq=False)
class CellTable:
    """Credit of features of nodes; NaN where a node has no cell for the feature."""

    nodes: tuple[int, ...]
    row_names: tuple[str, ...]
    column_names: tuple[str, ...]
    values: Floats
    """[nodes, columns]."""
    errors: Floats
    """Standard errors [nodes, columns]; 0: exact."""

    @property
    def largest(self) -> float:
        """The largest absolute credit of a single feature or of presence; 1 if there is none."""
        single = [name != NO_FEATURES[OTHER_FEATURES] for name in self.column_names]
        values = self.values[:, single] if any(single) else self.values
        return float(np.nanmax(np.abs(values), initial=0.0)) or 1.0

    @property
    def sure(self) -> Bools:
        """Whether a cell's interval does not hold 0, [nodes, columns]."""
        return np.asarray(~(np.abs(self.values) < 2 * self.errors))


def cell_table(explanation: Explanation, features: int = 12) -> CellTable:
    """The cells of one output: the explained nodes' own features first, then nodes by credit.

    Columns are presence, then the `features` with the largest share of the credit of any row; all
    other features of a row are summed in the last column.

    Raises:
        InputError: no cells play; explain with `players="cells"`.

    """
    cells = explanation.top_cells(by="absolute")
    rows: dict[int, dict[str, tuple[float, float]]] = {}
    if explanation.kind == "node" and explanation.feature_credit.players:
        rows[explanation.centres[0]] = {
            entry.name: (entry.credit, entry.error) for entry in entries(explanation, "features")
        }
    for cell in cells:
        rows.setdefault(cell.node, {})[_feature(explanation, cell)] = (cell.value, cell.error)
    presence, other = NO_FEATURES.values()
    sizes: dict[str, float] = {}
    for row in rows.values():
        named = {n: abs(value) for n, (value, _) in row.items() if n not in (presence, other)}
        largest = max(named.values(), default=0.0) or 1.0
        for name, size in named.items():
            sizes[name] = max(sizes.get(name, 0.0), size / largest)
    columns = sorted(sizes, key=lambda name: -sizes[name])[:features]
    names = [presence, *columns, other]
    shape = (len(rows), len(names))
    values, variances = np.full(shape, np.nan), np.zeros(shape)
    for i, row in enumerate(rows.values()):
        for name, (value, error) in row.items():
            column = names.index(name if name in names else other)
            values[i, column] = np.nansum([values[i, column], value])
            variances[i, column] += error**2
    shown = np.isfinite(values).any(0)
    return CellTable(
        tuple(rows),
        tuple(map(explanation.node_label, rows)),
        tuple(np.array(names)[shown].tolist()),
        values[:, shown],
        np.sqrt(variances[:, shown]),
    )
