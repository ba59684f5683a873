"""The game on a graph: a coalition of active players to the model's score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar, Literal, cast

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from graphsvx.core.arrays import Bools, Floats, Ids, no_ids
from graphsvx.core.field import UNREACHABLE, Field, HopCounts, Perturbations
from graphsvx.core.players import Players
from graphsvx.core.query import Query
from graphsvx.engine.evaluator import Evaluator
from graphsvx.engine.lazy import plain
from graphsvx.engine.profile import counted_seconds
from graphsvx.engine.state_graph import StateGraphs, TooManyStatesError
from graphsvx.games.base import PlayerPrior, StoredGame, empty_and_full
from graphsvx.games.derivatives import ExpectedCredit, expected_by_derivatives
from graphsvx.generators.base import GameSetup, Generator, trait
from graphsvx.generators.isolate import Isolate

Side = Literal["features", "nodes", "edges", "joint"]

# Bounds of the memory of the boolean matrices of one block of coalitions.
_BLOCK_BYTES = 64 * 2**20
_LEAST_BLOCK_BYTES = 4 * 2**20
_MOST_CONNECTED = 2048  # nodes of a field whose connected sets may be few
_MOST_STEPS = 8  # of a random walk where the depth of the model is not known
# Coalitions that derivatives are taken at, calls of a game for one of them, and calls a player from
# which on values of coalitions alone are better.
_LEAST_SLOPES, _MOST_SLOPES = 48, 256
_CALLS_PER_SLOPE = 16
_CALLS_A_PLAYER = 48
# Perturbed graphs that show the cost of one, and how many share what a batch has in common.
_PROBES, _BATCH = 8, 32
FEWEST_LOOK_UPS, MOST_LOOK_UPS = 1 << 15, 1 << 18
"""Coalitions that are looked up by default, where few leave large errors."""
# Edges whose senders are numbered, and players of a fit: about half a second.
_LOOK_UP_WORK = 1 << 25
_LOOK_UP_SECONDS = 0.5  # the same, by a count, of layers without kernels
_COUNTED_STATES = 1 << 12  # coalitions that show how many states there are,
_COUNTED_SECONDS = 1 << 9  # and what a state costs
_BYTES_OF_SLOPES = 1024  # a node or edge, of the coalitions that are differentiated together


@dataclass(eq=False)
class GraphGame(StoredGame):
    """Game over features, nodes, both, or edges of a receptive field.

    A generator turns coalitions into perturbed graphs, which a model scores.
    """

    query: Query
    evaluator: Evaluator
    setup: GameSetup
    generator: Generator
    side: Side
    rest_on: bool
    """Whether the other kind of players is active (relative efficiency) or not."""
    full_setup: GameSetup | None = None
    """Feature game with all nodes off: the setup with the nodes that `setup` leaves out."""
    looks_up: ClassVar[bool] = False
    """Whether coalitions are look-ups of node embeddings."""
    replayed: int = 0
    """Coalitions for which plain calls gave the same outputs, after the game was played."""
    _raw: Tensor | None = None
    """Raw outputs of the states, [states, centres, outputs]."""
    _end_states: Ids | None = None
    """State ids of the empty and the full coalition."""
    _expected: ExpectedCredit | None = None

    @property
    def players(self) -> int:
        """M."""
        players = self.setup.players
        counts = {"features": players.features, "nodes": players.nodes, "edges": players.edges}
        return counts.get(self.side, players.features + players.nodes)

    @property
    def memory(self) -> int:
        """Bytes that coalitions, and a fit to their values, may take."""
        return self.query.memory

    @property
    def calls(self) -> int:
        """Number of distinct perturbed graphs that have been evaluated; derivatives count as 3."""
        return super().calls + (self._expected.calls if self._expected else 0)

    @property
    def probabilities(self) -> bool:
        """Whether the explained scores are on the scale of probabilities."""
        return self.query.model.scale == "probability"

    def end_states(self) -> Ids:
        """State ids of the empty and the full coalition."""
        if self._end_states is None:
            self._end_states = self._numbered(empty_and_full(self.players))
        return self._end_states

    def states(self, rows: Bools) -> Ids:
        """State ids of coalitions [coalitions, M]; the empty and the full one come first."""
        self.end_states()
        return self._numbered(rows)

    def raw(self, states: Ids) -> Tensor:
        """Raw outputs of states, [states, centres, outputs]."""
        self.values(states)
        return cast(Tensor, self._raw).index_select(0, torch.from_numpy(states))

    def played(self) -> Tensor:
        """Raw outputs of all states that have been evaluated."""
        raw = cast(Tensor, self._raw)
        return raw[torch.from_numpy(self._evaluated[: len(raw)])]

    @property
    def full_output(self) -> Tensor | None:
        """Raw outputs of the full coalition, [centres, outputs]; None: not evaluated."""
        full = int(self.end_states()[1])
        return cast(Tensor, self._raw)[full] if self._evaluated[full] else None

    def _store(self, states: Ids, out: Tensor) -> None:
        """Store raw outputs of `states` (ascending ids) and their scores."""
        on_cpu = out.cpu()  # one copy, and no waits for the device; a decoder stays where it is
        scores = self.query.scores(on_cpu if self.query.decoder is None else out)
        self._values = self._with(self._values, states, scores.cpu())
        self._raw = self._with(self._raw, states, on_cpu)
        self._evaluated[states] = True

    @cached_property
    def most_look_ups(self) -> int:
        """How many coalitions take about half a second as look-ups of states; 0: none are."""
        # Other generators add edges, of which states are many.
        removes_only = self.side == "edges" or trait(self.generator, "blocks_paths")
        states = self.evaluator.states(self.setup.field)
        if states is None or self.side not in ("nodes", "edges") or not removes_only:
            return 0
        return _most_look_ups(states, self.players, lambda rows: self.perturbed(rows)[1])

    @cached_property
    def seconds_of_call(self) -> float | None:
        """What a call costs, by a count; None: all layers have kernels, its cost is known."""
        if self.looks_up:
            return None
        if self.evaluator.has_kernels or self.evaluator.seconds_of_call is not None:
            return self.evaluator.seconds_of_call
        rng = np.random.default_rng(0)
        rows = rng.random((_PROBES, self.players)) < rng.random((_PROBES, 1))
        field, perturbations = self.perturbed(rows)
        hops = self.evaluator.hop_counts(field, perturbations)

        def seconds(count: int) -> float:
            part = perturbations.take(slice(0, count))
            return counted_seconds(lambda: self.evaluator.evaluate(field, part, hops[:count]))

        few = seconds(1)
        if not self.evaluator.batched:
            return few
        return max(seconds(_PROBES) - few, 0.0) / (_PROBES - 1) + few / _BATCH

    def coalitions_for(self, budget: int) -> list[int]:
        """Coalitions that a budget of model calls allows: each costs a call."""
        return [budget]

    def count_new(self, states: Ids) -> int:
        """How many of these states have not been evaluated."""
        return int(np.count_nonzero(~self._evaluated[np.unique(states)]))

    def _split(self, rows: Bools, players: Players | None = None) -> tuple[Bools, Bools]:
        players, count = players or self.setup.players, len(rows)
        if self.side == "joint":
            return rows[:, : players.features], rows[:, players.features :]
        if self.side == "features":
            return rows, np.full((count, players.nodes), self.rest_on)
        if self.side == "edges":
            return np.ones((count, players.features), dtype=bool), rows
        return np.full((count, players.features), self.rest_on), rows

    def _numbered(self, rows: Bools) -> Ids:
        """State ids; coalitions that differ only where there is no influence share one."""
        ids = [no_ids()]
        for first in range(0, len(rows), self._step):
            part = rows[first : first + self._step]
            ids.append(self._number(part, *self._relevant(part)))
        return np.concatenate(ids)

    @cached_property
    def _step(self) -> int:
        """Number of coalitions whose perturbed graphs are made together."""
        field, graph = self.setup.field, self.query.graph
        size, edges = field.size, len(field.edges)
        changes_edges = self.side == "edges" or not trait(self.generator, "blocks_paths")
        block_bytes = min(_BLOCK_BYTES, max(_LEAST_BLOCK_BYTES, self.memory // 8))
        # Searches keep two bits for each edge, graphs with edges of their own some bytes more.
        step = block_bytes // (16 * size + edges // 4 + 2 * edges * changes_edges)
        if self.side in ("features", "joint"):
            row_bytes = self.setup.num_feature_nodes * graph.num_features * graph.x.element_size()
            step = min(step, self.memory // (4 * max(1, row_bytes)))
        return max(1, step)

    def _relevant(self, rows: Bools) -> list[Bools]:
        """What can matter of perturbed graphs: where it is equal, so is the state."""
        if self.side == "features":  # the graph is the same for all coalitions
            return [rows]
        perturbations, hops = self._perturb(rows)
        features_on, _ = self._split(rows)
        field = self.setup.field
        live = hops < UNREACHABLE
        # Two coalitions are one state if nothing that can matter differs: nodes, edges, features.
        of_graph = self.query.kind == "graph" and not perturbations.removes_rows
        parts = [live] if self.evaluator.local else []
        if not self.evaluator.local and not of_graph:
            parts.append(perturbations.active)
        if of_graph or perturbations.changes_edges:
            edges = perturbations.active_edges(field)
            parts.append(edges & live[:, field.target] if self.evaluator.local else edges)
        # A generator that says nothing of its feature rows may have changed them in any way.
        feature_rows = trait(self.generator, "feature_rows")
        if feature_rows == "any":
            names = _names_of_rows(perturbations.feature_table)
            parts.append(np.where(live, names[perturbations.feature_rows()], 0))
        elif feature_rows == "by_mask":
            parts += [live & (perturbations.feature_rows() >= field.size), features_on]
        elif self.side == "joint":
            parts.append(features_on)
        return parts

    def _evaluate(self, new: Ids, requested: Bools) -> None:  # noqa: ARG002  (only new ones)
        for first in range(0, len(new), self._step):
            part = new[first : first + self._step]
            graphs = self._perturb(self._rows[part])
            self._store(part, self.evaluator.evaluate(self.setup.field, *graphs))

    def _perturb(self, rows: Bools) -> tuple[Perturbations, HopCounts]:
        """The perturbed graphs of coalitions, and hops from each node to a centre in them."""
        perturbations, field = self.generator(self.setup, *self._split(rows)), self.setup.field
        if self.side != "features":
            return perturbations, self.evaluator.hop_counts(field, perturbations)
        hops = self.evaluator.hop_counts(field, perturbations.take(slice(0, 1)))
        return perturbations, np.broadcast_to(hops, (len(perturbations), field.size))

    def perturbed(self, rows: Bools) -> tuple[Field, Perturbations]:
        """The perturbed graphs of coalitions as the generator makes them, nothing left out."""
        setup = self.full_setup or self.setup
        return setup.field, self.generator(setup, *self._split(rows, setup.players))

    def player_edges(self) -> Bools | None:
        """Edges between players, directly or through nodes that are always active."""
        players, field = self.setup.players, self.setup.field
        blocks_paths = self.side == "nodes" and trait(self.generator, "blocks_paths")
        single_nodes, size = players.nodes == len(players.node_members), field.size
        # In large fields there are too many connected sets to enumerate.
        if not (blocks_paths and self.evaluator.local and single_nodes and size <= _MOST_CONNECTED):
            return None
        inner = field.inner_edges
        sends = np.zeros((size, size), dtype=bool)
        sends[field.target[inner], field.source[inner]] = True
        always = np.ones(size, dtype=bool)
        always[players.node_members] = False
        always[: field.centres] = False
        for node in np.flatnonzero(always):  # contract the node
            sends |= sends[:, node : node + 1] & sends[node]
        to_players = sends[players.node_members][:, players.node_members]
        to_centre = np.asarray(sends[: field.centres][:, players.node_members].any(0))
        return np.concatenate([to_players, to_centre[None]])

    def player_prior(self) -> PlayerPrior | None:
        """Random-walk mass of nodes or edges, and which of them have edges into the centres."""
        field = self.setup.field
        priors = {"nodes": prior_of_nodes, "edges": prior_of_edges}
        if self.side not in priors or self.query.kind == "graph" or not field.centres:
            return None
        steps = self.evaluator.depth or min(int(field.hops.max(initial=0)), _MOST_STEPS)
        return priors[self.side](field, self.setup.players, steps)

    def expected_credit(self, calls: int, seed: int) -> ExpectedCredit | None:
        """Credit of nodes beyond the neighbours by derivatives, for a share of so many calls.

        What they send is one of many messages that are combined on the way, so that the derivative
        of the score by how active they are tells their marginal contributions to a coalition, all
        of them at once. None: not known, or not worth it.
        """
        field, members = self.setup.field, self.setup.players.node_members
        # Another generator may do more with a player than cut it off.
        single_nodes = self.side == "nodes" and len(members) == self.players
        cut_off = single_nodes and self.generator == Isolate()
        if not cut_off or not self.evaluator.has_slopes or (self.evaluator.depth or 0) < 2:
            return None
        beyond_neighbours = field.hops[members] > 1
        coalitions = min(_MOST_SLOPES, calls // _CALLS_PER_SLOPE) // 2 * 2
        few = np.count_nonzero(beyond_neighbours) * _CALLS_A_PLAYER <= calls
        too_large = _BYTES_OF_SLOPES * (field.size + len(field.inner_edges)) > self.memory
        if few or too_large or coalitions < _LEAST_SLOPES:
            return None
        before = self._expected
        if before is None or (before.players.any() and before.coalitions < coalitions):
            outputs, _ = self.query.choose_outputs(self.values(self.end_states())[1])
            columns = slice(outputs[0], outputs[-1] + 1)
            self._expected = expected_by_derivatives(
                partial(self._slopes, columns),
                lambda rows: self.values(self.states(rows))[:, columns].detach().numpy(),
                beyond_neighbours,
                coalitions,
                columns,
                seed,
            )
        return self._expected

    def _slopes(self, columns: slice, rows: Bools) -> Floats | None:
        """Derivatives of scores by how active players are, [coalitions, M, outputs]."""
        perturbations, hops = self._perturb(rows)
        rates = self.evaluator.slopes(
            self.setup.field, perturbations, hops, lambda out: self.query.scores(out)[:, columns]
        )
        if rates is None:
            return None
        slopes: Floats = rates.double().cpu().numpy()[:, self.setup.players.node_members]
        return slopes

    @property
    def reach(self) -> int | None:
        """Hops of the evaluator; None where nodes that are always active shorten paths."""
        players, field = self.setup.players, self.setup.field
        if len(players.node_members) + field.centres < field.size:
            return None
        return self.evaluator.reach


def _most_look_ups(
    states: StateGraphs, players: int, perturb: Callable[[Bools], Perturbations]
) -> int:
    """How many coalitions take about half a second as look-ups.

    0: fewer than are worth it, or random coalitions have too many states.
    """
    most = min(MOST_LOOK_UPS, _LOOK_UP_WORK // (states.work + players))
    if most < FEWEST_LOOK_UPS or not states.may_have_few(FEWEST_LOOK_UPS):
        return 0
    rng = np.random.default_rng(0)
    rows = rng.random((_COUNTED_STATES, players)) < rng.random((_COUNTED_STATES, 1))
    try:
        numbered = states.number(perturb(rows), 2 * _COUNTED_STATES)
    except TooManyStatesError:
        return 0
    if not states.layers.all_fast:
        counted = states.number(perturb(rows[:_COUNTED_SECONDS]))
        seconds = counted_seconds(lambda: states.evaluate(counted, states.model))
        # The last round is computed for each coalition, the others for each state.
        affordable = counted.count(counted.levels) * _LOOK_UP_SECONDS / max(seconds, 1e-9)
        most = min(most, int(affordable) - numbered.count(numbered.levels[:-1]))
    return most if most >= FEWEST_LOOK_UPS else 0


def _names_of_rows(table: Tensor) -> Ids:
    """A number for each row of a table, the same for equal rows, in this table or another one."""
    rows = plain(table).detach().cpu().contiguous()
    return np.fromiter((hash(row.tobytes()) for row in rows.numpy()), np.int64, len(rows))


# How much nodes and edges are expected to matter: random walks from the explained nodes.


_MOST_PASSED = 1 << 22  # entries of a matrix of direct players by players


def prior_of_nodes(field: Field, players: Players, steps: int) -> PlayerPrior | None:
    """Walk mass of node players, and what they pass on; None: no walk meets a player."""
    visits, _ = _walk_masses(field, steps)
    members, owner = players.node_members, players.node_owner
    prior = _prior(owner, visits[members], field.hops[members] <= 1, players.nodes)
    if prior is None or steps < 2 or len(owner) != players.nodes:
        return prior
    direct = members[prior.direct]
    received = _messages(field)[direct]
    if not len(direct) or len(direct) * len(members) > _MOST_PASSED:
        return replace(prior, received=received)
    inner = field.inner_edges[field.source[field.inner_edges] != field.target[field.inner_edges]]
    source, target = field.source[inner], field.target[inner]
    shares = csr_array((1 / _messages(field)[target], (target, source)), shape=(field.size,) * 2)
    return replace(prior, passed=shares[direct][:, members].toarray(), received=received)


def prior_of_edges(field: Field, players: Players, steps: int) -> PlayerPrior | None:
    """Walk mass of edge players; None: no walk takes one."""
    _, uses = _walk_masses(field, steps)
    members = players.edge_members
    mass = uses[np.searchsorted(field.inner_edges, members)]
    return _prior(players.edge_owner, mass, field.target[members] < field.centres, players.edges)


def _prior(owner: Ids, mass: Floats, direct: Bools, players: int) -> PlayerPrior | None:
    """Sums over the members of each player; those without mass get a tenth of the least mass."""
    relevance = np.bincount(owner, mass, players)
    if not relevance.any():
        return None
    least = relevance[relevance > 0].min()
    return PlayerPrior(np.maximum(relevance, least / 10), np.bincount(owner, direct, players) > 0)


def _messages(field: Field) -> Floats:
    """Number of messages that each node of the field combines, its own included."""
    in_degree = np.bincount(field.target, minlength=field.size)[: field.size]
    return 1 + in_degree.astype(np.float64)


def _walk_masses(field: Field, steps: int) -> tuple[Floats, Floats]:
    """How often a random walk against the edges from the centres is at each node of the field,
    and how often it takes each inner edge, within `steps` steps; it may also stay where it is.

    In expectation, the influence of a node's features on the output of a message-passing network
    goes with this mass (Xu et al. 2018, theorem 1).
    """
    source, target = field.source[field.inner_edges], field.target[field.inner_edges]
    leave = 1 / _messages(field)
    at = np.zeros(field.size)
    at[: field.centres] = 1 / field.centres
    visits, uses = np.zeros(field.size), np.zeros(len(source))
    for _ in range(steps):
        moving = at * leave
        uses += moving[target]
        at = moving + np.bincount(source, moving[target], field.size)
        visits += at
    return visits, uses
