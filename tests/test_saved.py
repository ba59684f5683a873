"""A saved explanation with anything in it changed: refused as damaged, or it can be looked at."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from graphsvx import Explanation, GraphSVX, explain
from graphsvx.errors import DataError, GraphSVXError
from graphsvx.views import html
from tests.worlds import random_graph, random_model

VALUES: list[Any] = [
    None, True, -1, 0, 3, 10**30, 0.5, 1e300, float("nan"), float("inf"), "", "x", "\x1b[31m",
    [], [1], [[1]], ["a"], [None], {}, {"a": 1},
]  # fmt: skip


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    explanation = explain(random_model("gcn", 1), random_graph(1, nodes=6), node=1, targets="all",
                    class_names=["a", "b", "c"], method=GraphSVX(samples=20))  # fmt: skip
    return json.loads(json.dumps(explanation.to_dict()))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to everything in a record; of a long list only the beginning."""
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for key in range(min(len(value), 2)):
            yield from places(value[key], (*path, key))


def changed(record: dict[str, Any], path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    result = copy.deepcopy(record)
    inside = result
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    return result


def looked_at(explanation: Explanation) -> None:
    _ = explanation.title, repr(explanation), explanation.describe(), explanation.to_dict()
    explanation.describe("expert")
    Console(file=StringIO()).print(explanation.table())
    explanation.to_networkx()
    explanation.to_pyg()
    html.render(explanation, "title")


def test_anything_changed_is_refused_or_can_be_looked_at(record) -> None:
    looked_at(Explanation.from_dict(record))
    accepted = 0
    for path in places(record):
        for value in VALUES:
            try:
                explanation = Explanation.from_dict(changed(record, path, value))
            except DataError:
                continue
            accepted += 1
            try:
                looked_at(explanation)
            except GraphSVXError:
                continue
            except Exception as error:
                raise AssertionError(f"{path} = {value!r}: {error!r}") from error
    assert accepted > 0


def test_anything_left_out_is_refused_or_can_be_looked_at(record) -> None:
    for path in places(record):
        if path and isinstance(path[-1], str):
            result = copy.deepcopy(record)
            inside = result
            for key in path[:-1]:
                inside = inside[key]
            del inside[path[-1]]
            try:
                explanation = Explanation.from_dict(result)
            except DataError:
                continue
            looked_at(explanation)
