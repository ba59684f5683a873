"""Every kind of input reaches a worker as it is: what it computes is the same to the last bit."""

from __future__ import annotations

import pickle

import pytest

from graphsvx import runs
from graphsvx.errors import DataError
from graphsvx.results import serialize
from graphsvx.runs import backends as cluster_engine
from graphsvx.runs.backends import Job
from tests.runs import inputs as kinds
from tests.runs.helpers import ThisProcess, same_rows
from tests.runs.inputs import INPUTS, attributed, inputs, rows, whole


@pytest.mark.parametrize("kind", INPUTS)
def test_processes_give_the_same_bits(kind: str) -> None:
    job = inputs(kind)
    assert same_rows(rows(job, ThisProcess()), rows(job, runs.Local(2)))


@pytest.mark.parametrize("kind", INPUTS)
def test_what_a_worker_unpacks_is_the_same_question(kind: str) -> None:
    job = inputs(kind)
    packed = pickle.loads(pickle.dumps(cluster_engine._packed(job)))
    assert serialize.same(cluster_engine._unpacked(packed).explain(1), job.explain(1))


def test_another_model_in_the_worker_is_refused(monkeypatch) -> None:
    packed = cluster_engine._packed(Job(whole, [attributed()], "graph", {}))
    monkeypatch.setattr(kinds, "whole", lambda x, edge_index: x)
    with pytest.raises(DataError, match="the workers have another model or graph"):
        cluster_engine._unpacked(packed)
