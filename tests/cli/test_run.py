"""`graphsvx run` and `graphsvx report` as a user runs them."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from graphsvx import runs
from graphsvx.cli import app, main
from graphsvx.errors import DataError, InputError
from graphsvx_lab import datasets, zoo
from tests.runs.helpers import in_a_process


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Barely trained models, so that no test waits for a good one."""
    root = tmp_path_factory.mktemp("models")
    for name in ("ba-shapes", "ba-2motifs"):
        settings = replace(zoo.settings_for(name), epochs=1)
        trained = zoo.train(datasets.load(name), settings.model, 0, settings=settings)
        zoo.save(trained, root=root)
    return root


@pytest.fixture
def call(models, monkeypatch):
    monkeypatch.setenv("GRAPHSVX_MODELS", str(models))
    monkeypatch.setenv("COLUMNS", "200")

    def go(*words: object) -> str:
        texts = [str(word) for word in words]
        monkeypatch.setattr(sys, "argv", ["graphsvx", *texts])
        result = CliRunner().invoke(app, texts, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    return go


def test_run_status_report(call, tmp_path) -> None:
    out = tmp_path / "houses"
    words = ["run", "ba-shapes", "--nodes", "400,410-414", "--out", out, "--samples", 60,
             "--workers", 2, "--seed", 5]  # fmt: skip
    assert "6 of 6 explained, 0 failed, finished" in call(*words)
    run = runs.open(out)
    assert run.queries.tolist() == [400, 410, 411, 412, 413, 414]
    assert run[412].certificate.seed == 5
    assert run[412].class_names == datasets.load("ba-shapes").class_names
    assert "6 of 6" in call("run", "--status", out)
    page = tmp_path / "page.html"
    text = call("report", out, "--html", page, "--queries", "410,412")
    assert "Nodes by hops, 6 explanations" in text
    assert "hops 1" in text
    assert "95 % interval" in text
    html = page.read_text()
    assert "<h2>node 410" in html
    assert "<h2>node 411" not in html
    assert "class 0" in call("report", out, "--roles", "class")


def test_an_interrupted_run_says_how_to_go_on(call, tmp_path) -> None:
    out = tmp_path / "houses"
    words = ["run", "ba-shapes", "--nodes", "400-403", "--out", out, "--samples", 60, "--part", 2]
    call(*words)
    next((out / "parts").glob("00001-*")).unlink()
    text = call("run", "--status", out)
    assert "2 of 4 explained, 0 failed, stopped" in text
    assert "to go on: graphsvx run ba-shapes --nodes 400-403" in text
    assert "4 of 4" in call(*words)


def test_ctrl_c_prints_the_command_that_resumes(models, tmp_path) -> None:
    out, err = tmp_path / "all", tmp_path / "err"
    words = ["run", "ba-shapes", "--out", str(out), "--workers", "1"]

    def command() -> None:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ["GRAPHSVX_MODELS"] = str(models)
        sys.argv = ["graphsvx", *words]
        with err.open("w") as sys.stderr:
            main()

    child = in_a_process(command)
    while not (out / "progress.json").exists():
        assert child.is_alive(), err.read_text()
        time.sleep(0.05)
    time.sleep(0.5)
    os.killpg(child.pid, signal.SIGINT)  # as a terminal does: the workers get it too
    child.join(60)
    said = err.read_text()
    assert child.exitcode == 130
    assert said.splitlines()[-1] == f"graphsvx run ba-shapes --out {out} --workers 1"
    assert "Traceback" not in said
    assert runs.open(out).status().state == "stopped"


@pytest.mark.parametrize(
    ("words", "count"),
    [("test", 70), ("class:3", 160), ("class: 3", 160), ("0-2,9", 4), ("0 - 2, 9", 4)],
)
def test_nodes_are_chosen_by_words(call, tmp_path, words, count, monkeypatch) -> None:
    backends = []

    def start(model, graph, *, nodes, **options):
        backends.extend(nodes)
        raise InputError("enough")

    monkeypatch.setattr(runs, "start", start)
    with pytest.raises(InputError, match="enough"):
        call("run", "ba-shapes", "--nodes", words, "--out", tmp_path / "run")
    assert len(backends) == count


def test_graphs(call, tmp_path) -> None:
    out = tmp_path / "motifs"
    text = call("run", "ba-2motifs", "--graphs", "3,5", "--out", out, "--samples", 40)
    assert "2 of 2 explained" in text
    assert runs.open(out)[5].kind == "graph"


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (["run"], InputError, "where to keep it"),
        (["run", "ba-shapes"], InputError, "--out FOLDER"),
        (["run", "ba-shapes", "--out", "o", "--graphs", "1"], InputError, "by --nodes"),
        (["run", "ba-2motifs", "--out", "o", "--nodes", "1"], InputError, "by --graphs"),
        (["run", "ba-shapes", "--out", "o", "--nodes", "some"], InputError, "got 'some'"),
        (["run", "ba-shapes", "--out", "o", "--nodes", "class:9"], InputError, "class 9"),
        (["run", "ba-shapes", "--out", "o", "--nodes", "700"], InputError, "0 to 699"),
        (["run", "ba-shapes", "--out", "o", "--backend", "magic"], InputError, "local or ray"),
        (["run", "ba-shapes", "--out", "o", "--address", "x"], InputError, "--backend ray"),
        (["run", "--status", "nothing"], DataError, "holds no run"),
        (["run", "ba-shapes", "--status", "nothing"], InputError, "only looks"),
        (["report", "nothing"], DataError, "holds no run"),
        (["report", "nothing", "--roles", "x"], InputError, "hops or class"),
    ],
)
def test_invalid_input_is_reported_by_name(
    call, monkeypatch, tmp_path, words, error, message
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        call(*words)
    assert list(tmp_path.iterdir()) == []
