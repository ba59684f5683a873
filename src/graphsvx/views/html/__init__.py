"""HTML report in a single file that works offline and loads no external resources."""

from __future__ import annotations

import base64
import hashlib
import html as markup
import json
import math
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from torch_geometric.data import HeteroData

from graphsvx.errors import InputError
from graphsvx.results.credit import PlayerKind
from graphsvx.results.describe import adds_up, describe
from graphsvx.results.explanation import Explanation
from graphsvx.results.export import tensor_of
from graphsvx.results.ranking import Entry, cell_table, folds, leading_pairs, scale_of
from graphsvx.utils.constraints import as_json
from graphsvx.utils.files import atomic_write
from graphsvx.utils.printable import one_line
from graphsvx.views import drawing as drawings
from graphsvx.views import palette
from graphsvx.views.drawing import Dot, GraphDrawing, Grouping, Stroke

__all__ = ["notebook", "page_data", "plan_of", "render", "write"]

MANY = 24
"""Pages of more explanations are compressed and have shorter tables."""
SCRIPTS = ("tools.js", "graph.js", "tables.js", "page.js")
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
MOST_PAIRS = 400
"""Pairs of nodes that light up."""
MOST_TOGETHER = 12
"""Pairs of players in the table."""
PLAYERS: tuple[PlayerKind, ...] = ("node", "feature", "edge")
DOT_COLUMNS = ("id", "label", "hop", "plays", "centre", "count", "shape")


def render(
    explanations: Explanation | Sequence[Explanation],
    title: str = "Why the model said that",
    *,
    data: Any = None,
    embedded: bool = False,
) -> str:
    """The HTML report of one explanation, or of several with a list and a search box.

    With `data` (the explained graph, with its features `x`) a click on a node also shows its
    largest features. Data is embedded as JSON without `<`, so it is never interpreted as markup or
    code, and the content security policy allows only this page's script and style (by hash) and no
    network connections. The data of many explanations is compressed. `embedded`: for a frame
    in a notebook, without a heading of its own.
    """
    listed = [explanations] if isinstance(explanations, Explanation) else list(explanations)
    if not listed:
        raise InputError("a report needs at least one explanation, got none")
    style = _part("page.css")
    scripts = "\n".join(map(_script, SCRIPTS))
    script = "(async () => {\n'use strict';\n" + scripts + "})();\n"
    many = len(listed) > MANY
    rows = FEW_ROWS if many else MOST_ROWS
    starts = 1 if many else drawings.STARTS
    records = [page_data(e, data, plan_of(e, starts), rows) for e in listed]
    text = _safe_json({"title": title, "explanations": records})
    if many:  # browsers can undo it themselves
        text = base64.b64encode(zlib.compress(text.encode("ascii"), 9)).decode("ascii")
    plain = [tuple(map(markup.escape, (e.title, describe(e)))) for e in listed[:MANY]]
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        f"img-src data:; base-uri 'none'; form-action 'none'"
    )
    fields = {
        "title": markup.escape(title),
        "policy": markup.escape(policy, quote=True),
        "style": style,
        "script": script,
        "body": "embedded" if embedded else "page",
        "type": "text/plain" if many else "application/json",
        "data": text,
        "plain": "".join(f"<h2>{title}</h2><p>{words}</p>" for title, words in plain),
    }
    # A single pass, so that placeholders inside inserted text are not replaced.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: fields[match[1]], _part("page.html"))


def write(
    explanations: Explanation | Sequence[Explanation],
    path: str | Path,
    title: str = "Why the model said that",
    *,
    data: Any = None,
) -> None:
    """Write the report atomically."""
    text = render(explanations, title, data=data)
    with atomic_write(path) as part:
        part.write_text(text, encoding="utf-8")


def notebook(explanations: Explanation | Sequence[Explanation], height: int = 760) -> str:
    """The report in a sandboxed iframe for notebooks, which isolates its style and script.

    The page tells its height to the notebook, whose frame then fits; where notebooks run no
    scripts, the frame has `height` pixels and scrolls.
    """
    page = render(explanations, embedded=True)
    name = "graphsvx-" + hashlib.sha256(page.encode("utf-8")).hexdigest()[:16]
    return (
        f'<iframe class="{name}" srcdoc="{markup.escape(page, quote=True)}" '
        f'sandbox="allow-scripts" title="Explanation" width="100%" height="{height}" '
        f'style="border:0"></iframe>'
        f"<script>{FIT.replace('NAME', name)}</script>"
    )


FIT = """
window.addEventListener('message', (event) => {
  const tall = event.data && event.data.graphsvxHeight;
  if (!Number.isFinite(tall)) return;
  document.querySelectorAll('iframe.NAME').forEach((frame) => {
    if (frame.contentWindow === event.source) frame.style.height = Math.min(tall, 6000) + 'px';
  });
});
"""
"""Script of the notebook: the frame becomes as tall as its page says."""


def _part(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")


def _script(name: str) -> str:
    """A module without its imports and exports, to be joined with the others in one scope."""
    return re.sub(r"^(import .*\n|export )", "", _part(name), flags=re.MULTILINE)


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _safe_json(value: Any) -> str:
    """JSON that cannot close the enclosing HTML element: ASCII without `<`, `>` and `&`."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


# --- the data of an explanation for the script of the page, ready for JSON -----------------------


@dataclass(frozen=True, eq=False)
class Placement:
    """Which nodes are drawn individually, and where."""

    grouping: Grouping
    places: drawings.Places


def plan_of(explanation: Explanation, starts: int = drawings.STARTS) -> Placement | None:
    """The layout of an explanation's graph, for all its outputs; None if it has no nodes."""
    if not len(explanation.field.ids):
        return None
    by_output = [drawings.drawing_of(view) for view in _views(explanation)]
    same_dots = zip(*(drawing.dots for drawing in by_output), strict=True)
    # Of each node the largest absolute credit among the outputs.
    dots = tuple(max(same, key=lambda dot: abs(dot.credit)) for same in same_dots)
    strongest = replace(by_output[0], dots=dots)
    grouping = drawings.find_groups(strongest, MOST_DOTS)
    first = drawings.with_groups(by_output[explanation.row], grouping)
    bold = drawings.important(drawings.with_groups(strongest, grouping))
    return Placement(grouping, drawings.places(first, "force", 0, None, bold, starts))


def page_data(
    explanation: Explanation,
    data: Any = None,
    plan: Placement | None = None,
    most_rows: int = MOST_ROWS,
    feature_names: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Dictionary of an explanation with all its outputs; the keys are read by the script.

    `plan`: the layout of an earlier explanation of the same prediction, so that nodes stay where
    they are. `most_rows`: players in a table; the others are summed in a last row.
    `feature_names`: of all columns of `data.x`; those that play have theirs in the explanation.
    """
    views, record, certificate = _views(explanation), explanation.cells, explanation.certificate
    tables = [
        _table(kind, explanation, most_rows)
        for kind in PLAYERS
        if explanation.credit_by_kind[kind].players
    ]
    if explanation.node_credit.players:  # the first
        tables[0]["groups"] = _groups(views, tables[0]["rows"])
    return {
        "kind": explanation.kind,
        "typed": explanation.hetero is not None,
        "method": explanation.method,
        "meaning": explanation.meaning,
        "scale": scale_of(explanation),
        "target_row": explanation.row,
        "outputs": [
            {
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
            for view in views
        ],
        "graph": _graph(views, explanation, data, plan, most_rows, feature_names),
        "tables": tables,
        "cells": None if record is None else [_cells(view) for view in views],
        "together": _together(views),
        "certificate": {
            **as_json(certificate),
            "status": certificate.status if certificate.games else "empty",
            "line": certificate.line(),
            "games": [{**as_json(game), "status": game.status} for game in certificate.games],
        },
    }


def _views(explanation: Explanation) -> list[Explanation]:
    """The explanation of every output."""
    return [explanation.for_target(output) for output in explanation.outputs]


def _graph(
    views: list[Explanation],
    explanation: Explanation,
    data: Any,
    plan: Placement | None,
    most_rows: int,
    feature_names: Sequence[str] | None,
) -> dict[str, Any] | None:
    plan = plan or plan_of(explanation)
    if plan is None:
        return None
    by_output = [drawings.drawing_of(view) for view in views]
    shown = [drawings.with_groups(drawing, plan.grouping) for drawing in by_output]
    first, classes = shown[explanation.row], explanation.field.classes
    named = dict(enumerate(map(one_line, feature_names or ())))
    names = map(one_line, explanation.feature_credit.names or ())
    named |= dict(zip(explanation.feature_ids.tolist(), names, strict=False))
    if data is not None:
        _check_data(data, explanation)
    dots = []
    for dot, (x, y) in zip(first.dots, plan.places.tolist(), strict=True):
        dots.append({name: getattr(dot, name) for name in DOT_COLUMNS})
        dots[-1] |= {"class": dot.category, "x": round(x, 3), "y": round(y, 3)}
        if data is not None and dot.id >= 0:
            dots[-1]["features"] = _features(data, explanation, dot.id, named)
    return {
        "dots": dots,
        "lines": [[line.a, line.b, int(line.one_way), int(line.plays)] for line in first.lines],
        "credit": [_numbers(drawing.dots, "credit") for drawing in shown],
        "error": [_numbers(drawing.dots, "error") for drawing in shown],
        "lineCredit": [_numbers(drawing.lines, "credit") for drawing in shown],
        "members": [
            _members(by_output, group) if most_rows >= MOST_ROWS else []
            for _, group in plan.grouping.bubbles
        ],
        "classes": {
            str(category): {
                "name": drawings.category_name(explanation, category),
                "colour": palette.of_class(category),
            }
            for category in ([] if classes is None else sorted(set(classes.tolist())))
        },
        **_in_sets(explanation, first),
    }


def _members(by_output: list[GraphDrawing], group: Sequence[int]) -> list[list[Any]]:
    """Nodes of a bubble with the most credit: id, label, and credit and error by output."""
    dots = [[drawing.dots[i] for drawing in by_output] for i in group]
    dots.sort(key=lambda same: -max(abs(dot.credit) for dot in same))
    return [
        [same[0].id, same[0].label, _numbers(same, "credit"), _numbers(same, "error")]
        for same in dots[:MOST_MEMBERS]
    ]


def _check_data(data: Any, explanation: Explanation) -> None:
    """Raise an InputError unless the data can be the graph that was explained."""
    types, x = explanation.hetero, tensor_of(data, "x")
    if types is not None:
        if not isinstance(data, HeteroData) or data.node_types != list(types.node_types):
            raise InputError(f"data must be the explained HeteroData with {list(types.node_types)}")
    elif x is None and not hasattr(data, "edge_index") and explanation.types is None:
        raise InputError(
            f"data must be the explained graph with its node features x, got {type(data).__name__}"
        )
    elif x is not None and x.dim() == 2 and (last := int(explanation.field.ids.max())) >= len(x):
        raise InputError(
            f"data has {len(x)} nodes, but the explanation has node {last}; "
            f"pass the graph that was explained"
        )


def _features(
    data: Any, explanation: Explanation, number: int, named: dict[int, str]
) -> list[list[Any]]:
    """The node's features that are not 0, the largest first; none where x is no table."""
    types, node, first, word = explanation.hetero, number, 0, "feature"
    if types is not None:
        node_type, node = types.node(number)
        data, word = data[node_type], one_line(f"{node_type} feature")
        first = types.feature_starts[types.node_types.index(node_type)]
    x = tensor_of(data, "x")
    if x is None or x.dim() != 2 or not (types is None or x.is_floating_point()):
        return []  # categories, time series, or no features at all
    order = x[node].abs().argsort(descending=True, stable=True)[:MOST_FEATURES].tolist()
    return [
        [named.get(first + column, f"{word} {column}"), _number(float(x[node, column]))]
        for column in order
        if float(x[node, column]) != 0
    ]


def _table(kind: PlayerKind, explanation: Explanation, most_rows: int) -> dict[str, Any]:
    credit, field = explanation.credit_by_kind[kind], explanation.field
    order = credit.values.abs().amax(0).argsort(descending=True, stable=True)
    shown, rest = order[:most_rows], order[most_rows:]
    ids, names = credit.ids.t().tolist(), credit.labels(kind)
    rows: list[dict[str, Any]] = [{"id": ids[i], "name": names[i]} for i in shown.tolist()]
    if kind == "node":
        hops, classes = field.distances, {}
        if field.classes is not None:
            classes = dict(zip(hops, field.classes.tolist(), strict=False))
        for row in rows:
            row |= {"hop": hops.get(row["id"]), "class": classes.get(row["id"])}
    return {
        "kind": kind,
        "rows": rows,
        "credit": _number(credit.values[:, shown].tolist()),
        "error": _number(credit.errors[:, shown].tolist()),
        "more": {"count": len(rest), "credit": _number(credit.values[:, rest].sum(1).tolist())},
    }


def _groups(views: list[Explanation], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rings or branches of nodes: credit and error by output, and positions of their rows."""

    def players(group: Entry) -> frozenset[tuple[int, ...]]:
        return frozenset(entry.key for entry in group.members)

    position = {row["id"]: i for i, row in enumerate(rows)}
    by_output = [{players(group): group for group in folds(view, "nodes")} for view in views]
    return [
        {
            "name": group.name,
            "count": len(group.members),
            "credit": _numbers([groups[key] for groups in by_output], "credit"),
            "error": _numbers([groups[key] for groups in by_output], "error"),
            "rows": sorted(position[node] for (node,) in key if node in position),
        }
        for key, group in by_output[0].items()
    ]


def _cells(view: Explanation) -> dict[str, Any]:
    """Features of nodes as a matrix."""
    table = cell_table(view, MOST_COLUMNS)
    return {
        "nodes": list(table.nodes),
        "rows": [one_line(name) for name in table.row_names],
        "columns": [one_line(name) for name in table.column_names],
        "largest": _number(table.largest),
        "credit": _number(table.values.tolist()),
        "error": _number(table.errors.tolist()),
    }


def _number(value: Any) -> Any:
    """A value (or nested list of values) with 7 significant digits; None where JSON has no such."""
    if isinstance(value, list):
        return [_number(item) for item in value]
    return float(f"{value:.7g}") if math.isfinite(value) else None


def _numbers(parts: Sequence[Dot | Stroke | Entry], name: str) -> list[float | None]:
    return [_number(getattr(part, name)) for part in parts]


def _together(views: list[Explanation]) -> list[dict[str, Any]] | None:
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
                {"name": " and ".join(names), "value": value, "error": _number(error)}
                for names, _, value, error in leading_pairs(view, MOST_TOGETHER)
                if value
            ],
        }
        for view in views
    ]


def _in_sets(explanation: Explanation, drawing: GraphDrawing) -> dict[str, Any]:
    """Pairs of dots that interact, with the value for each output, and the sets of answers."""
    dot_of = drawings.dots_of(explanation, drawing)

    def dots(positions: Iterable[int]) -> list[int]:
        return [dot_of[position] for position in positions if position in dot_of]

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
