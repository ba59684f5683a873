"""Explanations and what the page shows of them, kept in memory for the next request."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from itertools import count, takewhile
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from graphsvx.api import explain
from graphsvx.core.types import relation_labels
from graphsvx.errors import UnsupportedError
from graphsvx.explorer.overview import finite, hops_away
from graphsvx.explorer.predictions import scores_after
from graphsvx.explorer.questions import Changes, Limits, Question
from graphsvx.explorer.workspace import Workspace
from graphsvx.methods import registry
from graphsvx.metrics import Fidelity, Level, expected_error, fidelity, level_of, scores, similarity
from graphsvx.results.credit import SEVERAL, Credit, Region, TypeCredit
from graphsvx.results.explanation import Explanation
from graphsvx.utils.printable import one_line
from graphsvx.views.html import Placement, page_data, plan_of
from graphsvx_lab.datasets.real import ATOMS

FIRST, GROWTH = 100, 3
"""Model calls of the first, quick estimate, and how much more the next ones have."""
TOGETHER = 12
"""Pairs of players in the list of interactions."""

_STEPS = (1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 32, 40)


class Answers:
    """Answers questions about a workspace. Only one thread at a time may ask for explanations."""

    def __init__(self, workspace: Workspace, limits: Limits) -> None:
        self.workspace, self.limits = workspace, limits
        self._explained = lru_cache(limits.cached)(self._explain)
        self._scores = lru_cache(4 * limits.cached)(partial(scores_after, changes=Changes()))
        self._plans: dict[tuple[Any, ...], Placement | None] = {}

    def explanation(self, question: Question) -> Explanation:
        """The explanation with the names of nodes and features, for the asked target."""
        explains_all = self._explains_all(question)
        key = replace(question, target=None if explains_all else question.target, rather_than=None)
        explanation = self._explained(key)
        if question.target is not None:
            explanation = explanation.for_target(question.target)
        if question.rather_than is not None:
            explanation = explanation.contrast(explanation.target, question.rather_than)
        return explanation

    def _explains_all(self, question: Question) -> bool:
        """Whether all outputs are explained from the same model calls."""
        if question.stored:
            return True
        outputs = len(self.original_scores(question))
        return question.method.startswith("graphsvx") and outputs <= self.limits.outputs

    def _explain(self, question: Question) -> Explanation:
        workspace = self.workspace
        if question.stored:
            return self._named(workspace.run[question.which[0] - workspace.run_start])
        settings = {name: getattr(question, name) for name in ("samples", "players", "order")}
        changed = {name: value for name, value in settings.items() if value is not None}
        explanation = explain(
            workspace.models[question.model],
            workspace.graphs[question.graph],
            **workspace.asked(question),
            method=registry.method(question.method, **changed),
            target=question.target,
            targets="all" if self._explains_all(question) else None,
            output=workspace.output,
            scale=workspace.asked_scale,
            class_names=None if question.kind == "link" else workspace.class_names,
            seed=question.seed,
        )
        if question.kind == "graph":
            explanation = replace(explanation, graph_index=question.which[0])
        return self._named(explanation)

    def _named(self, explanation: Explanation) -> Explanation:
        workspace = self.workspace

        def named(credit: Credit, name: Callable[[int], str]) -> Credit:
            if credit.names is not None or not credit.players:
                return credit
            return replace(credit, names=tuple(map(name, credit.ids.tolist())))

        nodes, features = explanation.node_credit, explanation.feature_credit
        if workspace.atoms and workspace.live and explanation.kind == "graph":
            kinds = workspace.graphs[explanation.graph_index or 0].x.argmax(1).tolist()
            nodes = named(nodes, lambda atom: f"{ATOMS[kinds[atom]]}{atom}")
        if workspace.node_names is not None:
            nodes = named(nodes, workspace.node_name)
        if workspace.feature_names is not None:
            features = named(features, workspace.feature_name)
        return replace(explanation, node_credit=nodes, feature_credit=features)

    def original_scores(self, question: Question) -> list[float]:
        """The model's scores of all outputs for the graph as it is."""
        plain = Question(question.kind, question.which, question.model, relation=question.relation)
        return list(self._scores(self.workspace, plain).tolist())

    def record(self, question: Question) -> dict[str, Any]:
        """What the page shows: the record of the one-file page, with how far the estimate is."""
        explanation = self.explanation(question)
        layout_key = (question.kind, question.which, question.stored, question.players)
        fits = (len(explanation.field.ids), tuple(explanation.field.edge_index.shape))
        # Nodes are drawn at the same place in all estimates of a question.
        if (layout_key, fits) not in self._plans:
            if len(self._plans) >= self.limits.cached:
                self._plans.pop(next(iter(self._plans)))
            self._plans[layout_key, fits] = plan_of(explanation, starts=2)
        plan = self._plans[layout_key, fits]
        data = self.workspace.graphs[question.graph] if self.workspace.live else None
        certificate = explanation.certificate
        return {
            **page_data(explanation, data, plan, feature_names=self.workspace.feature_names),
            "groups": self._groups(explanation),
            "together": _together(explanation),
            "progress": {
                "calls": certificate.calls,
                "samples": question.samples,
                "status": certificate.status,
                "relativeError": finite(math.sqrt(expected_error(explanation))),
            },
        }

    def _groups(self, explanation: Explanation) -> dict[str, list[dict[str, Any]]]:
        """Credit of the chosen output by distance, neighbour, type and relation, with errors."""
        types, node_name = explanation.types, self.workspace.node_name
        hops, branches, relations = list[Region](), list[Region](), dict[str, TypeCredit]()
        if explanation.kind == "node" and explanation.node_credit.players:
            hops, branches = explanation.by_hop(), explanation.branches()
        if types is not None:
            labels = dict(zip(types.edge_types, relation_labels(types.edge_types), strict=True))
            for name, part in explanation.edges.items():
                between = labels[name] if types.flat else f"{name[0]} –{labels[name]}→ {name[2]}"
                relations[between] = part
        return {
            "hops": [_region(region, hops_away(region.key)) for region in hops],
            "branches": [
                _region(r, r.name if r.key == SEVERAL else f"via {node_name(r.key)}")
                for r in branches
            ],
            "types": _sums(explanation.nodes) if explanation.hetero is not None else [],
            "relations": _sums(relations),
        }

    def budgets(self, question: Question) -> list[int]:
        """Model calls of the successive estimates of a stream."""
        last = question.samples or self.limits.samples
        growing = (FIRST * GROWTH**step for step in count())
        return [*takewhile(lambda budget: budget < last, growing), last]

    def is_done(self, question: Question, record: dict[str, Any]) -> bool:
        """Whether more model calls would not be asked for."""
        progress = record["progress"]
        if progress["status"] != "estimated":
            return True
        error = progress["relativeError"]
        return question.samples is None and (error is None or error <= self.limits.tolerance)


def _entry(value: float, error: float, **others: Any) -> dict[str, Any]:
    """A value with its error as the page reads them."""
    return {**others, "value": finite(value), "error": finite(error)}


def _region(region: Region, name: str) -> dict[str, Any]:
    return _entry(region.value, region.error, name=name, nodes=len(region.members))


def _sums(parts: Mapping[str, TypeCredit]) -> list[dict[str, Any]]:
    """Credit of types or relations; the error of a sum is known where all terms are exact."""
    return [
        _entry(
            part.total, math.nan if part.errors.any() else 0.0, name=one_line(name), nodes=len(part)
        )
        for name, part in sorted(parts.items(), key=lambda item: -abs(item[1].total))
    ]


def _together(explanation: Explanation) -> list[dict[str, Any]]:
    """The pairs of players that interact most, for the chosen output."""
    pairs = explanation.together(TOGETHER) if explanation.interactions is not None else []
    return [
        _entry(pair.value, pair.error, players=list(map(one_line, pair.players))) for pair in pairs
    ]


def refinable(question: Question) -> bool:
    """Whether the method takes a number of model calls that can be raised step by step."""
    return question.method == "graphsvx" and not question.stored


def agreement_of(first: Explanation, second: Explanation) -> dict[str, Any]:
    """Agreement of two explanations over the union of their players, and both credits of each.

    `spearman`: rank correlation of the credit; `cosine`: of the credit vectors; `overlap`: shared
    players among the ten (or fewer) with the most absolute credit.
    """
    level: Level = level_of(first) if level_of(first) == level_of(second) else "nodes"
    a, b = (dict(zip(*_credit(explanation, level), strict=True)) for explanation in (first, second))
    keys = sorted({*a, *b}, key=lambda key: -max(abs(a.get(key, 0.0)), abs(b.get(key, 0.0))))
    pairs = np.array([[a.get(key, 0.0), b.get(key, 0.0)] for key in keys]).reshape(-1, 2)
    varies = len(pairs) > 1 and bool((np.ptp(pairs, axis=0) > 0).all())
    top = min(10, len(a), len(b))
    return {
        "level": level,
        "spearman": float(spearmanr(pairs[:, 0], pairs[:, 1]).statistic) if varies else None,
        "cosine": similarity(first, second, level),
        "top": top,
        "overlap": len(set.intersection(*(_strongest(credit, top) for credit in (a, b)))),
        "players": [{"id": key, "a": a.get(key), "b": b.get(key)} for key in keys[:400]],
    }


def fidelity_by_top(answers: Answers, question: Question) -> dict[str, Any]:
    """fidelity+ and fidelity- for the top 1, 2, 3, ... players."""
    explanation = answers.explanation(question)
    workspace = answers.workspace
    players = len(_credit(explanation, level_of(explanation))[0])
    steps = [step for step in _STEPS if step <= players]
    if workspace.typed:
        points = _typed_fidelity(answers, question, explanation, steps)
    else:
        points = [
            fidelity(
                explanation,
                workspace.models[question.model],
                workspace.graphs[question.graph],
                top=step,
                by="value",
                output=workspace.output,
            )
            for step in steps
        ]
    return {
        "top": steps,
        "plus": [point.plus for point in points],
        "minus": [point.minus for point in points],
    }


def _typed_fidelity(
    answers: Answers, question: Question, explanation: Explanation, steps: list[int]
) -> list[Fidelity]:
    """The same on a typed graph, by plain calls of the model with nodes or features off."""
    level = level_of(explanation)
    if level == "edges":
        raise UnsupportedError(
            "fidelity curves of typed graphs are for nodes and features; let these play"
        )
    keys, values = _credit(explanation, level)
    ranked = [key for _, key in sorted(zip(values, keys, strict=True), key=lambda pair: -pair[0])]

    def score(off: list[Any]) -> float:
        changes = Changes(**{f"{level}_off": tuple(off)})
        return float(scores_after(answers.workspace, question, changes)[explanation.target])

    full = score([])
    return [Fidelity(full - score(ranked[:step]), full - score(ranked[step:])) for step in steps]


def _credit(explanation: Explanation, level: Level) -> tuple[list[Any], list[float]]:
    keys, values = scores(explanation, level)
    return keys, values.tolist()


def _strongest(credit: dict[Any, float], count: int) -> set[Any]:
    return set(sorted(credit, key=lambda key: -abs(credit[key]))[:count])
