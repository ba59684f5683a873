"""Every argument of explain, explain_many and runs.start with any value: refused, or it works."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

from graphsvx import GraphSVX, estimate, explain, explain_many, metrics, runs
from graphsvx.errors import GraphSVXError, InputError, ModelError
from graphsvx.estimators import WLS
from graphsvx.masks import Auto
from graphsvx.results.explanation import Explanation
from tests.runs.helpers import ThisProcess
from tests.typed_worlds import hetero_model, typed_graph
from tests.utils.test_constraints import VALUES
from tests.worlds import random_graph, random_model

METHOD = GraphSVX(samples=10, estimator=WLS())  # a fifth of the time of the default estimator
MODEL, GRAPH = random_model("gcn", 1), random_graph(1)  # what is known of them is read once
MORE: list[Any] = [
    *VALUES, 1 << 20, "all", "probs", "logit", ("a", "b", "c"), ["a", 1, None], "abc",
    torch.tensor([True] * 9), torch.tensor([[1, 2]]), np.array([True] * 9), np.array(["a"]),
    (1, 2), (1, 1), (1, 99), {1, 2}, {1: 2}, range(3), iter([1, 2]), Data(), 2**63, -(2**63),
]  # fmt: skip


def works(**options: Any) -> bool:
    """Whether there is an explanation; anything but an error of ours is passed on."""
    question = {} if {"nodes", "edge", "graph"} & options.keys() else {"node": 1}
    options = {"method": METHOD, **question, **options}
    try:
        explanation = explain(options.pop("model", MODEL), options.pop("data", GRAPH), **options)
    except GraphSVXError as error:
        assert len(str(error)) < 600  # noqa: PT017  (any of our errors will do)
        return False
    assert isinstance(explanation, Explanation)
    assert math.isfinite(explanation.prediction)
    return True


@pytest.mark.parametrize(
    "name",
    ["model", "data", "node", "nodes", "graph", "edge", "decoder", "method", "target", "targets",
     "output", "scale", "class_names", "seed", "memory"],
)  # fmt: skip
def test_every_argument_of_explain(name: str) -> None:
    for value in MORE:
        works(**{name: value})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory": math.nan}, "memory must be an integer of at least 1, got nan"),
        ({"memory": 1e9}, "memory must be an integer"),
        ({"node": torch.tensor(True)}, r"node must be an integer, got tensor\(True\)"),
        ({"node": np.bool_(True)}, "node must be an integer"),
        ({"nodes": 5}, "nodes must be a list of numbers, or a mask, got 5"),
        ({"nodes": "12"}, "nodes must be a list"),
        ({"graph": 1}, "graph must be True or False, got 1"),
        ({"class_names": "abc"}, "class_names must be a list"),
        ({"class_names": ["a", 1, "c"]}, "class_names must be a list with entries that are each"),
        ({"seed": 2**64}, "seed must be an integer of at least 0 and at most"),
        ({"method": Auto()}, "method must be an explainer"),
        ({"method": lambda: None}, "method must be an explainer"),
        ({"data": [random_graph(1)]}, "data must be one graph, got a list of length 1"),
    ],
)  # fmt: skip
def test_nonsense_is_refused(options, message) -> None:
    options = {"model": random_model("gcn", 1), "data": random_graph(1), "node": 1, **options}
    if {"nodes", "graph"} & options.keys():
        del options["node"]
    with pytest.raises(InputError, match=message):
        explain(**options)


@pytest.mark.parametrize(
    "change",
    [
        {"x": None}, {"x": torch.zeros(9, 3, dtype=torch.complex64)},
        {"x": torch.zeros(9, 3, device="meta")},
        {"x": torch.zeros(9, 3).to(torch.float8_e4m3fn)}, {"x": torch.zeros(9)},
        {"x": np.zeros((9, 3))}, {"x": [[0.0]]}, {"edge_index": [[0], [1]]},
        {"edge_index": torch.zeros(2, 2)}, {"edge_index": torch.zeros(2, 2).bool()},
        {"edge_index": torch.zeros(3, 2).long()}, {"edge_index": None},
        {"edge_weight": "x"}, {"edge_weight": torch.ones(2)}, {"edge_attr": torch.tensor(1.0)},
    ],
    ids=lambda change: f"{next(iter(change))}",
)  # fmt: skip
def test_odd_graphs_are_refused(change: dict[str, Any]) -> None:
    data = random_graph(1)
    given = {"x": data.x, "edge_index": data.edge_index, **change}
    assert not works(data=SimpleNamespace(**given))


def test_half_precision_works_or_is_refused() -> None:
    for kind in (torch.float16, torch.bfloat16):
        data = random_graph(1)
        data.x = data.x.to(kind)
        works(data=data, model=random_model("gcn", 1).to(kind))
    works(data=HeteroData())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: torch.complex(x, x), "real numbers in a dense tensor, got a complex one"),
        (lambda x: x.to_sparse(), "got a sparse one"),
        (lambda x: x.numpy(), "one tensor, got ndarray"),
        (lambda x: None, "one tensor, got NoneType"),
        (lambda x: 1 / 0, "failed on a graph"),
    ],
)
def test_odd_outputs_are_refused(make, message) -> None:
    with pytest.raises(ModelError, match=message):
        explain(lambda x, edge_index: make(x), random_graph(1), node=1)
    with pytest.raises(ModelError, match=r"failed|decoder|real numbers"):
        explain(lambda x, edge_index: x, random_graph(1), edge=(1, 2),
                decoder=lambda u, v: make(u))  # fmt: skip


@pytest.mark.parametrize("name", ["nodes", "edges", "workers", "on_failure", "progress", "wrong"])
def test_every_argument_of_explain_many(name: str, capsys) -> None:
    for value in MORE:
        if name == "progress" and not isinstance(value, (bool, type(None))):
            continue
        if name == "workers" and isinstance(value, int) and value > 1:
            continue
        options: dict[str, Any] = {"nodes": [1], "method": METHOD, name: value}
        if name == "edges":
            del options["nodes"]
        try:
            for explanation in explain_many(MODEL, GRAPH, **options):
                assert isinstance(explanation, Explanation)
        except GraphSVXError:
            assert True


def test_options_that_explain_does_not_have_are_refused_at_once() -> None:
    with pytest.raises(InputError, match="does not take 'smaples'"):
        explain_many(random_model("gcn", 1), random_graph(1), smaples=3)
    with pytest.raises(InputError, match="does not take 'node'"):
        explain_many(random_model("gcn", 1), random_graph(1), node=3)


@pytest.mark.parametrize(
    "name", ["nodes", "graphs", "out", "backend", "method", "seed", "retry_failed", "part",
             "command", "class_names", "memory", "target"],
)  # fmt: skip
def test_every_argument_of_a_run(tmp_path, name: str, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number, value in enumerate(MORE):
        options = {"nodes": [1], "out": tmp_path / f"{number}", "method": METHOD,
                   "backend": ThisProcess(), name: value}  # fmt: skip
        try:
            run = runs.start(MODEL, GRAPH, **options)
        except GraphSVXError:
            continue
        assert run.status().left == 0


def test_a_run_takes_a_mask_of_nodes(tmp_path) -> None:
    mask = torch.zeros(9, dtype=torch.bool)
    mask[[2, 5]] = True
    run = runs.start(random_model("gcn", 1), random_graph(1), mask, out=tmp_path / "run",
                     backend=runs.Local(1), method=METHOD)  # fmt: skip
    assert run.queries.tolist() == [2, 5]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e, odd: metrics.fidelity(e, MODEL, GRAPH, top=odd), "top must be"),
        (lambda e, odd: metrics.fidelity(odd, MODEL, GRAPH), "explanation must be Explanation"),
        (lambda e, odd: metrics.stability(MODEL, GRAPH, METHOD, node=1, repeats=odd), "repeats"),
        (metrics.consistency, "second must be Explanation"),
        (metrics.relative_error, "reference must be Explanation"),
        (lambda e, odd: metrics.contrastivity(odd), "first must be Explanation"),
        (lambda e, odd: metrics.characterization(0.5, odd), "minus must be a number"),
        (lambda e, odd: metrics.sparsity(e, threshold=odd), "threshold must be a number"),
        (lambda e, odd: e.node_label(odd), "node must be an integer"),
        (lambda e, odd: e.from_shapiq(odd), "values must be shapiq.InteractionValues"),
        (lambda e, odd: list(explain_many(MODEL, GRAPH, [1], progress=odd)), "progress must be"),
        (lambda e, odd: list(explain_many(MODEL, GRAPH, [1], method=odd)), "method must be"),
        (lambda e, odd: estimate(lambda rows: rows.sum(1), 3, estimator=odd), "estimator must be"),
        (lambda e, odd: Explanation.load(odd), "path must be a path"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "odd", [(), torch.zeros(0), np.array([None, object()]), torch.zeros(3, device="meta")]
)
def test_arguments_beyond_those_of_explain_are_checked(call, message, odd) -> None:
    with pytest.raises(InputError, match=message):
        call(explain(MODEL, GRAPH, node=1, method=METHOD), odd)


def test_values_of_games_and_settings_that_hold_no_numbers_are_refused() -> None:
    meta = torch.zeros(8, device="meta")
    with pytest.raises(InputError, match="the game must return"):
        estimate(lambda rows: meta[: len(rows)], 3)
    with pytest.raises(InputError, match="tolerance must be"):
        GraphSVX(tolerance=torch.zeros(1, device="meta"))


def test_typed_graphs_refuse_what_only_plain_ones_take() -> None:
    graph = typed_graph(0)
    model, node = hetero_model("sage", graph, 0), (graph.node_types[0], 0)
    with pytest.raises(InputError, match="arguments= names attributes of graphs without types"):
        explain(model, graph, node=node, arguments={"x": "features"})
    with pytest.raises(InputError, match="data must be the HeteroData that was explained"):
        explain(model, graph, node=node, method=METHOD).to_pyg(GRAPH)
    graph["extra"].num_nodes = "three"
    with pytest.raises(InputError, match="num_nodes must be an integer, got 'three'"):
        explain(model, graph, node=node)
