"""`--model my_module:build --weights FILE`, links and groups, `--json -`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, global_add_pool

import graphsvx
from graphsvx import runs
from graphsvx.cli import loading
from graphsvx.cli import options as names
from graphsvx_lab import studies
from tests.cli.conftest import Run

SOURCE = """
import torch
from torch_geometric.nn import GCNConv, global_add_pool


class Net(torch.nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.conv = GCNConv(width, 3)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


class Pooled(Net):
    def forward(self, x, edge_index, batch):
        return global_add_pool(self.conv(x, edge_index), batch)


def build():
    return Net()


def wide(width):
    return Net(width)


def nothing():
    return None


def broken():
    raise RuntimeError("no such thing")


ready = Net()
"""


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(4, 3)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


class Pooled(Net):
    def forward(self, x, edge_index, batch):
        return global_add_pool(self.conv(x, edge_index), batch)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Net:
    """A model of one's own in the current folder: its module, weights and graph."""
    torch.manual_seed(0)
    model = Net().eval()
    # A module of its own for each test: modules are imported once in a process.
    module = f"mine_{abs(hash(request.node.nodeid))}"
    (tmp_path / f"{module}.py").write_text(SOURCE)
    save_file(model.state_dict(), tmp_path / "w.safetensors")
    torch.save(model.state_dict(), tmp_path / "w.pt")
    edge_index = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    data = Data(x=torch.randn(5, 4), edge_index=edge_index)
    torch.save(data, tmp_path / "graph.pt")
    torch.save([data, data], tmp_path / "graphs.pt")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    model.module, model.data = module, data
    return model


@pytest.mark.parametrize("place", ["{}:build", "{}:Net", "{}:ready", "{}.py:build"])
@pytest.mark.parametrize("weights", ["w.safetensors", "w.pt"])
def test_own_model_is_explained_as_in_python(own: Net, run: Run, place: str, weights: str) -> None:
    words = ["explain", "graph.pt", "--model", place.format(own.module), "--weights", weights]
    ran = run(*words, "--node", "1", "--json", "-")
    assert ran.code == 0, ran.err
    expected = graphsvx.explain(own, own.data, node=1).to_dict()
    assert json.loads(ran.out) == json.loads(json.dumps(expected))


def test_the_target_is_asked_by_name(own: Net, run: Run, tmp_path: Path) -> None:
    named = own.data.clone()
    named.class_names = ["cat", "dog", "eel"]
    torch.save(named, tmp_path / "named.pt")
    words = ["explain", "named.pt", "--model", f"{own.module}:build", "--node", "1"]
    assert "node 1: dog" in run(*words, "--target", "dog").out
    assert "node 1: eel" in run(*words, "--target", "2").out
    assert "did you mean 'dog'" in run(*words, "--target", "dgo").err


def test_a_run_refuses_a_target_that_the_model_does_not_have(own: Net, run: Run) -> None:
    words = ["run", "graph.pt", "--model", f"{own.module}:build", "--workers", "1"]
    ran = run(*words, "--nodes", "1", "--target", "7", "--out", "failed")
    assert ran.code == 2
    assert "target must be from 0 to 2, got 7" in ran.err


def test_own_model_of_whole_graphs(own: Net, run: Run) -> None:
    words = ["--model", f"{own.module}:Pooled", "--weights", "w.pt", "--json", "-"]
    pooled = Pooled().eval()
    pooled.load_state_dict(own.state_dict())
    expected = graphsvx.explain(pooled, own.data, graph=True)
    for file, which in (("graph.pt", "0"), ("graphs.pt", "1")):
        ran = run("explain", file, "--graph", which, *words)
        assert ran.code == 0, ran.err
        assert json.loads(ran.out)["predictions"] == expected.predictions.tolist()


@pytest.mark.parametrize(
    ("place", "rest", "message"),
    [
        ("{}:bild", [], "has no 'bild'; it has"),
        ("{}:wide", [], "takes width; name a function"),
        ("{}:nothing", [], "must return a torch.nn.Module, got NoneType"),
        ("{}:broken", [], "failed: RuntimeError: no such thing"),
        ("missing_module:build", [], "there is no module 'missing_module'"),
        ("missing/file.py:build", [], "no such file"),
        ("{}:a b", [], "my_module:build"),
        ("{}:build", ["--weights", "none.pt"], "no such file"),
        ("{}:build", ["--weights", "graph.pt"], "does not hold weights only"),
        ("{}:build", ["--weights", "evil.pt"], "does not hold weights only"),
        ("{}:build", ["--weights", "other.pt"], "missing: conv.bias"),
        ("{}:build", ["--weights", "shapes.pt"], "does not fit Net"),
        ("{}:build", ["--checkpoint", "w.safetensors"], "--weights FILE"),
        ("gcn", ["--weights", "w.pt"], "--model my_module:build"),
    ],
)
def test_what_cannot_be_loaded_is_said_in_one_line(
    own: Net, run: Run, place: str, rest: list[str], message: str
) -> None:
    torch.save(own, "evil.pt")  # a pickled model: code would be run to read it
    torch.save({"conv.lin.weight": torch.ones(3, 4), "head": torch.ones(1)}, "other.pt")
    torch.save({"conv.lin.weight": torch.ones(9, 4), "conv.bias": torch.ones(3)}, "shapes.pt")
    ran = run("explain", "graph.pt", "--model", place.format(own.module), "--node", "1", *rest)
    assert ran.code == 2
    assert message in ran.err
    assert len(ran.err.splitlines()) == 1


def test_run_explains_links_groups_and_resumes(own: Net, run: Run, tmp_path: Path) -> None:
    words = ["run", "graph.pt", "--model", f"{own.module}:build", "--weights", "w.pt",
             "--workers", "1"]  # fmt: skip
    (tmp_path / "groups.txt").write_text("0,2\n\n1-3\n")
    ran = run(*words, "--edges", "0,1; 3,1", "--out", "links")
    assert "2 of 2 explained" in ran.out, ran.err
    assert [e.centres for e in runs.open("links")] == [(0, 1), (3, 1)]
    expected = graphsvx.explain(own, own.data, edge=(3, 1))
    assert runs.open("links")[1].to_dict() == expected.to_dict()
    ran = run(*words, "--groups", "groups.txt", "--out", "groups")
    assert "2 of 2 explained" in ran.out, ran.err
    assert runs.open("groups")[1].centres == (1, 2, 3)
    assert "6 of 6" in run(*words, "--edges", "all", "--out", "every").out
    ran = run(*words, "--edges", "0,1; 2,1", "--out", "links")
    assert ran.code == 2
    assert "queries members" in ran.err


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        (["--edges", "0,1,2"], "pairs of two different nodes"),
        (["--edges", "1,1"], "pairs of two different nodes"),
        (["--groups", "0,99"], "numbers go from 0 to 4"),
        (["--groups", "a"], "got 'a'"),
        (["--edges", " ; "], "must be a list"),
        (["--groups", "0,1", "--nodes", "all"], "one kind of query"),
        (["--groups", "latin.txt"], "'latin.txt' cannot be read"),
    ],
)
def test_odd_queries_of_a_run_are_refused(
    own: Net, run: Run, tmp_path: Path, rest, message
) -> None:
    (tmp_path / "latin.txt").write_bytes("é".encode("latin-1"))
    ran = run("run", "graph.pt", "--model", f"{own.module}:build", "--out", "out", *rest)
    assert ran.code == 2
    assert message in ran.err


@pytest.mark.parametrize(
    ("package", "extra", "arguments"),
    [
        ("matplotlib", "plot", "explain cora --node 1 --picture why.png"),
        ("ray", "ray", "run cora --backend ray --out out"),
        ("uvicorn", "serve", "serve cora"),
        ("matplotlib", "plot", "study noisy-features --quick"),
        ("lime", "baselines", "study noisy-features --quick"),
        ("captum", "baselines", "study --all"),
    ],
)
def test_a_missing_package_is_said_before_the_work(
    run: Run, monkeypatch: pytest.MonkeyPatch, package: str, extra: str, arguments: str
) -> None:
    find = names.find_spec
    monkeypatch.setattr(names, "find_spec", lambda name: None if name == package else find(name))
    for module, name in ((loading, "load"), (studies.study, "measure_in_processes")):
        monkeypatch.setattr(module, name, lambda *_, **__: pytest.fail("the work has begun"))
    ran = run(*arguments.split())
    assert ran.code == 2
    assert f'pip install "graphsvx[{extra}]"' in ran.err
