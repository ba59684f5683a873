"""Many explanations: the same bits, in any number of processes, whatever fails."""

from __future__ import annotations

import multiprocessing

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCN, global_add_pool

from graphsvx import Failure, GraphSVX, explain, explain_many
from graphsvx.errors import InputError
from graphsvx.masks import Paired
from graphsvx.results import serialize
from tests.worlds import random_graph, random_model

METHOD = GraphSVX(mask=Paired(), samples=60)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_workers_do_not_change_a_bit(workers: int) -> None:
    model, data = random_model("gat", 1), random_graph(2, nodes=14, chance=0.3)
    nodes = [5, 1, 9, 0, 13, 2]
    explanations = {e.centres[0]: e for e in explain_many(model, data, nodes, workers=workers,
                                                   method=METHOD, seed=4)}  # fmt: skip
    assert set(explanations) == set(nodes)
    for node in nodes:
        assert serialize.same(
            explanations[node], explain(model, data, node=node, method=METHOD, seed=4)
        )


def test_torch_threads_do_not_change_a_bit() -> None:
    model, data = random_model("gcn", 1), random_graph(2, nodes=14, chance=0.3)
    before = torch.get_num_threads()
    try:
        failures = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            failures.append(explain(model, data, node=1, method=METHOD))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert serialize.same(*failures)


def test_all_nodes_by_default() -> None:
    model, data = random_model("gcn", 1), random_graph(1)
    assert sorted(e.centres[0] for e in explain_many(model, data)) == list(range(9))


@pytest.mark.parametrize("workers", [1, 2])
def test_one_failure_is_reported_and_stops_nobody(workers: int) -> None:
    data = random_graph(1)
    failures: list[Failure] = []
    explanations = list(explain_many(random_model("gcn", 1), data, [0, 99, 3], workers=workers,
                              on_failure=failures.append))  # fmt: skip
    assert sorted(e.centres[0] for e in explanations) == [0, 3]
    assert [(f.which, "0 to 8" in str(f.error)) for f in failures] == [(99, True)]


def test_failures_are_printed_by_default(capsys) -> None:
    list(explain_many(random_model("gcn", 1), random_graph(1), [99]))
    assert "not explained: 99" in capsys.readouterr().err


def test_stopping_early_leaves_no_process_behind() -> None:
    many = explain_many(random_model("gcn", 1), random_graph(1), workers=2)
    next(many)
    many.close()
    assert multiprocessing.active_children() == []


def test_wrong_arguments_are_refused_at_the_call() -> None:
    model, data = random_model("gcn", 1), random_graph(1)
    for wrong in ({"workers": 0}, {"workers": "two"}, {"nodes": ["a"]}):
        with pytest.raises(InputError):
            explain_many(model, data, **wrong)
    with pytest.raises(InputError, match="list of graphs"):
        explain_many(model, [data, data], nodes=[1])


def test_a_list_of_graphs_is_explained_one_graph_each() -> None:
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.gnn = GCN(3, 8, 2, 2).double()

        def forward(self, x, edge_index, batch):
            return global_add_pool(self.gnn(x, edge_index), batch)

    graphs = [random_graph(seed, nodes=6) for seed in range(4)]
    model = Pooled().eval()
    explanations = {e.graph_index: e for e in explain_many(model, graphs, workers=2)}
    assert sorted(explanations) == [0, 1, 2, 3]
    for i, graph in enumerate(graphs):
        with torch.no_grad():
            out = model(graph.x, graph.edge_index, torch.zeros(6, dtype=torch.long)).softmax(-1)
        assert explanations[i].prediction == pytest.approx(float(out.max()), abs=1e-9)


def test_a_list_of_links() -> None:
    model, data = random_model("gcn", 1), random_graph(1)
    links = [(0, 5), (3, 7), (1, 1)]
    failures: list[Failure] = []
    explanations = {
        e.centres: e
        for e in explain_many(model, data, edges=links, workers=2, on_failure=failures.append)
    }
    assert set(explanations) == {(0, 5), (3, 7)}
    assert [f.which for f in failures] == [2]
    assert serialize.same(explanations[3, 7], explain(model, data, edge=(3, 7)))
    with pytest.raises(InputError, match="got both"):
        explain_many(model, data, [1], edges=links)
