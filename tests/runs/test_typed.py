"""Many explanations of a typed graph: explain_many, runs, the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import graphsvx
from graphsvx import datasets, runs, zoo
from graphsvx.cli import app
from graphsvx.errors import InputError
from graphsvx.methods import GraphSVX
from graphsvx.results import serialize
from tests import typed_worlds as worlds

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
    with pytest.raises(graphsvx.errors.DataError, match="another run"):
        runs.start(model, data, ("author", [0]), out=tmp_path / "run", method=METHOD)


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
    tested = datasets.load("typed-motifs").split.test
    assert len(tested) == 40
    wrong = runner.invoke(app, ["run", *common, "--nodes", "3", "--out", str(tmp_path / "other")])
    assert wrong.exit_code != 0
