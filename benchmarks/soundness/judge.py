"""One game: an explanation, and what brute force says about it."""

from __future__ import annotations

import random
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from benchmarks.soundness.graphs import positions_by_ends
from benchmarks.soundness.oracle import Oracle, Perturbation, Players, Question, perturb
from graphsvx import GraphSVX, explain
from graphsvx.core.field import Perturbations
from graphsvx.errors import GraphSVXError, ModelError
from graphsvx.generators.replace import ReplaceRows
from graphsvx.masks import Auto, Mask
from graphsvx.results.explanation import Explanation
from graphsvx.testing.oracle import cut, distances, shapley_values

MOST_PLAYERS = 7
"""Games with more players are not enumerated: a sample of their coalitions is compared."""
COMPARED = 20
"""Played coalitions of a game that are compared with single calls."""


@dataclass(frozen=True, eq=False)
class World:
    """A model, a graph, and a question about them."""

    label: str
    model: Callable[..., Any]
    data: Data
    question: Question
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of `GraphSVX`."""
    generator: str | None = None
    """A generator in place of GraphSVX's own, one of `GENERATORS`."""
    seed: int = 0
    memory: int = 512 * 2**20
    enumerated: int = MOST_PLAYERS
    """Players up to which exact games are enumerated."""


@dataclass(frozen=True)
class Verdict:
    """What came of one game."""

    family: str
    seed: int
    label: str
    outcome: str
    """"right", "wrong", "crashed", "refused", "needless" (refused although single calls on the
    whole graph work) or "unplayable"."""
    detail: str = ""
    exact: bool = False
    """Whether the certificate claims exact values."""
    checked: bool = False
    """Whether the certificate claims that checks passed."""
    evaluator: str = ""
    """The certificate's words about the way that was taken."""
    compared: int = 0
    """Values that were compared."""
    missing: bool = False
    """Whether a node matters that is no player, although all that matter were asked for."""
    seconds: float = 0.0
    """Time of the last explanation."""

    @property
    def failed(self) -> bool:
        """Whether the library said something wrong without a word, or fell over."""
        return self.outcome == "crashed" or (
            self.outcome == "wrong" and (self.exact or self.checked)
        )


@dataclass(eq=False, repr=False)
class Recorder:
    """A mask that keeps the coalitions that another one chose, with their game."""

    mask: Mask
    games: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return repr(self.mask)

    @property
    def separate(self) -> bool:
        """As the recorded mask has it."""
        return self.mask.separate

    def __call__(self, game: Any, budget: int, rng: torch.Generator) -> Any:
        masks = self.mask(game, budget, rng)
        self.games[game.side] = (game, masks)
        return masks


class WrongError(Exception):
    """A number of the explanation is not what brute force gives."""

    explanation: Explanation | None = None


class NeedlessError(Exception):
    """The library refused a model that works."""


class UnplayableError(Exception):
    """The game cannot be built, or the model itself fails on a perturbed graph."""


@dataclass(frozen=True, eq=False)
class Judged:
    """An explanation that is right, or the last one of several."""

    explanation: Explanation
    compared: int
    missing: bool
    seconds: float


@dataclass(frozen=True)
class Dim:
    """A generator of one's own: a switched-off node keeps its edges and half of its features."""

    blocks_paths = False

    def prepare(self, setup: Any, rng: torch.Generator) -> Dim:  # noqa: ARG002  (nothing is drawn)
        """Nothing is drawn."""
        return self

    def __call__(self, setup: Any, features_on: Any, nodes_on: Any) -> Perturbations:  # noqa: ARG002  (a generator's arguments)
        """One perturbed graph a row."""
        field, players, table = setup.field, setup.players, setup.feature_table
        table_twice = torch.cat([table, 0.5 * table])
        rows = np.tile(np.arange(field.size), (len(nodes_on), 1))
        off = ~nodes_on[:, players.node_owner]
        rows[:, players.node_members] += np.where(off, len(table), 0)
        return Perturbations(np.ones((len(nodes_on), field.size), dtype=bool), rows, table_twice)


GENERATORS: dict[str, Callable[[], Any]] = {
    "mean": lambda: ReplaceRows("mean"),
    "zero": lambda: ReplaceRows("zero"),
    "half": Dim,
}


def judge(world: World, draw: random.Random) -> Judged:
    """Explain, compare everything with brute force; raises `WrongError` with what differs."""
    recorder = Recorder(world.settings.get("mask", Auto()))
    chosen = {**world.settings, "mask": recorder}
    if world.generator:
        chosen["generator"] = GENERATORS[world.generator]()
    method = GraphSVX(**chosen)
    started = time.perf_counter()
    try:
        explanation = explain(
            world.model, world.data, method=method, seed=world.seed, memory=world.memory,
            **world.question.arguments(),
        )  # fmt: skip
    except ModelError as error:
        if works_alone(world, draw):
            raise NeedlessError(str(error)) from error
        raise
    seconds = time.perf_counter() - started
    check = _Check(world, explanation, recorder, draw)
    try:
        check()
    except WrongError as error:
        error.explanation = explanation
        raise
    return Judged(explanation, check.compared, check.missing(), seconds)


def judge_sets(world: World, e: Explanation) -> None:
    """Compare the smallest sets that keep or change the predicted class with a full search."""
    oracle = Oracle(world.model, world.data, world.question)
    players = players_of(world, e, Recorder(Auto()))
    count = len(players.nodes)

    def predicted(off: Sequence[int]) -> int:
        changed = perturb(world.data, players, world.question.centres, nodes_off=off)
        return int(oracle.raw(changed)[0][0].argmax())

    def smallest(does: Callable[[set[int]], bool]) -> int | None:
        sizes = (
            size
            for size in range(count + 1)
            if any(does({*chosen}) for chosen in combinations(range(count), size))
        )
        return next(sizes, None)

    everyone = {*range(count)}
    own = predicted([])
    for answer, size in (
        (e.sufficient("class"), smallest(lambda on: predicted(sorted(everyone - on)) == own)),
        (e.flip(), smallest(lambda off: predicted(sorted(off)) != own)),
    ):
        given = len(answer.players) if answer.found else None
        if given != size:
            error = WrongError(f"{answer.question}: {given} players where a search finds {size}")
            error.explanation = e
            raise error


def works_alone(world: World, draw: random.Random) -> bool:
    """Whether the model works on the whole graph with all, some and none of the edges."""
    oracle, edges = Oracle(world.model, world.data, world.question), world.data.num_edges
    edge_masks = [torch.rand(edges) < draw.random() for _ in range(6)]
    try:
        for kept in (torch.ones(edges), *edge_masks, torch.zeros(edges)):
            off = (kept == 0).nonzero()[:, 0].tolist()
            perturbation = Perturbation(cut(world.data, edges=off))
            scores = [oracle.scores(perturbation)[0] for _ in range(2)]
            if not bool(scores[0].isfinite().all()) or not torch.equal(*scores):
                return False
    except Exception:  # the model's own fault
        return False
    return True


@dataclass(eq=False)
class _Check:
    """Compares an explanation with the oracle."""

    world: World
    explanation: Explanation
    recorder: Recorder
    draw: random.Random
    compared: int = 0

    def __post_init__(self) -> None:
        world = self.world
        self.oracle = Oracle(world.model, world.data, world.question)
        self.players = players_of(world, self.explanation, self.recorder)
        self.single = world.data.x.dtype == torch.float32
        self.seen: dict[tuple[frozenset[int], ...], tuple[Tensor, Tensor]] = {}

    def __call__(self) -> None:
        e, players = self.explanation, self.players
        outputs = list(e.outputs)
        counts = (len(players.features), len(players.nodes), len(players.edges))
        everyone = tuple(frozenset(range(count)) for count in counts)
        no_one: tuple[frozenset[int], ...] = (frozenset(), frozenset(), frozenset())
        full = self._value(*everyone)
        one_logit = len(full) == 2 and bool(full[0] == -full[1] != 0) and e.scale == "logit"
        if one_logit and self.world.question.target is None and e.target != 1:
            raise WrongError("explains another class than that of the logit")
        if len(full) <= max(outputs):
            raise WrongError(f"explains output {max(outputs)} of {len(full)}")
        empty = self._value(*no_one)
        games = self._games(everyone, no_one)
        truths: list[tuple[str, Tensor, Tensor]] = [
            ("prediction", e.predictions, full[outputs]),
            ("base", e.bases, empty[outputs]),
        ]
        rows: list[tuple[str, Tensor, Tensor]] = []
        for name, credit, coalition, count in games:
            report = next((game for game in e.certificate.games if game.name == name), None)
            exact = report is not None and report.exact
            if exact and 0 < count <= self.world.enumerated:
                worths: list[Tensor] = []

                def worth(
                    on: frozenset[int], of: Any = coalition, worths: list[Tensor] = worths
                ) -> Tensor:
                    worths.append(self._value(*of(on)))
                    return worths[-1]

                values = shapley_values(range(count), worth)
                truth = torch.stack([*values.values()])
                unsaid = name != "features" and e.certificate.no_influence is None
                if unsaid and all(torch.equal(other, worths[0]) for other in worths):
                    raise WrongError(f"{name} change nothing, and that is not said")
                truths.append((f"{name} credit", credit, truth[:, outputs].t()))
            rows += self._played(name, coalition, count, exact)
        if e.selection is not None:
            truths.append(self._alone(games))
        spread = self._spread()
        for name, given, true in truths:
            limit = self._limit(spread)[outputs]
            self._compare(name, given, true, limit[:, None] if given.dim() == 2 else limit)
        for name, given, true in rows:
            self._compare(name, given, true, self._limit(spread))

    def _alone(self, games: list[Any]) -> tuple[str, Tensor, Tensor]:
        """A Lasso's score with only the players on that it chose."""
        e, row = self.explanation, self.explanation.outputs.index(self.explanation.target)
        played = [count for *_, count in games if count]
        no_one = self._value(frozenset(), frozenset(), frozenset())[e.target]
        score = torch.zeros_like(no_one) if played else no_one
        for _, credit, coalition, count in games:
            if count:
                on = frozenset(p for p in range(count) if float(credit[row, p]) != 0)
                score = score + self._value(*coalition(on))[e.target]
        if len(played) == 2:  # v(features off, nodes on) - v(off)
            score = score - self._value(*games[1][2](frozenset()))[e.target]
        given = torch.tensor(e.selection.alone, dtype=torch.float64)
        others = torch.zeros(len(e.outputs), dtype=torch.float64)
        others[row] = given - score
        return "score of the chosen players alone", others, torch.zeros_like(others)

    def missing(self) -> bool:
        """Whether switching off nodes that are no players changes the prediction."""
        world, players = self.world, self.players
        if not players.nodes or world.settings.get("hops") is not None or players.paths is not None:
            return False
        own = {node for members in players.nodes for node in members}
        others = sorted(set(range(world.data.num_nodes)) - own - set(world.question.centres))
        if not others:
            return False
        limit = self._limit(self._spread())
        full = self._value(*(frozenset(range(len(m))) for m in (
            players.features, players.nodes, players.edges)))  # fmt: skip
        strangers = replace(players, nodes=tuple((node,) for node in others))
        alone = [[at] for at in self.draw.sample(range(len(others)), min(3, len(others)))]
        for off in [*alone, list(range(len(others)))]:
            perturbation = perturb(world.data, strangers, world.question.centres, nodes_off=off)
            try:
                score = self.oracle.scores(perturbation)[0]
            except Exception:  # the model's own fault
                continue
            if bool(((score - full).abs() > limit).any()):
                return True
        return False

    def _games(
        self, everyone: tuple[frozenset[int], ...], no_one: tuple[frozenset[int], ...]
    ) -> list[tuple[str, Tensor, Callable[[frozenset[int]], tuple[frozenset[int], ...]], int]]:
        """Each game's name, credit, who is on in each of its coalitions, and its players."""
        e, (features, nodes, edges) = self.explanation, map(len, everyone)
        if "joint" in self.recorder.games:
            credit = torch.cat([e.feature_credit.values, e.node_credit.values], 1)

            def on_each_side(on: frozenset[int]) -> tuple[frozenset[int], ...]:
                first = frozenset(player for player in on if player < features)
                second = frozenset(player - features for player in on if player >= features)
                return first, second, no_one[2]

            return [("joint", credit, on_each_side, features + nodes)]
        return [
            ("features", e.feature_credit.values, lambda on: (on, no_one[1], no_one[2]), features),
            ("nodes", e.node_credit.values, lambda on: (everyone[0], on, no_one[2]), nodes),
            ("edges", e.edge_credit.values, lambda on: (everyone[0], everyone[1], on), edges),
        ]

    def _value(
        self, features: frozenset[int], nodes: frozenset[int], edges: frozenset[int]
    ) -> Tensor:
        """Scores of a coalition, by one call on the whole graph."""
        key = (features, nodes, edges)
        if key not in self.seen:
            players = self.players
            off = [
                [player for player in range(len(members)) if player not in on]
                for members, on in (
                    (players.features, features), (players.nodes, nodes), (players.edges, edges))
            ]  # fmt: skip
            centres = self.world.question.centres
            perturbation = perturb(self.world.data, players, centres, *off)
            try:
                self.seen[key] = self.oracle.scores(perturbation)
            except Exception as error:
                raise UnplayableError(
                    f"the model fails: {type(error).__name__}: {error}"
                ) from error
        return self.seen[key][0]

    def _spread(self) -> tuple[Tensor, Tensor]:
        """How far the values of each output are apart, and how large numbers behind them are."""
        values = torch.stack([value for value, _ in self.seen.values()])
        sizes = torch.stack([size for _, size in self.seen.values()]).amax(0)
        if self.world.question.scale != "value" or sizes.shape != values.shape[1:]:
            sizes = sizes.max().clamp(min=1).expand(values.shape[1])
        return values.amax(0) - values.amin(0), torch.maximum(sizes, values.abs().amax(0))

    def _limit(self, spread: tuple[Tensor, Tensor]) -> Tensor:
        apart, size = spread
        relative, rounding = (1e-2, 3e-5) if self.single else (1e-5, 1e-11)
        return relative * apart + rounding * size

    def _played(
        self, name: str, coalition: Callable[[frozenset[int]], tuple[frozenset[int], ...]],
        count: int, exact: bool,
    ) -> list[tuple[str, Tensor, Tensor]]:  # fmt: skip
        """Values of coalitions that were played, and what single calls give."""
        if name not in self.recorder.games or not count:
            return []
        game, masks = self.recorder.games[name]
        rows, states = masks.rows, masks.states
        chosen = range(len(rows))
        if len(rows) > COMPARED:
            sizes = rows.sum(1)
            extremes = [int(sizes.argmin()), int(sizes.argmax())]
            chosen = [*extremes, *self.draw.sample(range(len(rows)), COMPARED - 2)]
        rows, states = rows[chosen], states[chosen]
        if exact and count > MOST_PLAYERS:
            # Exact values rest on every coalition: others have the value of a played state.
            others = np.array([[self.draw.random() < 0.5 for _ in range(count)] for _ in range(8)])
            rows, states = (
                np.concatenate([rows, others]),
                np.concatenate([states, game.states(others)]),
            )
        compared = []
        for row, value in zip(rows, game.values(states), strict=True):
            on = frozenset(np.flatnonzero(row).tolist())
            label = f"{name} v({len(on)} of {count} on)"
            compared.append((label, value, self._value(*coalition(on))))
        return compared

    def _compare(self, name: str, given: Tensor, true: Tensor, limit: Tensor) -> None:
        self.compared += given.numel()
        error = (given - true).abs()
        bad = ~(error <= limit.expand_as(error))
        if bool(bad.any()):
            at = tuple(int(i) for i in bad.nonzero()[0])
            raise WrongError(
                f"{name}: {float(given[at]):.6g} where brute force gives {float(true[at]):.6g} "
                f"(allowed {float(limit.expand_as(error)[at]):.1e})"
            )


def players_of(world: World, e: Explanation, recorder: Recorder) -> Players:
    """The players that an explanation names, as members in the user's graph."""
    named = {} if e.groups is None else vars(e.groups)
    groups = {kind: members for kind, members in named.items() if members}

    def members(kind: str, ids: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        if kind in groups:
            return tuple(groups[kind].values())
        return tuple((member,) for member in ids)

    data, settings = world.data, world.settings
    edges: list[tuple[int, ...]] = []
    if e.edge_credit.players:
        where = positions_by_ends(data.edge_index)
        pairs = (
            [[tuple(pair) for pair in group] for group in groups["edges"].values()]
            if "edges" in groups
            else [[tuple(pair)] for pair in e.edge_credit.ids.t().tolist()]
        )
        together = settings.get("directions", "together") == "together" and "edges" not in groups
        for group in pairs:
            ends = {end for pair in group for end in ((pair, pair[::-1]) if together else (pair,))}
            edges.append(tuple(p for pair in ends for p in where.get(pair, ())))
    field = e.field
    feature_nodes = world.question.centres
    if world.question.kind == "graph":
        feature_nodes = tuple(range(data.num_nodes))
    elif settings.get("players") == "subgraph_features":
        hops = settings.get("hops")
        inside = field.hops <= (hops if hops is not None else field.hops.max())
        feature_nodes = tuple(field.ids[inside].tolist())
    indirect = settings.get("indirect", False)
    return Players(
        features=members("features", e.feature_credit.ids.tolist()),
        nodes=members("nodes", e.node_credit.ids.tolist()),
        edges=tuple(edges),
        feature_nodes=feature_nodes,
        reference=_reference(data, settings.get("reference")),
        off_features=_off_features(world),
        keeps_edges=world.generator is not None,
        removed=settings.get("erase") == "rows",
        paths=_paths(world, e, recorder) if indirect else None,
        passing=data.x.double().mean(0) if indirect == "mean" else (
            data.x[world.question.centres[0]] if indirect else None),
    )  # fmt: skip


def _off_features(world: World) -> Tensor | None:
    """Features of switched-off nodes, where they lose their own."""
    x = world.data.x
    if world.generator == "half":
        return 0.5 * x
    if world.generator == "zero":
        return torch.zeros_like(x)
    if world.generator == "mean":
        return x.double().mean(0).expand(x.shape)
    if world.settings.get("erase") is True:
        return _reference(world.data, world.settings.get("reference")).expand(x.shape)
    return None


def _reference(data: Data, given: Any) -> Tensor:
    if given is None:
        return data.x.double().mean(0)
    if isinstance(given, int):
        return data.x[given].double()
    if isinstance(given, str):
        return data.x[data.y == int(given.removeprefix("class:"))].double().mean(0)
    return torch.tensor(given, dtype=torch.float64)


def _paths(world: World, e: Explanation, recorder: Recorder) -> dict[int, tuple[int, ...]]:
    """The drawn path of each node to a centre, as the generator says, checked to be shortest."""
    game = next(
        (recorder.games[name][0] for name in ("nodes", "joint") if name in recorder.games), None
    )
    if game is None:
        return {}
    area, following = game.setup.field, game.generator.paths.following
    ids = area.ids.tolist()
    inside = set(ids[: area.size])
    ends = [(u, v) for u, v in world.data.edge_index.t().tolist() if {u, v} <= inside]
    steps, used = distances(ends, e.centres), set(ends)
    found = {}
    for local in range(len(e.centres), area.size):
        node, at, path = ids[local], local, [ids[local]]
        while following[at] >= 0:
            at = int(following[at])
            path.append(ids[at])
        if len(path) == 1:
            if node in steps:
                raise WrongError(f"node {node} has no path, but {steps[node]} steps to a centre")
            continue
        if not all(pair in used for pair in pairwise(path)) or len(path) - 1 != steps.get(node):
            raise WrongError(f"the path of node {node} is no shortest path: {path}")
        found[node] = tuple(path)
    return found


def verdict(family: str, seed: int, label: str, play: Callable[[], Judged]) -> Verdict:
    """Play a game and say what came of it."""
    judged: Judged | None = None
    explanation: Explanation | None = None
    outcome, detail = "right", ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            judged = play()
            explanation = judged.explanation
        except GraphSVXError as error:
            outcome, detail = "refused", f"{type(error).__name__}: {error}"
        except NeedlessError as error:
            outcome, detail = "needless", str(error)
        except UnplayableError as error:
            outcome, detail = "unplayable", str(error)
        except WrongError as error:
            outcome, detail, explanation = "wrong", str(error), error.explanation
        except Exception as error:  # whatever falls over is what is looked for
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(frame.filename).name}:{frame.lineno}"
            outcome, detail = "crashed", f"{type(error).__name__}: {error} ({where})"
    certificate = None if explanation is None else explanation.certificate
    return Verdict(
        family, seed, label, outcome, detail,
        exact=certificate is not None and certificate.exact,
        checked=certificate is not None and bool(certificate.checks),
        evaluator="" if certificate is None else certificate.fallback or "shortcuts",
        compared=judged.compared if judged else 0,
        missing=judged.missing if judged else False,
        seconds=judged.seconds if judged else 0.0,
    )  # fmt: skip
