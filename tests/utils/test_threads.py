"""The number of threads changes nothing, and is left as it was found."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch_geometric.nn import GCN

from graphsvx import GraphSVX, explain
from graphsvx.results import serialize
from tests.engine.test_lazy import make_graph

METHOD = GraphSVX(samples=300)


@pytest.fixture
def _threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_threads")
def test_any_number_of_threads_gives_the_same_bits() -> None:
    torch.manual_seed(0)
    model, data = GCN(300, 64, 2, 5).eval(), make_graph(nodes=200)
    explanations = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        e = explain(model, data, node=1, method=METHOD)
        assert torch.get_num_threads() == threads
        explanations.append(torch.cat([e.node_values, e.feature_values]))
    assert torch.equal(explanations[0], explanations[1])
    assert torch.equal(explanations[0], explanations[2])


@pytest.mark.usefixtures("_threads")
def test_threads_are_restored_after_an_error() -> None:
    torch.set_num_threads(2)

    def broken(x, edge_index):
        raise ValueError("no")

    with pytest.raises(Exception, match="no"):
        explain(broken, make_graph(12), node=1)
    assert torch.get_num_threads() == 2


def test_threads_that_share_a_model_wait_for_each_other() -> None:
    torch.manual_seed(0)
    model, data = GCN(300, 16, 2, 5, dropout=0.5), make_graph(nodes=60)
    nodes = range(12)
    alone = [explain(copy.deepcopy(model), data, node=node, method=METHOD) for node in nodes]
    with ThreadPoolExecutor(4) as pool:
        explanations = list(
            pool.map(lambda node: explain(model, data, node=node, method=METHOD), nodes)
        )
    assert all(
        serialize.same(explanation, other)
        for explanation, other in zip(explanations, alone, strict=True)
    )
    assert model.training


EXPLAIN_IN_A_THREAD = """
import torch
from concurrent.futures import ThreadPoolExecutor
from threadpoolctl import threadpool_info
from torch_geometric.nn import GCN
from graphsvx import GraphSVX, explain
from graphsvx.results.serialize import same
from tests.engine.test_lazy import make_graph


def blas_threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


class Watched(GCN):
    def forward(self, x, edge_index):
        counts.update([torch.get_num_threads(), *blas_threads()])
        return super().forward(x, edge_index)


torch.manual_seed(0)
model, data, counts = Watched(300, 16, 2, 5).eval(), make_graph(nodes=60), set()
before, method = (torch.get_num_threads(), blas_threads()), GraphSVX(samples=300)
in_main = [explain(model, data, node=node, method=method) for node in range(2)]
with ThreadPoolExecutor(1) as pool:
    in_thread = list(
        pool.map(lambda node: explain(model, data, node=node, method=method), range(2))
    )
assert counts == {1}, counts
assert (torch.get_num_threads(), blas_threads()) == before
assert all(map(same, in_main, in_thread))
"""


def test_an_explanation_has_one_thread_of_blas_in_any_thread_of_the_process() -> None:
    """In a process whose libraries choose their numbers of threads themselves."""
    root = Path(__file__).parents[2]
    environment = {key: v for key, v in os.environ.items() if not key.endswith("_NUM_THREADS")}
    command = [sys.executable, "-c", EXPLAIN_IN_A_THREAD]
    ran = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
