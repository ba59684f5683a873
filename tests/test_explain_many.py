"""Many explanations: the same bits, in any number of processes, whatever fails."""

from __future__ import annotations

import multiprocessing
from functools import partial

import pytest
import torch

from graphsvx import Failure, GraphSVX, explain, explain_many, runs
from graphsvx.errors import InputError, UnsupportedError
from graphsvx.masks import Paired
from graphsvx.methods import GraphLIME
from graphsvx.results import serialize
from tests.runs.helpers import ThisProcess
from tests.worlds import pooled, random_graph, random_model

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
    graphs = [random_graph(seed, nodes=6) for seed in range(4)]
    model = pooled("gcn", "add", 0)
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


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"seed": "x"}, "seed must be"),
        ({"target": 9}, "target must be from 0 to 2, got 9"),
        ({"target": 10**30}, "target must be"),
        ({"scale": "percent"}, "scale must be"),
        ({"memory": 0}, "memory must be"),
        ({"class_names": ["a"]}, "class_names must name each of the 3 outputs"),
        ({"model": None}, "model must be"),
        ({"method": "graphsvx"}, "method must be"),
    ],
)
@pytest.mark.parametrize("many", ["explain_many", "runs"])
def test_what_is_wrong_with_all_questions_is_raised_at_once(tmp_path, wrong, message, many) -> None:
    options = {"model": random_model("gcn", 1), "data": random_graph(1), "nodes": [0], **wrong}
    ask = partial(runs.start, out=tmp_path / "run") if many == "runs" else explain_many
    with pytest.raises(InputError, match=message):
        ask(**options)
    assert not (tmp_path / "run").exists()


def test_a_method_for_other_questions_is_refused_at_once() -> None:
    with pytest.raises(UnsupportedError, match="GraphLIME explains a node"):
        explain_many(random_model("gcn", 1), random_graph(1), edges=[(0, 1)], method=GraphLIME())


class _UnreadableError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    "failure", [ValueError("\udcff"), SystemExit(3), _UnreadableError(), RecursionError("deep")],
    ids=["a lone surrogate", "sys.exit", "a message that fails", "recursion"],
)  # fmt: skip
def test_a_failure_of_any_kind_is_that_of_its_question(tmp_path, failure) -> None:
    inner = random_model("gcn", 1)

    def model(x, edge_index):
        if float(x[0, 0]) == 7:
            raise failure
        return inner(x, edge_index).mean(0, keepdim=True)

    good, bad = random_graph(1), random_graph(1)
    bad.x[0, 0] = 7
    failures: list[Failure] = []
    done = explain_many(model, [good, bad], method=METHOD, on_failure=failures.append).collect()
    assert [e.graph_index for e in done] == [0]
    assert [f.which for f in failures] == [1]
    run = runs.start(model, [bad, good], out=tmp_path / "run", method=METHOD, backend=ThisProcess())
    assert list(run.failures()) == [0]
    assert run.status().state == "finished"


def test_ctrl_c_in_a_model_stops_a_run(tmp_path) -> None:
    def model(x, edge_index):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runs.start(model, random_graph(1), [0], out=tmp_path / "run", backend=ThisProcess())
