"""The number of threads changes nothing, and is left as it was found."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.nn import GCN

from graphsvx import explain
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
