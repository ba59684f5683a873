"""`graphsvx serve`: what it opens, and what it refuses."""

from __future__ import annotations

import http.client
import json

import pytest
from typer.testing import CliRunner

from graphsvx import runs
from graphsvx.cli import app
from graphsvx.cli.serve import _zoo_choice
from graphsvx.errors import DataError, InputError
from graphsvx.explorer.server import Server
from graphsvx.explorer.workspace import make_workspace
from graphsvx.runs.store import _manifest_digest
from tests.worlds import random_graph, random_model


@pytest.fixture
def asked(monkeypatch) -> list[dict]:
    """What the server says of itself before the command would wait for Ctrl-C."""
    answers = []

    def wait(server: Server) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        token = {"Authorization": f"Bearer {server.token}"}
        connection.request("GET", "/api/v1/workspace", headers=token)
        answers.append(json.loads(connection.getresponse().read()))
        connection.close()
        server.close()

    monkeypatch.setattr(Server, "wait", wait)
    return answers


def serve(*words: str):
    return CliRunner().invoke(app, ["serve", *words, "--no-browser"], catch_exceptions=False)


def test_a_folder_of_a_run_is_browsed(tmp_path, asked):
    graph = random_graph(0)
    runs.start(random_model("gcn", 0), graph, nodes=range(3), out=tmp_path / "three",
               progress=False, backend=runs.Local(workers=1))  # fmt: skip
    result = serve(str(tmp_path / "three"))
    assert "/?token=" in result.stderr
    assert "without its model" in result.stderr
    assert [(about["run"], about["live"], about["count"]) for about in asked] == [(True, False, 3)]
    with pytest.raises(InputError, match="a run has its model"):
        serve(str(tmp_path / "three"), "--model", "gcn")


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (["cra"], DataError, "did you mean 'cora'"),
        (["cora", "--model", "gnc"], InputError, "gcn"),
        (["cora", "--model", "gcn", "--model", "gat", "--weights", "x.pt"], InputError, "x.pt|one"),
    ],
)
def test_typos_are_reported_before_anything_is_loaded(words, error, message):
    with pytest.raises(error, match=message):
        serve(*words)


def test_the_command_of_a_run_is_used_for_names_of_the_zoo_only():
    dataset, (choice,) = _zoo_choice("graphsvx run cora --model gat --nodes test --out x")
    assert (dataset, choice.model, choice.model_seed) == ("cora", "gat", 0)
    assert _zoo_choice("graphsvx run cora --model evil:build --out x") is None
    assert _zoo_choice("graphsvx run evil.pt --checkpoint evil.safetensors --out x") is None
    assert _zoo_choice("graphsvx run cora --checkpoint evil.safetensors --out x") is None
    assert _zoo_choice(None) is None
    for odd in ("'", "--model-seed ²", f"--model-seed {'1' * 5000}", "--model-seed -1"):
        assert _zoo_choice(f"graphsvx run cora {odd}") is None


def test_without_a_source_it_lists_the_sets_that_need_no_download(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHSVX_MODELS", str(tmp_path))
    answers = []

    def wait(server: Server) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        token = {"Authorization": f"Bearer {server.token}"}
        for path in ("/", "/sets/karate/api/v1/workspace"):
            connection.request("GET", path, headers=token)
            answers.append(connection.getresponse().read())
        connection.close()
        server.close()

    monkeypatch.setattr(Server, "wait", wait)
    serve()
    assert b"sets/digits/" in answers[0]
    assert b"sets/cora/" not in answers[0]
    about = json.loads(answers[1])
    assert (about["title"], about["live"], about["count"]) == ("karate", True, 34)


def test_the_identity_of_a_run_of_others_is_not_trusted(tmp_path, asked, monkeypatch):
    runs.start(random_model("gcn", 0), random_graph(0), nodes=[1], out=tmp_path / "one",
               progress=False, backend=runs.Local(workers=1),
               command="graphsvx run cora --model gcn")  # fmt: skip
    manifest = json.loads((tmp_path / "one" / "run.json").read_text())
    manifest["identity"] |= {"graph": [1], "model": "gcn"}
    manifest["sha256"] = _manifest_digest(manifest["identity"])  # as whoever wrote it could
    (tmp_path / "one" / "run.json").write_text(json.dumps(manifest))
    workspace = make_workspace(random_model("gcn", 0), random_graph(0))
    monkeypatch.setattr("graphsvx.cli.serve._of_data", lambda *_, **__: workspace)
    assert "without its model" in serve(str(tmp_path / "one")).stderr
