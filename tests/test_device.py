"""Explanations on another device: equal to the CPU's, in few copies, launches and waits.

The device is simulated (`tests.simulated_device`) in a process of its own, because torch decides
at the first derivative which devices there are.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, fidelity, unfaithfulness
from torch_geometric.nn import GATConv, GCNConv, GINEConv
from torch_geometric.utils import remove_self_loops

import graphsvx
from graphsvx import GraphSVX, masks, metrics
from graphsvx.core.query import Query, build_query
from graphsvx.engine.choose import choose_evaluator
from graphsvx.engine.evaluator import Evaluator, node_perturbations
from graphsvx.engine.reading import with_reading
from graphsvx.engine.rows import batch_items
from graphsvx.estimators import WLS, Lasso
from graphsvx.integrations.pyg import GraphSVXAlgorithm
from graphsvx.masks import SmarterSeparate
from graphsvx.methods import (
    LIME,
    SHAP,
    XGNN,
    GNNExplainer,
    GraphLIME,
    Greedy,
    IntegratedGradients,
    PGExplainer,
    PGMExplainer,
    Random,
    Saliency,
)
from graphsvx.methods.baseline import Method
from graphsvx.methods.player_kinds import MetaPaths
from graphsvx.utils.context import collected
from graphsvx_lab.metrics.effects import leave_one_out
from tests import typed_worlds
from tests.simulated_device import CAN_BE_SIMULATED, Counts, counted, simulated_device
from tests.worlds import pooled, random_graph, random_model, seeded

pytestmark = pytest.mark.skipif(
    not CAN_BE_SIMULATED, reason="a device in Python needs a newer version of torch"
)
CPU = torch.device("cpu")
Move = Callable[[Any], Any]
"""Moves a model or data to the device of a case."""


@pytest.fixture(scope="module")
def on_device() -> Iterator[Callable[..., Any]]:
    """Runs a function of this module in a process that has the simulated device."""
    with ProcessPoolExecutor(
        1, multiprocessing.get_context("spawn"), initializer=_start_process
    ) as process:
        yield lambda function, *arguments: process.submit(function, *arguments).result(120)


def _start_process() -> None:
    torch.set_num_threads(1)
    simulated_device()


class Pairs(nn.Module):
    """A score for each pair of nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(3, 6)

    def forward(self, x: Tensor, edge_index: Tensor, edge_label_index: Tensor) -> Tensor:
        hidden = self.conv(x, edge_index).tanh()
        return (hidden[edge_label_index[0]] * hidden[edge_label_index[1]]).sum(-1)


class WithEdgeFeatures(nn.Module):
    """Layers that read edge features."""

    def __init__(self) -> None:
        super().__init__()
        self.first = GINEConv(nn.Linear(3, 6), edge_dim=2)
        self.second = GATConv(6, 3, edge_dim=2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index, edge_attr).tanh(), edge_index, edge_attr)


class Mixing(nn.Module):
    """Something is computed from all nodes together, so that no shortcut holds."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(3, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = self.conv(x, edge_index).tanh()
        return hidden - hidden.mean(0)


def _graph() -> Data:
    """A graph with a self-loop and features of edges."""
    data, rng = random_graph(3), torch.Generator().manual_seed(5)
    data.edge_attr = torch.rand(data.num_edges, 2, dtype=torch.float64, generator=rng)
    return data


def _wide(nodes: int = 90) -> Data:
    """A larger graph without them, of which degrees are counted."""
    data = random_graph(3, nodes, chance=0.06)
    data.edge_index, _ = remove_self_loops(data.edge_index)
    return data


def _weighted(data: Data) -> Data:
    rng = torch.Generator().manual_seed(5)
    data.edge_weight = torch.rand(data.num_edges, dtype=torch.float64, generator=rng)
    return data


_TYPED = typed_worlds.typed_graph(3, counts=(2, 2, 1))
World = tuple[nn.Module, Any, dict[str, Any]]
WORLDS: dict[str, Callable[[], World]] = {
    **{f"node of {name}": lambda name=name: (random_model(name, 2), _graph(), {"node": 1})
       for name in ("gcn", "gat", "gin", "sage")},
    "node, weights": lambda: (random_model("graphconv", 2), _weighted(random_graph(3)),
                              {"node": 1}),
    "nodes": lambda: (random_model("gcn", 2), _graph(), {"nodes": [1, 4]}),
    "targets": lambda: (random_model("gcn", 2), _graph(), {"node": 1, "targets": "all"}),
    **{f"wide {name}": lambda name=name: (random_model(name, 2), _wide(), {"node": 1})
       for name in ("gcn", "gat", "gin", "sage")},
    "wide, weights": lambda: (random_model("graphconv", 2), _weighted(_wide()), {"node": 1}),
    "edge features": lambda: (seeded(WithEdgeFeatures), _graph(), {"node": 1}),
    "mixing": lambda: (seeded(Mixing), _graph(), {"node": 1}),
    "link": lambda: (seeded(Pairs), _graph(), {"edge": (1, 4)}),
    "link of embeddings": lambda: (random_model("gcn", 2), _graph(), {"edge": (1, 4)}),
    "graph": lambda: (pooled("gcn", "add", 0), _graph(), {"graph": True}),
    "graph of means": lambda: (pooled("gcn", "mean", 0), _graph(), {"graph": True}),
    "large graph": lambda: (pooled("gcn", "add", 0), _wide(40), {"graph": True}),
    **{f"typed node of {name}": lambda name=name: (
        typed_worlds.hetero_model(name, _TYPED, 2), _TYPED.clone(), {"node": ("paper", 1)})
       for name in ("sage", "gat", "graphconv", "hgt")},
    "typed graph": lambda: (
        typed_worlds.hetero_model("pooled", _TYPED, 2), _TYPED.clone(), {"graph": True}),
    "typed link": lambda: (
        typed_worlds.hetero_model("encoder", _TYPED, 2), _TYPED.clone(),
        {"edge": (("author", 0), ("paper", 1)), "scale": "value"}),
    "relations": lambda: (
        typed_worlds.relational_model("rgcn", 2), typed_worlds.relational_graph(3), {"node": 1}),
}  # fmt: skip
_FEW = GraphSVX(samples=24)
_PATHS = {"co-authors": [("paper", "rev_writes", "author"), ("author", "writes", "paper")]}
SETTINGS: dict[str, list[Method]] = {
    "node of gcn": [
        GraphSVX(), *(GraphSVX(samples=24, **changes) for changes in (
            {"order": 2}, {"players": "nodes"}, {"players": "features", "features": "all"},
            {"players": "edges"}, {"players": "edges", "directions": "apart"},
            {"players": "subgraph_features"}, {"players": "cells"}, {"reference": 2},
            {"groups": {"some": [2, 3], "others": [4, 5]}}, {"feature_groups": {"first": [0, 1]}},
            {"reference": "class:1"}, {"erase": True}, {"erase": "rows"}, {"indirect": "mean"},
            {"indirect": "target"}, {"players": "both", "balance": 0.5},
            {"mask": SmarterSeparate()}, {"mask": masks.Random()},
            {"estimator": Lasso(k=2)}, {"estimator": WLS()},
        )),
        GraphSVX(tolerance=0.1, max_samples=60), GraphSVX.paper("ba-shapes", samples=24),
        GraphSVX.paper("ba-shapes", "released", samples=24),
        GNNExplainer(epochs=3), GraphLIME(), PGMExplainer(samples=20),
        LIME(samples=20), SHAP(samples=20), Greedy(rounds=1), Random(), Saliency(),
        IntegratedGradients(steps=3),
    ],
    "edge features": [GraphSVX(samples=24, players="edge_attr")],
    "node, weights": [GraphSVX(samples=24, players="edges"), GNNExplainer(epochs=3)],
    "wide gcn": [GraphSVX(), GraphSVX(samples=2500), GraphSVX(samples=24, players="edges")],
    "wide, weights": [GraphSVX(samples=300)],
    "link": [GraphSVX(samples=24, players="edges")],
    "graph": [
        *(GraphSVX(samples=24, **changes) for changes in (
            {"erase": True}, {"erase": "rows"}, {"players": "edges"}, {"players": "features"},
            {"order": 2},
        )),
        GNNExplainer(epochs=3), PGMExplainer(samples=20), Greedy(rounds=1),
        Random(), Saliency(), IntegratedGradients(steps=3), XGNN(steps=2, episodes=2),
    ],
    "typed node of sage": [
        GraphSVX(samples=60), *(GraphSVX(samples=8, **changes) for changes in (
            {"players": "nodes"}, {"players": "features"}, {"players": "edges"},
            {"players": "relations"}, {"players": MetaPaths(paths=_PATHS)},
            {"node_types": ("author",)}, {"order": 2}, {"erase": True},
        )),
        Greedy(rounds=1), Random(), Saliency(), IntegratedGradients(steps=3),
    ],
    "typed graph": [
        *(GraphSVX(samples=8, players=players) for players in ("edges", "features")),
        Greedy(rounds=1), Saliency(),
    ],
    "typed link": [*(GraphSVX(samples=8, players=players) for players in ("edges", "nodes")),
                   Saliency()],
}  # fmt: skip


def _explained(world: str, method: Method) -> Callable[[Move], Any]:
    def case(move: Move) -> Any:
        model, data, question = WORLDS[world]()
        return graphsvx.explain(move(model), move(data), **question, method=method)

    return case


def _label(method: Method) -> str:
    settings = method.settings() if isinstance(method, GraphSVX) else {}
    return " ".join([type(method).__name__, *(f"{k}={v}" for k, v in settings.items())])[:70]


def _many(move: Move) -> list[Any]:
    model, data, _ = WORLDS["node of gcn"]()
    return list(graphsvx.explain_many(move(model), move(data), range(3), method=_FEW))


def _trained(move: Move) -> Any:
    """Trained on the CPU: lazy layers, which PyG trains, are none on devices made in Python."""
    model, data, question = WORLDS["node of gcn"]()
    method = PGExplainer(epochs=2).fit(model, data, nodes=[0, 1])
    return graphsvx.explain(move(model), move(data), **question, method=method)


def _answers(move: Move) -> list[Any]:
    explanation = _explained("node of gcn", _FEW)(move)
    return [explanation.flip(), explanation.sufficient(0.5)]


def _pyg(move: Move, **config: Any) -> list[Any]:
    model, data, _ = WORLDS["node of gcn"]()
    model, data = move(model), move(data)
    explainer = Explainer(
        model, GraphSVXAlgorithm(_FEW), "model",
        {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
        **config,
    )  # fmt: skip
    explanation = explainer(data.x, data.edge_index, index=1)
    found = [explanation.get(name) for name in ("node_mask", "edge_mask", "node_credit")]
    tensors = [tensor for tensor in found if tensor is not None]
    assert {tensor.device for tensor in tensors} == {data.x.device}
    scores = fidelity(explainer, explanation), unfaithfulness(explainer, explanation)
    return [*(tensor.cpu() for tensor in tensors), scores]


def _to_pyg(move: Move) -> list[Any]:
    explanation = _explained("node of gcn", _FEW)(move)
    data = move(_graph())
    converted = explanation.to_pyg(data)
    assert {
        value.device for value in converted.to_dict().values() if isinstance(value, Tensor)
    } == {data.x.device}
    return [converted.node_mask.cpu(), *(tensor.cpu() for tensor in explanation.to_captum(data))]


def _measured(move: Move) -> list[Any]:
    model, data, question = WORLDS["node of gcn"]()
    model, data = move(model), move(data)
    explanation = graphsvx.explain(model, data, **question, method=_FEW)
    return [
        measure(explanation, model, data)
        for measure in (metrics.fidelity, metrics.unfaithfulness, leave_one_out)
    ]


CASES: dict[str, Callable[[Move], Any]] = {
    **{world: _explained(world, GraphSVX(samples=8 if "typed" in world else 24))
       for world in WORLDS},
    **{f"{world}, {number}: {_label(method)}": _explained(world, method)
       for world, listed in SETTINGS.items() for number, method in enumerate(listed)},
    "explain_many": _many, "PGExplainer": _trained, "answers": _answers,
    "measures": _measured, "to_pyg": _to_pyg,
    "PyG, nodes and edges": partial(_pyg, node_mask_type="object", edge_mask_type="object"),
    "PyG, features": partial(_pyg, node_mask_type="common_attributes"),
    "PyG, cells": partial(_pyg, node_mask_type="attributes"),
}  # fmt: skip


def compare(name: str) -> tuple[Any, Any]:
    """What a case gives on the CPU and on the device, as plain numbers."""
    device = simulated_device()
    return _plain(CASES[name](lambda value: value)), _plain(CASES[name](lambda v: v.to(device)))


def _plain(value: Any) -> Any:
    if isinstance(value, graphsvx.Explanation):
        return value.to_dict()
    if isinstance(value, Tensor):
        return value.tolist()
    return [_plain(part) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    "name",
    # Every third here; all of them are thorough.
    [
        pytest.param(name, marks=() if place % 3 == 0 else pytest.mark.thorough, id=str(name))
        for place, name in enumerate(CASES)
    ],
)
def test_a_device_gives_what_the_cpu_gives(name: str, on_device: Callable[..., Any]) -> None:
    on_cpu, there = on_device(compare, name)
    assert there == on_cpu


def _evaluator_of(name: str, device: torch.device) -> tuple[Query, Evaluator]:
    data = (_weighted(_wide()) if name == "graphconv" else _wide()).to(device)
    query = with_reading(build_query(random_model(name, 2).to(device), data, node=1))
    return query, choose_evaluator(query, None, 0)


def work_of_batches(name: str, sizes: Sequence[int]) -> list[Counts]:
    """What the device is asked to evaluate so many coalitions."""
    query, evaluator = _evaluator_of(name, simulated_device())
    rng, field, counts = np.random.default_rng(0), evaluator.field, []
    for size in sizes:
        on = rng.random((size, field.size)) < 0.7
        on[:, : field.centres] = True
        perturbations = node_perturbations(query, field, on)
        hops = evaluator.hop_counts(field, perturbations)
        with torch.no_grad(), counted() as work:
            evaluator.evaluate(field, perturbations, hops)
        counts.append(work)
    return counts


@pytest.mark.parametrize("name", ["gcn", "gat", "gin", "sage", "graphconv"])
def test_a_batch_takes_as_many_steps_for_many_coalitions_as_for_few(name, on_device) -> None:
    few, many = on_device(work_of_batches, name, (200, 1000))
    assert many == few
    assert few.to_device <= 5  # indices, and what the first round needs
    assert few.from_device == 0
    # A softmax whose range is looked at; layers with weighted edges run their own code, trimmed.
    assert few.waits <= (2 if name in ("gat", "graphconv") else 0)


def copies_of_explanations(calls: Sequence[int]) -> list[Counts]:
    """What whole explanations of the same question ask of the device."""
    model, data, question = WORLDS["wide gcn"]()
    model, data = model.to(simulated_device()), data.to(simulated_device())
    graphsvx.explain(model, data, **question, method=GraphSVX(samples=50))  # checks of the model
    counts = []
    for samples in calls:
        with counted() as work:
            graphsvx.explain(model, data, **question, method=GraphSVX(samples=samples))
        counts.append(work)
    return counts


def test_more_coalitions_need_no_more_waits(on_device) -> None:
    few, many = on_device(copies_of_explanations, (200, 600))
    assert many.waits <= few.waits + 2
    assert many.from_device <= few.from_device + 2
    assert many.launches <= 2 * few.launches


def items_where_free(free: int) -> tuple[int, int]:
    device = simulated_device()
    torch.get_device_module(device).mem_get_info = lambda _: (free, 1 << 40)
    try:
        return batch_items(device, 1 << 29, 16), batch_items(CPU, 1 << 29, 16)
    finally:
        del torch.get_device_module(device).mem_get_info


def test_batches_fill_the_memory_that_is_allowed_and_half_of_what_is_free(on_device) -> None:
    assert on_device(items_where_free, 1 << 40) == ((1 << 29) // 256, 1 << 18)
    assert on_device(items_where_free, 1 << 20) == ((1 << 19) // 256, 1 << 18)


def slopes_on_both() -> list[list[Any]]:
    """Derivatives by the activity of far players."""
    slopes: list[list[Any]] = []
    for device in (CPU, simulated_device()):
        query, evaluator = _evaluator_of("gcn", device)
        rows = np.ones((4, evaluator.field.size), dtype=bool)
        rows[1:, 5:] = np.random.default_rng(0).random((3, evaluator.field.size - 5)) < 0.5
        perturbations = node_perturbations(query, evaluator.field, rows)
        hops = evaluator.hop_counts(evaluator.field, perturbations)
        with collected() as given_up:
            rates = evaluator.slopes(evaluator.field, perturbations, hops, query.scores)
        slopes.append([given_up, None if rates is None else rates.tolist()])
    return slopes


def test_derivatives_are_taken_on_a_device(on_device) -> None:
    on_cpu, there = on_device(slopes_on_both)
    assert on_cpu[0] == []
    assert on_cpu[1] is not None
    assert there == on_cpu


def refusals() -> list[str]:
    """Messages where not everything is on one device."""
    device = simulated_device()
    model, data, question = WORLDS["node of gcn"]()
    typed_model, typed_data, typed_question = WORLDS["typed node of sage"]()
    apart, typed_apart = data.clone(), typed_data.clone()
    apart.x = data.x.to(device)
    typed_apart["paper"].x = typed_data["paper"].x.to(device)
    calls = [
        (model, apart, question), (model, data.clone().to(device), question),
        (typed_model, typed_apart, typed_question),
        (typed_model, typed_data.clone().to(device), typed_question),
    ]  # fmt: skip
    messages = []
    for used, given, asked in calls:
        with pytest.raises(graphsvx.errors.GraphSVXError) as caught:
            graphsvx.explain(used, given, **asked)
        messages.append(f"{type(caught.value).__name__}: {caught.value}")
    return messages


def test_what_is_on_another_device_is_named(on_device) -> None:
    data, model, typed_data, typed_model = on_device(refusals)
    assert data.startswith("InputError: data must be on one device, got x on simulated:0, "
                           "edge_index on cpu")  # fmt: skip
    assert typed_data.startswith("InputError: data must be on one device, got x of 'paper' on sim")
    for message in (model, typed_model):
        assert message.startswith("ModelError: ")
        assert 'the model is on cpu and the data on simulated:0: use model.to("sim' in message


def numbers_out_of_reach() -> list[str]:
    """Errors of what a device does not do."""
    device, errors = simulated_device(), []
    on_cpu, there = torch.ones(2), torch.ones(2).to(simulated_device())
    for act in (
        there.numpy,
        lambda: there + on_cpu,
        lambda: there.index_select(0, torch.tensor([5]).to(device)),
    ):
        try:
            act()
        except BaseException as error:
            errors.append(type(error).__name__)
    return errors


def test_the_simulated_device_is_no_cpu(on_device) -> None:
    assert on_device(numbers_out_of_reach) == ["TypeError", "RuntimeError", "DeviceLostError"]


def test_the_page_about_gpus_has_the_number_of_configurations() -> None:
    page = Path(__file__).parents[1] / "docs" / "howto" / "gpu.md"
    assert f"{len(CASES)} configurations" in " ".join(page.read_text().split())
