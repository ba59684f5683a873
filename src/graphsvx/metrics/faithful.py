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

from graphsvx.core import arrays
from graphsvx.core.arrays import Bools
from graphsvx.core.model import Output, Scale, evaluation_mode
from graphsvx.core.perturbation import Perturbations
from graphsvx.core.query import Query, build_query
from graphsvx.engine.evaluator import Evaluator, choose_evaluator
from graphsvx.errors import InputError, UnsupportedError
from graphsvx.methods.local_graph import perturbed_scores
from graphsvx.metrics.select import Key, Level, level_of, scores, top_keys, top_positions
from graphsvx.results.explanation import Explanation, Ranking

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
    full, without, only = _three(explanation, model, data, _Choice(top, by, level, output))
    if compare == "label":
        if explanation.scale == "value":
            raise UnsupportedError('a regression has no label; use compare="probability"')
        label = full.argmax()
        return Fidelity(float(without.argmax() != label), float(only.argmax() != label))
    target = explanation.target
    return Fidelity(float((full - without)[target]), float((full - only)[target]))


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
    full, _, only = _three(explanation, model, data, _Choice(top, by, level, output, "probability"))
    # A class that neither graph gives any probability adds nothing.
    terms = torch.where(full > 0, full * (full.log() - only.log()), torch.zeros_like(full))
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
    return build_query(
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
    on = np.ones((3, len(keys)), dtype=bool)
    on[1] = [key not in chosen for key in keys]
    on[2] = ~on[1]
    with evaluation_mode(query.model.submodules):
        evaluator = choose_evaluator(query, None, explanation.certificate.seed)
        perturbations = _Perturbed(query, evaluator, keys, level)(on)
        full, without, only = perturbed_scores(query, evaluator, perturbations)
    return full, without, only


@dataclass(frozen=True, eq=False)
class _Perturbed:
    """Perturbed graphs in which some of the explanation's players are taken away."""

    query: Query
    evaluator: Evaluator
    keys: list[Key]
    level: Level

    def __call__(self, keys_on: Bools) -> Perturbations:
        field, graph = self.evaluator.field, self.query.graph
        table = graph.x.index_select(0, arrays.as_tensor(field.ids, graph.x.device))
        on = np.ones((len(keys_on), field.size), dtype=bool)
        rows = np.tile(np.arange(field.size), (len(keys_on), 1))
        mean = graph.statistics.mean.to(table)[None]
        if self.level == "nodes":
            place: dict[Key, int] = {int(node): i for i, node in enumerate(field.ids[: field.size])}
            known = np.array([key in place for key in self.keys])
            where = [place[key] for key in self.keys if key in place]
            on[:, where] = keys_on[:, known]
            if self.query.kind == "graph":
                rows = np.where(on, rows, len(table))
            return Perturbations(on, rows, torch.cat([table, mean]))
        if self.level == "edges":
            taken = {key: keys_on[:, i] for i, key in enumerate(self.keys)}
            ends = zip(
                field.ids[field.source].tolist(), field.ids[field.target].tolist(), strict=True
            )
            always = np.ones(len(keys_on), dtype=bool)
            cut = ~np.stack([taken.get(pair, always) for pair in ends], 1)
            return Perturbations(on, rows, table, removed_edges=cut)
        if not field.centres:
            raise UnsupportedError("features of a graph question belong to no node: use nodes")
        columns = torch.tensor([int(key) for key in self.keys])  # type: ignore[arg-type]  # feature keys are ints
        new = table[: field.centres].repeat(len(keys_on), 1, 1)
        off = torch.from_numpy(~keys_on)[:, None, :].to(table.device)
        new[:, :, columns] = torch.where(off, mean[0, columns], new[:, :, columns])
        first = len(table) + np.arange(len(keys_on))[:, None] * field.centres
        rows[:, : field.centres] = first + np.arange(field.centres)
        return Perturbations(on, rows, torch.cat([table, new.flatten(0, 1)]))
