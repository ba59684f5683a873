"""Against the model: what happens to the prediction without, or with only, the explanation?

Nodes are taken away as in Eq. 2 (their edges go, in a graph question their features too), edges
are cut, features go to their mean. So nothing is left of them for degree-normalising layers to
count, unlike with PyG's masks, which scale messages and leave the degrees as they were.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from torch_geometric.explain.metric import characterization_score

from graphsvx.baselines.stage import play
from graphsvx.engine import field as fields
from graphsvx.engine.states import Bools, States
from graphsvx.engine.survey import Survey, survey
from graphsvx.errors import InputError, UnsupportedError
from graphsvx.explanation import Explanation, Ranking
from graphsvx.metrics.select import Key, Level, level_of, scores, top_keys, top_positions
from graphsvx.model import Output, Scale, left_as_found
from graphsvx.query import Query, ask

Compared = Literal["probability", "label"]


class Fidelity(NamedTuple):
    """fidelity+ (without the explanation; high is good) and fidelity- (only it; low is good)."""

    plus: float
    minus: float


def fidelity(
    explanation: Explanation,
    model: Callable[..., Any],
    data: Any,
    *,
    top: float = 0.2,
    compare: Compared = "probability",
    by: Ranking = "value",
    level: Level | None = None,
    output: Output = "raw",
) -> Fidelity:
    """How much of the prediction goes with the explanation, and how much stays with it alone.

    fidelity+ = f(G) - f(G without S) and fidelity- = f(G) - f(S only), S the `top` players
    (a number, or a share below 1), with f the explained score ("probability") or 1 if the
    predicted class is that of the whole graph ("label").

    PyG's `fidelity` agrees with "label" for hard masks on layers that do not normalise by degree
    (tested); it has no "probability", and soft masks enter it as they are, so that a method that
    gives all edges 0.6 is scored on a graph that nobody asked about.
    """
    if compare not in ("probability", "label"):
        raise InputError(f'compare must be "probability" or "label", got {compare!r}')
    whole, without, only = _three(explanation, model, data, _Choice(top, by, level, output))
    if compare == "label":
        if explanation.scale == "value":
            raise UnsupportedError('a regression has no label; use compare="probability"')
        label = whole.argmax()
        return Fidelity(float(without.argmax() != label), float(only.argmax() != label))
    target = explanation.target
    return Fidelity(float((whole - without)[target]), float((whole - only)[target]))


def characterization(plus: float, minus: float, weights: tuple[float, float] = (0.5, 0.5)) -> float:
    """The weighted harmonic mean of fidelity+ and 1 - fidelity- (GraphFramEx), PyG's function.

    Defined for fidelities in [0, 1]; differences of scores can leave it, and are clamped.
    """
    clamped = torch.tensor([plus, minus], dtype=torch.float64).clamp(0, 1)
    return float(characterization_score(clamped[0], clamped[1], *weights))


def unfaithfulness(
    explanation: Explanation,
    model: Callable[..., Any],
    data: Any,
    *,
    top: float = 0.2,
    by: Ranking = "value",
    level: Level | None = None,
    output: Output = "raw",
) -> float:
    """GEF = 1 - exp(-KL(y || y')): 0 if the `top` players alone give the same probabilities.

    y are the class probabilities on the whole graph, y' on the explanation alone, as GraphXAI
    writes it. PyG documents the same but computes KL(y' || y): its arguments are swapped.
    """
    if explanation.scale == "value":
        raise UnsupportedError("unfaithfulness compares class probabilities, got a regression")
    whole, _, only = _three(
        explanation, model, data, _Choice(top, by, level, output, "probability")
    )
    # A class that neither graph gives any probability adds nothing.
    terms = torch.where(whole > 0, whole * (whole.log() - only.log()), torch.zeros_like(whole))
    return float(1 - torch.exp(-terms.sum().clamp(min=0)))


def sparsity(
    explanation: Explanation,
    *,
    top: float | None = None,
    level: Level | None = None,
    threshold: float = 0.01,
) -> float:
    """1 - |S| / |players|: how much of the graph the explanation leaves out.

    S are the `top` players, or, without `top`, those with at least `threshold` of the largest
    magnitude. Soft masks and signed credit have no zeros to count, so S must be said.
    """
    keys, values = scores(explanation, level or level_of(explanation))
    if not keys:
        return 1.0
    if top is not None:
        return 1 - len(top_positions(values, top, "absolute")) / len(keys)
    size = values.abs()
    if float(size.max()) == 0:
        return 1.0
    return 1 - float((size >= threshold * size.max()).double().mean())


def efficiency_residual(explanation: Explanation) -> float:
    """|prediction - base - total|: 0 for the Shapley family, whatever it is for the others."""
    return abs(explanation.prediction - explanation.base - explanation.total)


# --- playing the explanation ----------------------------------------------------------


def question(
    explanation: Explanation,
    model: Callable[..., Any],
    data: Any,
    output: Output,
    scale: Any = None,
) -> Query:
    """The question that an explanation answers, asked again."""
    if explanation.kind not in ("node", "nodes", "graph"):
        raise UnsupportedError(
            f"only explanations of nodes and graphs can be played again, got {explanation.kind!r}"
        )
    kind = explanation.kind
    return ask(
        model,
        data,
        node=explanation.centres[0] if kind == "node" else None,
        nodes=list(explanation.centres) if kind == "nodes" else None,
        graph=kind == "graph",
        target=explanation.target,
        output=output,
        scale=scale or cast(Scale, explanation.scale),
    )


@dataclass(frozen=True)
class _Choice:
    """Which players are the explanation, and how the model is read."""

    top: float
    by: Ranking
    level: Level | None
    output: Output
    scale: Scale | None = None


def _three(
    explanation: Explanation, model: Callable[..., Any], data: Any, choice: _Choice
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores [outputs] of the whole graph, of it without the explanation, and of that alone."""
    level = choice.level or level_of(explanation)
    query = question(explanation, model, data, choice.output, choice.scale)
    keys, _ = scores(explanation, level)
    if not keys:
        raise InputError(f"the explanation has no {level} to take away; choose another level")
    chosen = set(top_keys(explanation, choice.top, choice.by, level))
    kept = np.ones((3, len(keys)), dtype=bool)
    kept[1] = [key not in chosen for key in keys]
    kept[2] = ~kept[1]
    with left_as_found(query.model.parts):
        found = survey(query, None, explanation.certificate.seed)
        states = _Taken(query, found, keys, level)(kept)
        whole, without, only = play(query, found, states)
    return whole, without, only


@dataclass(frozen=True, eq=False)
class _Taken:
    """Perturbed graphs in which some of the explanation's players are taken away."""

    query: Query
    found: Survey
    keys: list[Key]
    level: Level

    def __call__(self, kept: Bools) -> States:
        area, graph = self.found.field, self.query.graph
        table = graph.x.index_select(0, fields.tensor(area.ids, graph.x.device))
        on = np.ones((len(kept), area.size), dtype=bool)
        rows = np.tile(np.arange(area.size), (len(kept), 1))
        mean = graph.statistics.mean.to(table)[None]
        if self.level == "nodes":
            place: dict[Key, int] = {int(node): i for i, node in enumerate(area.ids[: area.size])}
            known = np.array([key in place for key in self.keys])
            where = [place[key] for key in self.keys if key in place]
            on[:, where] = kept[:, known]
            if self.query.kind == "graph":
                rows = np.where(on, rows, len(table))
            return States(on, rows, torch.cat([table, mean]))
        if self.level == "edges":
            taken = {key: kept[:, i] for i, key in enumerate(self.keys)}
            ends = zip(area.ids[area.source].tolist(), area.ids[area.target].tolist(), strict=True)
            always = np.ones(len(kept), dtype=bool)
            cut = ~np.stack([taken.get(pair, always) for pair in ends], 1)
            return States(on, rows, table, cut=cut)
        if not area.centres:
            raise UnsupportedError("features of a graph question belong to no node: use nodes")
        columns = torch.tensor([int(key) for key in self.keys])  # type: ignore[arg-type]  # feature keys are ints
        new = table[: area.centres].repeat(len(kept), 1, 1)
        off = torch.from_numpy(~kept)[:, None, :].to(table.device)
        new[:, :, columns] = torch.where(off, mean[0, columns], new[:, :, columns])
        first = len(table) + np.arange(len(kept))[:, None] * area.centres
        rows[:, : area.centres] = first + np.arange(area.centres)
        return States(on, rows, torch.cat([table, new.flatten(0, 1)]))
