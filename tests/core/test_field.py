"""Orders of the edges of a receptive field."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graphsvx.core.data import check_graph
from graphsvx.core.field import Field, in_neighbourhood
from tests.worlds import random_graph


@pytest.fixture(params=["as found", "shuffled"])
def field(request: pytest.FixtureRequest) -> Field:
    graph = check_graph(random_graph(3, nodes=12, directed=True))
    field = in_neighbourhood(graph, np.array([2]), 3)
    if request.param == "as found":
        return field
    order = np.random.default_rng(0).permutation(len(field.source))
    return replace(field, source=field.source[order], target=field.target[order])


def test_all_edges_are_sorted_by_target(field: Field) -> None:
    assert sorted(field.by_target.tolist()) == list(range(len(field.target)))
    assert (np.diff(field.target[field.by_target]) >= 0).all()


def test_inner_edges_are_sorted_by_source_with_the_start_of_each(field: Field) -> None:
    edges, sources, starts = field.by_source
    assert sorted(edges.tolist()) == sorted(np.flatnonzero(field.source < field.size).tolist())
    assert sources.tolist() == np.unique(field.source[edges]).tolist()
    runs = np.split(field.source[edges], starts[1:])
    assert [set(run.tolist()) for run in runs] == [{source} for source in sources.tolist()]
