"""The game: a set of switched-on players in, the model's score out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, cast

import numpy as np
import torch
from torch import Tensor

from graphsvx.engine.field import Field, restricted
from graphsvx.engine.lazy import plain
from graphsvx.engine.numbers import Numbers, keys
from graphsvx.engine.states import FAR, Bools, Hops, States, reachable
from graphsvx.engine.survey import Survey
from graphsvx.generators.base import Generator, Scene
from graphsvx.graph import Ids
from graphsvx.players import Players
from graphsvx.query import Query

Side = Literal["features", "nodes", "edges", "joint"]

# Rows that are turned into states at once: bounds the memory of on/off matrices.
_BLOCK_BYTES = 64 * 2**20


@dataclass(eq=False)
class FunctionGame:
    """A game given by a function of coalitions: for tests, peers and one's own games."""

    function: Callable[[Bools], Tensor]
    players: int
    _known: dict[bytes, int] = field(default_factory=dict)
    _rows: list[Bools] = field(default_factory=list)
    _values: dict[int, Tensor] = field(default_factory=dict)

    @property
    def calls(self) -> int:
        """Distinct coalitions that were evaluated."""
        return len(self._values)

    def states(self, rows: Bools) -> Ids:
        """Each distinct coalition is a state of its own."""
        found = []
        for key, row in zip(keys(rows), rows, strict=True):
            if key not in self._known:
                self._known[key] = len(self._rows)
                self._rows.append(row)
            found.append(self._known[key])
        return np.asarray(found, dtype=np.int64)

    def values(self, states: Ids) -> Tensor:
        """Call the function for what is not known yet."""
        new = [int(state) for state in np.unique(states) if int(state) not in self._values]
        if new:
            out = self.function(np.stack([self._rows[state] for state in new])).double()
            out = out[:, None] if out.dim() == 1 else out
            self._values.update(zip(new, out, strict=True))
        return torch.stack([self._values[int(state)] for state in states])

    def senders(self) -> Bools | None:
        """Nothing is known about its structure."""
        return None

    @property
    def reach(self) -> int | None:
        """Nothing is known about its structure."""
        return None


def ends_of(players: int) -> Bools:
    """The empty and the full coalition."""
    rows = np.zeros((2, players), dtype=bool)
    rows[1] = True
    return rows


@dataclass(eq=False)
class GraphGame:
    """Features of the explained node, other nodes, or both, or edges, on a surveyed field."""

    query: Query
    survey: Survey
    scene: Scene
    generator: Generator
    side: Side
    rest_on: bool
    """Whether the players of the other side are on (relative efficiency) or off."""
    whole_scene: Scene | None = None
    """Features with all nodes off: the scene with the nodes, which `scene` leaves out."""
    _known: Numbers = field(default_factory=Numbers)
    _blocks: list[tuple[int, States | Bools, Hops]] = field(default_factory=list)
    """First state, the states (coalitions, in a game of features), their live nodes."""
    _values: Tensor | None = None
    _raw: Tensor | None = None
    """Raw outputs of the states, [states, centres, outputs]."""
    _done: Bools = field(default_factory=lambda: np.zeros(0, dtype=bool))
    _ends: Ids | None = None
    """The states of the empty and of the full coalition, numbered with the first rows."""
    _watched: int = -1
    witness: Tensor | None = None
    """Raw outputs of the watched state, [centres, outputs], once it has been played."""

    def watch(self, state: int) -> None:
        """Keep the model's raw outputs for this state."""
        self._watched = state

    @property
    def players(self) -> int:
        """M."""
        here = self.scene.players
        counts = {"features": here.features, "nodes": here.nodes, "edges": here.edges}
        return counts.get(self.side, here.features + here.nodes)

    @property
    def calls(self) -> int:
        """Distinct perturbed graphs that have gone through the model."""
        return int(self._done.sum())

    def _split(self, rows: Bools, here: Players | None = None) -> tuple[Bools, Bools]:
        here, count = here or self.scene.players, len(rows)
        if self.side == "joint":
            return rows[:, : here.features], rows[:, here.features :]
        if self.side == "features":
            return rows, np.full((count, here.nodes), self.rest_on)
        if self.side == "edges":
            return np.ones((count, here.features), dtype=bool), rows
        return np.full((count, here.features), self.rest_on), rows

    def states(self, rows: Bools) -> Ids:
        """Canonical states: what differs only where it cannot matter is the same."""
        step = max(
            1, _BLOCK_BYTES // (16 * self.scene.field.size + 2 * len(self.scene.field.edges))
        )
        blocks = [rows[first : first + step] for first in range(0, len(rows), step)]
        first_time = self._ends is None
        if first_time:
            # Two rows by themselves would take about as long as all others together.
            blocks[:1] = [np.concatenate([ends_of(self.players), *blocks[:1]])]
        found = np.concatenate([np.zeros(0, dtype=np.int64), *map(self._block, blocks)])
        if first_time:
            self._ends, found = found[:2], found[2:]
        return found

    def ends(self) -> Ids:
        """The states of the empty and of the full coalition."""
        if self._ends is None:
            self.states(np.zeros((0, self.players), dtype=bool))
        return cast(Ids, self._ends)

    def _block(self, rows: Bools) -> Ids:
        if self.side == "features":
            # The graph is the same for all coalitions; their feature rows are made when played.
            return self._number([rows], rows, np.zeros((len(rows), 0), dtype=np.uint8))
        features_on, nodes_on = self._split(rows)
        states = self.generator(self.scene, features_on, nodes_on)
        area = self.scene.field
        hops = self.survey.hops(area, states)
        live = hops < FAR
        # Two coalitions are one state if nothing that can matter differs: nodes, edges, features.
        changed_edges = states.joined is not None or states.cut is not None
        if not self.survey.local:
            parts = [states.edges(area) if self.query.kind == "graph" else states.on]
            if changed_edges and self.query.kind != "graph":
                parts.append(states.edges(area))
        else:
            parts = [live]
            if changed_edges:
                parts.append(states.edges(area) & live[:, area.target])
        # A generator that says nothing of its feature rows may have changed them in any way.
        rows = getattr(self.generator, "feature_rows", "any")
        if rows == "any":
            names = _names_of_rows(states.table)
            parts.append(np.where(live, names[states.written_out()], 0))
        elif rows == "by_mask":
            parts += [live & (states.written_out() >= area.size), features_on]
        elif self.side == "joint":
            parts.append(features_on)
        return self._number(parts, states, hops)

    def _number(self, parts: list[Bools], played: States | Bools, hops: Hops) -> Ids:
        """Numbers by content; what has none yet is kept, to be played."""
        start = len(self._known)
        found, new = self._known.add(*parts)
        if len(new):
            whole = len(new) == len(found)
            if isinstance(played, States):
                kept: States | Bools = played if whole else played.take(new)
            else:
                kept = played[new]
            self._blocks.append((start, kept, hops if whole else hops[new]))
            self._done = np.concatenate([self._done, np.zeros(len(new), dtype=bool)])
        return found

    def values(self, states: Ids) -> Tensor:
        """Play what has not been played yet, as few batches as memory allows."""
        wanted = np.zeros(len(self._known), dtype=bool)
        wanted[states] = True
        wanted &= ~self._done
        waiting: tuple[Ids, States, Hops] | None = None
        features: list[tuple[Ids, Bools]] = []
        for start, block, hops in self._blocks:
            chosen = np.flatnonzero(wanted[start : start + len(block)])
            if not len(chosen):
                continue
            numbers = start + chosen
            if not isinstance(block, States):
                features.append((numbers, block[chosen]))
                continue
            now = (numbers, block, hops)
            if len(chosen) < len(block):
                now = (numbers, block.take(chosen), hops[chosen])
            # Few at a time cost as much as many: the ends of a game wait for its other rows.
            both = waiting[1].followed_by(now[1]) if waiting and len(waiting[0]) < 64 else None
            if waiting and both:
                now = (
                    np.concatenate([waiting[0], numbers]),
                    both,
                    np.concatenate([waiting[2], now[2]]),
                )
            elif waiting:
                self._play(*waiting)
            waiting = now
        if waiting:
            self._play(*waiting)
        if features:
            each, rows = zip(*features, strict=True)
            self._play_features(np.concatenate(each), np.concatenate(rows))
        if self._values is None:
            raise RuntimeError("no state has been asked for yet")
        return self._values.index_select(0, torch.from_numpy(states))

    def _play(self, numbers: Ids, states: States, hops: Hops) -> None:
        self._store(numbers, self.survey.evaluate(self.scene.field, states, hops))

    def _play_features(self, numbers: Ids, rows: Bools) -> None:
        """Coalitions of features, no more at once than the memory has room for their rows."""
        area, graph = self.scene.field, self.query.graph
        row_bytes = self.scene.bearing * graph.num_features * graph.x.element_size()
        step = max(1, self.query.memory // (4 * max(1, row_bytes)))
        for first in range(0, len(rows), step):
            part = slice(first, first + step)
            states = self.generator(self.scene, *self._split(rows[part]))
            hops = self.survey.hops(area, states.take(slice(0, 1)))
            hops = np.broadcast_to(hops, (len(states), area.size))
            self._store(numbers[part], self.survey.evaluate(area, states, hops))

    def _store(self, states: Ids, out: Tensor) -> None:
        """Keep the scores of states, which are in the order of their numbers."""
        at = int(np.searchsorted(states, self._watched))
        if at < len(states) and states[at] == self._watched:
            self.witness = out[at]
        self._values = self._with(self._values, states, self.query.read(out).cpu())
        self._raw = self._with(self._raw, states, out.cpu())
        self._done[states] = True

    def _with(self, before: Tensor | None, states: Ids, new: Tensor) -> Tensor:
        """A row for each state, with new ones for some."""
        count = len(self._known)
        if len(states) == count:
            return new
        values = new.new_zeros(count, *new.shape[1:])
        if before is not None:
            values[: len(before)] = before
        values[torch.from_numpy(states)] = new
        return values

    def raw(self, states: Ids) -> Tensor:
        """Raw outputs of states that have been played, [states, centres, outputs]."""
        self.values(states)
        return cast(Tensor, self._raw).index_select(0, torch.from_numpy(states))

    def played(self) -> Tensor:
        """Raw outputs of all states that have been played."""
        return cast(Tensor, self._raw)[torch.from_numpy(self._done[: len(cast(Tensor, self._raw))])]

    def perturbed(self, rows: Bools) -> tuple[Field, States]:
        """The perturbed graphs of coalitions as the generator makes them, nothing left out."""
        scene = self.whole_scene or self.scene
        return scene.field, self.generator(scene, *self._split(rows, scene.players))

    def senders(self) -> Bools | None:
        """Edges between players, through nodes that are always on where there are such."""
        here, area = self.scene.players, self.scene.field
        if (
            self.side != "nodes"
            or not getattr(self.generator, "severs", False)
            or not self.survey.local
        ):
            return None
        if here.nodes != len(here.node_members):
            return None
        size = area.size
        if size > 2048:  # far too many connected sets to enumerate anyway
            return None
        inner = area.inner
        sends = np.zeros((size, size), dtype=bool)
        sends[area.target[inner], area.source[inner]] = True
        always = np.ones(size, dtype=bool)
        always[here.node_members] = False
        always[: area.centres] = False
        for node in np.flatnonzero(always):  # contract: who hears `node` hears its senders
            sends |= sends[:, node : node + 1] & sends[node]
        to_players = sends[here.node_members][:, here.node_members]
        to_centre = np.asarray(sends[: area.centres][:, here.node_members].any(0))
        return np.concatenate([to_players, to_centre[None]])

    @property
    def reach(self) -> int | None:
        """As far as the model looks; any distance where nodes that are always on pass on."""
        here, area = self.scene.players, self.scene.field
        if len(here.node_members) + area.centres < area.size:
            return None
        return self.survey.reach


def _names_of_rows(table: Tensor) -> Ids:
    """A number for each row of a table, the same for equal rows, in this table or another one."""
    rows = plain(table).detach().cpu().contiguous()
    return np.fromiter((hash(row.tobytes()) for row in rows.numpy()), np.int64, len(rows))


def feature_scene(scene: Scene, survey: Survey) -> Scene:
    """The scene of a feature game: with all nodes off, only what still reaches the centres."""
    if not survey.local:
        return scene
    area = scene.field
    on = np.ones((1, area.size), dtype=bool)
    on[:, scene.players.node_members] = False
    live = reachable(States(on, None, scene.graph.x[:0]), area, survey.depth)[0]
    left = restricted(area, np.flatnonzero(live))
    none = np.zeros(0, dtype=np.int64)
    here = scene.players
    players = type(here)(here.feature_members, here.feature_owner, none, none)
    return Scene(scene.graph, left, players, scene.reference, scene.bearers)
