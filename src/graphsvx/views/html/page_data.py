"""The data of an explanation for the HTML report's script, ready for JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from graphsvx.errors import InputError
from graphsvx.results.credit import Credit, PlayerKind
from graphsvx.results.describe import adds_up, describe
from graphsvx.results.details import GraphTypes
from graphsvx.results.explanation import Explanation
from graphsvx.results.ranking import Fold, cell_table, folds, scale_of
from graphsvx.utils.printable import one_line
from graphsvx.views import drawing as drawings
from graphsvx.views import layout, palette
from graphsvx.views.drawing import GraphDrawing, Grouping

MOST_DOTS = 30
"""Nodes that are drawn individually; the others are grouped by branch and distance."""
MOST_ROWS = 400
"""Maximum number of players in a table; the others are summed in a last row."""
FEW_ROWS = 60
"""The same on a page of many explanations."""
MOST_COLUMNS = 10
"""Features with a column of their own in the matrix of cells."""
MOST_MEMBERS = 60
"""Nodes of a bubble that are listed when it is selected."""
MOST_FEATURES = 6
GAME_COLUMNS = ("name", "players", "budget", "calls", "coalitions", "mask")


@dataclass(frozen=True, eq=False)
class Plan:
    """Which nodes are drawn individually, and where."""

    grouping: Grouping
    places: layout.Places


def plan_of(explanation: Explanation, starts: int = layout.STARTS) -> Plan:
    """The layout of an explanation's graph, for all its outputs."""
    by_output = _drawings(explanation)
    strongest = _strongest(by_output)
    grouping = drawings.find_groups(strongest, MOST_DOTS)
    first = drawings.with_groups(by_output[explanation.row], grouping)
    bold = drawings.important(drawings.with_groups(strongest, grouping))
    return Plan(grouping, layout.places(first, "force", 0, None, bold, starts))


def page_data(
    explanation: Explanation,
    data: Any = None,
    plan: Plan | None = None,
    most_rows: int = MOST_ROWS,
    feature_names: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Dictionary of an explanation with all its outputs; the keys are read by the script.

    `plan`: the layout of an earlier explanation of the same prediction, so that nodes stay where
    they are. `most_rows`: players in a table; the others are summed in a last row.
    `feature_names`: of all columns of `data.x`; those that play have theirs in the explanation.
    """
    views = [explanation.for_target(output) for output in explanation.outputs]
    return {
        "kind": explanation.kind,
        "typed": explanation.types is not None and not explanation.types.flat,
        "method": explanation.method,
        "meaning": explanation.meaning,
        "scale": scale_of(explanation),
        "target_row": explanation.row,
        "outputs": [_output(view) for view in views],
        "graph": _graph(explanation, data, plan, most_rows, feature_names),
        "tables": _tables(views, explanation, most_rows),
        "cells": _cells(views) if explanation.cells is not None else None,
        "together": together_rows(views),
        "certificate": _certificate(explanation),
    }


def _output(view: Explanation) -> dict[str, Any]:
    return {
        "id": view.target,
        "name": view.class_name(view.target),
        "title": view.title,
        "base": _number(view.base),
        "prediction": _number(view.prediction),
        "total": _number(view.total),
        "addsUp": adds_up(view),
        "sentences": describe(view),
        "account": describe(view, "expert"),
    }


def _drawings(explanation: Explanation) -> list[GraphDrawing]:
    """The drawing of every output."""
    return [drawings.drawing_of(explanation.for_target(output)) for output in explanation.outputs]


def _graph(
    explanation: Explanation,
    data: Any,
    plan: Plan | None,
    most_rows: int,
    feature_names: Sequence[str] | None,
) -> dict[str, Any] | None:
    if not len(explanation.field.ids):
        return None
    plan = plan or plan_of(explanation)
    by_output = _drawings(explanation)
    shown = [drawings.with_groups(drawing, plan.grouping) for drawing in by_output]
    first = shown[explanation.row]
    places = plan.places
    rows = None if data is None else _feature_rows(data, explanation)
    names = explanation.feature_credit.names
    lines = map(one_line, names or ())
    named = dict(enumerate(map(one_line, feature_names or ())))
    named |= dict(zip(explanation.feature_ids.tolist(), lines, strict=False))
    return {
        "dots": [
            {
                "id": dot.id,
                "label": dot.label,
                "hop": dot.hop,
                "class": dot.category,
                "plays": dot.plays,
                "centre": dot.centre,
                "count": dot.count,
                "shape": dot.shape,
                "x": round(float(places[i, 0]), 3),
                "y": round(float(places[i, 1]), 3),
                **({} if rows is None else {"features": _largest(rows, dot.id, named)}),
            }
            for i, dot in enumerate(first.dots)
        ],
        "lines": [[line.a, line.b, int(line.one_way), int(line.plays)] for line in first.lines],
        "credit": _number([[dot.credit for dot in drawing.dots] for drawing in shown]),
        "error": _number([[dot.error for dot in drawing.dots] for drawing in shown]),
        "lineCredit": _number([[line.credit for line in drawing.lines] for drawing in shown]),
        "members": _members(by_output, plan.grouping, most_rows),
        "classes": _classes(explanation),
        **in_sets(explanation, first),
    }


def _members(
    by_output: list[GraphDrawing], grouping: Grouping, most_rows: int
) -> list[list[list[Any]]]:
    """Nodes of each bubble with the most credit: id, label, and credit and error by output."""
    if most_rows < MOST_ROWS:
        return [[] for _ in grouping.bubbles]
    bubbles = []
    for _, group in grouping.bubbles:
        order = sorted(group, key=lambda i: -max(abs(d.dots[i].credit) for d in by_output))
        bubbles.append(
            [
                [
                    by_output[0].dots[i].id,
                    by_output[0].dots[i].label,
                    _number([drawing.dots[i].credit for drawing in by_output]),
                    _number([drawing.dots[i].error for drawing in by_output]),
                ]
                for i in order[:MOST_MEMBERS]
            ]
        )
    return bubbles


def _strongest(by_output: list[GraphDrawing]) -> GraphDrawing:
    """A drawing in which every node has its largest absolute credit among the outputs."""
    dots = tuple(
        max(same, key=lambda dot: abs(dot.credit))
        for same in zip(*(drawing.dots for drawing in by_output), strict=True)
    )
    return replace(by_output[0], dots=dots)


def _classes(explanation: Explanation) -> dict[str, dict[str, str]]:
    classes, types = explanation.field.classes, explanation.types
    if classes is None:
        return {}
    outputs = explanation.kind in ("node", "nodes")

    def name(category: int) -> str:
        if types is not None:
            return one_line(types.node_types[category])
        return explanation.class_name(category) if outputs else f"type {category}"

    return {
        str(category): {"name": name(category), "colour": palette.of_class(category)}
        for category in sorted(set(classes.tolist()))
    }


FeatureRow = tuple[Tensor, int, str]
"""Features of a node, the number of the first column, and what a column without name is called."""


def _feature_rows(data: Any, explanation: Explanation) -> Callable[[int], FeatureRow] | None:
    """A function from nodes of the field to their features; None if relational data has none."""
    types = explanation.types
    if types is not None and not types.flat:
        return _typed_feature_rows(data, types)
    x = getattr(data, "x", None)
    if x is None and not hasattr(data, "edge_index") and types is None:
        raise InputError(
            f"data must be the explained graph with its node features x, got {type(data).__name__}"
        )
    if not isinstance(x, Tensor) or x.dim() != 2:
        return None  # categories, time series, or no features at all
    ids = explanation.field.ids
    if ids.numel() and int(ids.max()) >= len(x):
        raise InputError(
            f"data has {len(x)} nodes, but the explanation has node {int(ids.max())}; "
            f"pass the graph that was explained"
        )
    return lambda node: (x[node], 0, "feature")


def _typed_feature_rows(data: Any, types: GraphTypes) -> Callable[[int], FeatureRow]:
    if list(getattr(data, "node_types", ())) != list(types.node_types):
        raise InputError(f"data must be the explained HeteroData with {list(types.node_types)}")

    def row(number: int) -> FeatureRow:
        node_type, node = types.node(number)
        x = data[node_type].get("x")
        has_columns = isinstance(x, Tensor) and x.dim() == 2 and x.is_floating_point()
        values = x[node] if has_columns else torch.zeros(0)
        first = types.feature_starts[types.node_types.index(node_type)]
        return values, first, one_line(f"{node_type} feature")

    return row


def _largest(
    rows: Callable[[int], FeatureRow], node: int, named: dict[int, str]
) -> list[list[Any]]:
    """The node's features that are not 0, the largest first."""
    if node < 0:
        return []
    row, first, word = rows(node)
    order = row.abs().argsort(descending=True, stable=True)[:MOST_FEATURES].tolist()
    return [
        [named.get(first + column, f"{word} {column}"), _number(float(row[column]))]
        for column in order
        if float(row[column]) != 0
    ]


def _tables(
    views: list[Explanation], explanation: Explanation, most_rows: int
) -> list[dict[str, Any]]:
    field = explanation.field
    hops = field.distances
    classes = {} if field.classes is None else dict(zip(hops, field.classes.tolist(), strict=True))
    tables = [
        _table(kind, explanation.credit_by_kind[kind], hops, classes, most_rows)
        for kind in ("node", "feature", "edge")
        if explanation.credit_by_kind[kind].players
    ]
    if tables and tables[0]["kind"] == "node":
        tables[0]["groups"] = _groups(views, tables[0]["rows"])
    return tables


def _groups(views: list[Explanation], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rings or branches of nodes: credit and error by output, and positions of their rows."""
    by_output = [folds(view, "nodes") for view in views]
    position = {row["id"]: i for i, row in enumerate(rows)}
    credit = [{_key(group): group for group in groups} for groups in by_output]
    return [
        {
            "name": group.name,
            "count": len(group.entries),
            "credit": _number([named[_key(group)].credit for named in credit]),
            "error": _number([named[_key(group)].error for named in credit]),
            "rows": sorted(
                position[entry.key[0]] for entry in group.entries if entry.key[0] in position
            ),
        }
        for group in (by_output[0] if by_output else [])
    ]


def _key(group: Fold) -> frozenset[tuple[int, ...]]:
    """The players of a group, which are the same for every output."""
    return frozenset(entry.key for entry in group.entries)


def _cells(views: list[Explanation]) -> list[dict[str, Any]]:
    """Features of nodes as a matrix, for each output."""
    tables = [cell_table(view, MOST_COLUMNS) for view in views]
    return [
        {
            "nodes": list(table.nodes),
            "rows": [one_line(name) for name in table.row_names],
            "columns": [one_line(name) for name in table.column_names],
            "largest": _number(table.largest),
            "credit": _number(table.values.tolist()),
            "error": _number(table.errors.tolist()),
        }
        for table in tables
    ]


def _table(
    kind: PlayerKind, credit: Credit, hops: dict[int, int], classes: dict[int, int], most_rows: int
) -> dict[str, Any]:
    order = credit.values.abs().amax(0).argsort(descending=True, stable=True)
    shown, rest = order[:most_rows], order[most_rows:]
    ids, names = credit.ids.t().tolist(), credit.labels(kind)
    rows = []
    for i in shown.tolist():
        row: dict[str, Any] = {"id": ids[i], "name": names[i]}
        if kind == "node":
            row["hop"] = hops.get(ids[i])
            row["class"] = classes.get(ids[i])
        rows.append(row)
    return {
        "kind": kind,
        "rows": rows,
        "credit": _number(credit.values[:, shown].tolist()),
        "error": _number(credit.errors[:, shown].tolist()),
        "more": {
            "count": len(rest),
            "credit": [_number(float(values[rest].sum())) for values in credit.values],
        },
    }


def _certificate(explanation: Explanation) -> dict[str, Any]:
    certificate = explanation.certificate
    return {
        "status": certificate.status if certificate.games else "empty",
        "line": certificate.line(),
        "games": [
            {
                **{name: vars(game)[name] for name in GAME_COLUMNS},
                "status": game.status,
                "r2": None if game.r2 is None else _number(game.r2),
            }
            for game in certificate.games
        ],
        "residual": _number(certificate.residual),
        "seed": certificate.seed,
        "depth": certificate.depth,
        "checks": list(certificate.checks),
        "fallback": certificate.fallback,
        "toleranceMet": certificate.tolerance_met,
    }


def _number(value: Any) -> Any:
    """A value (or nested list of values) with 7 significant digits; None where JSON has no such."""
    if isinstance(value, list):
        return [_number(item) for item in value]
    return float(f"{value:.7g}") if math.isfinite(value) else None


# Sets of players on a page: interactions, and the sets that answer a question.


MOST_PAIRS = 400
"""Pairs of nodes that light up."""
MOST_TOGETHER = 12
"""Pairs of players in the table."""


def together_rows(views: list[Explanation]) -> list[dict[str, Any]] | None:
    """The strongest pairs of players for each output; None without interactions.

    A pair whose value may be 0 is not named, as in tables and words.
    """
    record = views[0].interactions
    if record is None:
        return None
    return [
        {
            "index": record.index,
            "pairs": [
                {
                    "name": " and ".join(pair.players),
                    "value": pair.value,
                    "error": _number(pair.error),
                }
                for pair in view.together(MOST_TOGETHER)
                if pair.sure and pair.value
            ],
        }
        for view in views
    ]


def in_sets(explanation: Explanation, drawing: GraphDrawing) -> dict[str, Any]:
    """Pairs of dots that interact, with the value for each output, and the sets of answers."""
    first, ids = explanation.feature_credit.players, explanation.node_ids.tolist()
    grouped = explanation.groups is not None and bool(explanation.groups.nodes)
    dot_of = {dot.id: i for i, dot in enumerate(drawing.dots) if dot.count == 1 and not grouped}

    def dots(positions: Iterable[int]) -> list[int]:
        nodes = [ids[at - first] for at in positions if first <= at < first + len(ids)]
        return [dot_of[node] for node in nodes if node in dot_of]

    record = explanation.interactions
    pairs: list[list[Any]] = []
    if record is not None:
        for at in (record.sizes == 2).nonzero().flatten().tolist():
            ends = dots(record.members[:2, at].tolist())
            if len(ends) == 2:
                pairs.append([*ends, _number(record.values[:, at].tolist())])
        pairs.sort(key=lambda pair: -max(abs(value or 0.0) for value in pair[2]))
    sets = [
        {"question": answer.question, "dots": dots(answer.positions)}
        for answer in explanation.answers
        if answer.found
    ]
    return {"together": pairs[:MOST_PAIRS], "sets": sets}
