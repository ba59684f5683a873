"""The number of threads changes nothing, and is left as it was found."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch_geometric.nn import GCN

from graphsvx import convert, explain
from tests.engine.test_rows import make_graph


@pytest.fixture
def _threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_threads")
def test_any_number_of_threads_gives_the_same_bits() -> None:
    torch.manual_seed(0)
    model, data = GCN(300, 64, 2, 5).eval(), make_graph(nodes=200)
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        e = explain(model, data, node=1)
        assert torch.get_num_threads() == threads
        found.append(torch.cat([e.node_values, e.feature_values]))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


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
    alone = [explain(copy.deepcopy(model), data, node=node) for node in nodes]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda node: explain(model, data, node=node), nodes))
    assert all(convert.same(one, other) for one, other in zip(found, alone, strict=True))
    assert model.training
