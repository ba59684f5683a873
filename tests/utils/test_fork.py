"""A process that is forked beside an explaining thread explains too, with a model in order."""

from __future__ import annotations

import os
import pickle
import select
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv

from graphsvx import GraphSVX, explain, explain_many
from graphsvx.methods import GNNExplainer
from graphsvx.results import serialize
from tests.worlds import random_graph, random_model

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]


def in_child(work: Callable[[], Any], seconds: float = 60) -> Any:
    """The result of `work` in a forked process; a failure if there is none in time."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with os.fdopen(writing, "wb") as out:
                out.write(pickle.dumps(work()))
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        there, _, _ = select.select([answer], [], [], seconds)
        if not there:
            os.kill(child, signal.SIGKILL)
        output = answer.read()
    os.waitpid(child, 0)
    assert output, "the child process hung or failed"
    return pickle.loads(output)


class Blocked(nn.Module):
    """A model whose calls in other threads wait until they are let go, where `_waits` says so."""

    def __init__(self, cached: bool = False) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.layer = GCNConv(3, 3, cached=cached).double()

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        if threading.current_thread() is not threading.main_thread() and _waits():
            _entered.set()
            assert _let_go.wait(100)
        return self.layer(x, edge_index)


_entered, _let_go = threading.Event(), threading.Event()
# Not an attribute of the model: the library would notice that the model has changed.
_waits: Callable[[], bool] = bool


@contextmanager
def explaining(
    model: Blocked, data: Any, waits: Callable[[], bool] = lambda: True, **options: Any
) -> Iterator[None]:
    """Within it, another thread is in the middle of an explanation."""
    global _waits  # noqa: PLW0603  (read by the model)
    _entered.clear()
    _let_go.clear()
    _waits = waits
    thread = threading.Thread(target=lambda: explain(model, data, node=1, **options))
    thread.start()
    try:
        assert _entered.wait(20)
        yield
    finally:
        _let_go.set()
        thread.join()


@pytest.mark.parametrize("cached", [False, True])
def test_a_child_explains_while_another_thread_is_in_the_middle_of_it(cached: bool) -> None:
    model, data = Blocked(cached).train(), random_graph(2)
    expected = explain(model, data, node=1)
    state = sorted(vars(model.layer))
    with explaining(model, data):

        def work() -> Any:
            # The thread that would have restored the model does not exist in the child.
            in_order = sorted(vars(model.layer)) == state and model.layer.cached is cached
            trains = all(module.training for module in model.modules())
            return in_order, trains, explain(model, data, node=1).to_dict()

        in_order, trains, record = in_child(work)
    assert in_order
    assert trains
    assert record == expected.to_dict()
    assert serialize.same(explain(model, data, node=1), expected)


def test_a_child_finds_no_masks_of_another_thread_in_the_layers() -> None:
    model, data = Blocked(), random_graph(2)
    with explaining(model, data, torch.is_grad_enabled, method=GNNExplainer(epochs=2)):
        explain_flags, needed = in_child(
            lambda: (model.layer.explain, [p.requires_grad for p in model.parameters()])
        )
    assert explain_flags is None
    assert all(needed)


def test_children_beside_a_thread_that_explains_all_the_time() -> None:
    model, data, method = random_model("gcn", 1), random_graph(2, nodes=30), GraphSVX(samples=60)
    expected = explain(model, data, node=1, method=method).to_dict()
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            explain(model, data, node=2, method=method)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        records = [
            in_child(lambda: explain(model, data, node=1, method=method).to_dict())
            for _ in range(5)
        ]
        many = list(explain_many(model, data, [1, 3, 4], workers=2, method=method))
    finally:
        stop.set()
        thread.join()
    assert all(record == expected for record in records)
    assert sorted(e.centres[0] for e in many) == [1, 3, 4]


def test_a_child_with_many_torch_threads_explains_a_graph_that_is_new_to_it() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        model = random_model("gcn", 1, features=500)
        data = random_graph(3, nodes=2000, features=500, chance=0.001)
        data.x.mean(0)  # starts the threads of OpenMP, which no child inherits

        def work() -> int:
            explain(model, data, node=1)
            return torch.get_num_threads()

        assert in_child(work) == 2
    finally:
        torch.set_num_threads(before)
