"""Many explanations of a typed graph: explain_many, runs, the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data
from typer.testing import CliRunner

import graphsvx
from graphsvx import runs
from graphsvx.cli import app
from graphsvx.errors import InputError
from graphsvx.methods import GraphSVX
from graphsvx.results import serialize
from graphsvx_lab import datasets, zoo
from graphsvx_lab.zoo.models import RelationalEncoder
from tests import typed_worlds as worlds
from tests.runs.helpers import ThisProcess

METHOD = GraphSVX(players="nodes", samples=20)


@pytest.fixture(scope="module")
def world() -> tuple[torch.nn.Module, object]:
    data = worlds.typed_graph(3)
    return worlds.hetero_model("sage", data, 3), data


def test_many_nodes_of_one_type(world) -> None:
    model, data = world
    explained = list(graphsvx.explain_many(model, data, ("paper", [0, 2]), method=METHOD))
    assert [e.title.split(":")[0] for e in explained] == ["paper 0", "paper 2"]
    alone = graphsvx.explain(model, data, node=("paper", 2), method=METHOD)
    assert serialize.same(explained[1], alone)
    assert len(list(graphsvx.explain_many(model, data, "paper", method=METHOD))) == 4
    with pytest.raises(InputError, match="node type"):
        graphsvx.explain_many(model, data, [0, 1])


def test_a_run_over_nodes_of_one_type_resumes(world, tmp_path: Path) -> None:
    model, data = world

    def start() -> runs.Run:
        return runs.start(
            model, data, ("paper", [0, 3]), out=tmp_path / "run", method=METHOD,
            backend=runs.Local(1),
        )  # fmt: skip

    run = start()
    assert run.status().done == 2
    assert set(run[3].nodes) <= {"paper", "author", "subject"}
    assert start().status().done == 2
    by_type = run.summary("class").roles
    assert set(by_type.keys) <= {"paper", "author", "subject"}
    total = sum(sum(e.by_type().values()) for e in (run[0], run[3])) / 2
    assert by_type.mean.sum() == pytest.approx(total)
    assert set(run.summary("hops").roles.keys) <= {1, 2}
    with pytest.raises(graphsvx.errors.DataError, match="another run"):
        runs.start(model, data, ("paper", [1]), out=tmp_path / "run", method=METHOD)


@pytest.mark.parametrize(
    "question",
    [{"edges": [(("author", 0), ("paper", 1)), (("paper", 2), ("subject", 1))]},
     {"groups": [[("paper", 0), ("paper", 2)], [("author", 1)]]}],
    ids=["edges", "groups"],
)  # fmt: skip
def test_a_run_over_links_and_groups_is_that_of_single_explanations(question, tmp_path) -> None:
    data = worlds.typed_graph(3)
    model = worlds.hetero_model("encoder", data, 3)
    run = runs.start(model, data, **question, out=tmp_path / "run", method=METHOD,
                     backend=ThisProcess())  # fmt: skip
    ((kind, members),) = question.items()
    for at, nodes in enumerate(members):
        asked = {"edge": tuple(nodes)} if kind == "edges" else {"nodes": nodes}
        alone = graphsvx.explain(model, data, **asked, method=METHOD)
        assert serialize.same(run[at], alone)
        assert run[at].title == alone.title


def test_a_run_over_links_of_a_relation(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = RelationalEncoder(5, 2, hidden=4, layers=1).eval()
    data = Data(edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]]),
                edge_type=torch.tensor([0, 1, 0, 1]), num_nodes=5)  # fmt: skip
    data.node_names = ["a", "b", "c", "d", "e"]
    method = GraphSVX(players="edges")
    run = runs.start(model, data, edges=[("a", "c"), (1, 4)], relation=1, out=tmp_path / "run",
                     method=method, backend=ThisProcess())  # fmt: skip
    alone = graphsvx.explain(model, data, edge=(1, 4), relation=1, method=method)
    assert serialize.same(run[1], alone)
    assert run[0].title.startswith("link a –1→ c")


def test_the_command_line_names_types(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("GRAPHSVX_MODELS", str(tmp_path))
    settings = zoo.Settings(family="typed", model="sage", hidden=4, layers=2, epochs=5)
    trained = zoo.train(datasets.load("typed-motifs"), settings=settings)
    checkpoint = zoo.save(trained)
    runner = CliRunner()
    common = ["typed-motifs", "--checkpoint", str(checkpoint), "--samples", "20"]
    explained = runner.invoke(app, ["explain", *common, "--node", "user:3", "--set", "hops=1"])
    assert explained.exit_code == 0, explained.output
    assert "user 3: kind" in explained.output
    out = tmp_path / "run"
    ran = runner.invoke(app, ["run", *common, "--nodes", "user:1,2", "--out", str(out), "--workers",
                              "1"])  # fmt: skip
    assert ran.exit_code == 0, ran.output
    assert runs.open(out).status().done == 2
    linked = runner.invoke(app, ["run", *common, "--groups", "user:1,2; item:3", "--out",
                                 str(tmp_path / "groups"), "--workers", "1"])  # fmt: skip
    assert "item" in str(runs.open(tmp_path / "groups").failures()), linked.output
    assert runs.open(tmp_path / "groups").status().done == 1
    tested = datasets.load("typed-motifs").split.test
    assert len(tested) == 40
    wrong = runner.invoke(app, ["run", *common, "--nodes", "3", "--out", str(tmp_path / "other")])
    assert wrong.exit_code != 0
