"""`graphsvx explain` as a user runs it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch_geometric.data import Data
from typer.testing import CliRunner

from graphsvx import Explanation
from graphsvx.cli import app
from graphsvx.errors import DataError, GraphSVXError, InputError
from graphsvx_lab import datasets, zoo


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A barely trained model, so that no test waits for a good one."""
    root = tmp_path_factory.mktemp("models")
    known = datasets.load("ba-shapes")
    settings = replace(zoo.settings_for("ba-shapes"), epochs=3)
    trained = zoo.train(known, settings.model, 0, settings=settings)
    zoo.save(trained, root=root)
    return root


@pytest.fixture
def run(models, monkeypatch):
    monkeypatch.setenv("GRAPHSVX_MODELS", str(models))

    def go(*words: str) -> str:
        result = CliRunner().invoke(app, ["explain", *words], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    return go


def test_the_table_says_prediction_base_and_credit(run) -> None:
    text = run("ba-shapes", "--node", "400", "--top", "3", "--samples", "60")
    assert "node 400" in text
    assert "prediction" in text
    assert "base" in text
    assert text.count("node ") >= 3
    assert "seed 0" in text
    assert "\x1b[" not in text  # plain when piped


def test_files_are_written(run, tmp_path) -> None:
    words = ["ba-shapes", "--node", "400", "--samples", "60"]
    for option, name in (("--json", "e.json"), ("--picture", "e.svg"), ("--html", "e.html")):
        words += [option, str(tmp_path / name)]
    run(*words)
    e = Explanation.load(tmp_path / "e.json")
    assert e.centres == (400,)
    assert "<svg" in (tmp_path / "e.svg").read_text()
    assert "<html" in (tmp_path / "e.html").read_text()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["e.html", "e.json", "e.svg"]


def test_target_method_and_seed_are_passed_on(run, tmp_path) -> None:
    run("ba-shapes", "--node", "400", "--samples", "60", "--target", "2", "--seed", "7",
        "--method", "graphsvx-paper", "--json", str(tmp_path / "e.json"))  # fmt: skip
    e = Explanation.load(tmp_path / "e.json")
    assert e.target == 2
    assert e.certificate.seed == 7
    assert "SmarterSeparate" in e.method


def test_a_saved_graph_with_a_checkpoint(run, models, tmp_path) -> None:
    known = datasets.load("ba-shapes").graph
    torch.save(Data(x=known.x, edge_index=known.edge_index), tmp_path / "mine.pt")
    checkpoint = next(models.glob("*.safetensors"))
    text = run(str(tmp_path / "mine.pt"), "--checkpoint", str(checkpoint), "--node", "400",
               "--samples", "60")  # fmt: skip
    assert "node 400" in text


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--node", "329", "--set", "players=edges"], "edge"),
        (["--nodes", "401,402", "--few", "2"], "2 nodes"),
        (["--edge", "400,401"], "edge (400, 401)"),
        (["--node", "329", "--contrast", "1,0"], "rather than"),
        (["--node", "329", "--set", "indirect=mean"], "node 329"),
        (["--node", "329", "--set", 'groups={"house": [325, 326]}'], "house"),
    ],
)
def test_every_kind_of_question(run, words, what) -> None:
    assert what in run("ba-shapes", "--samples", "80", *words)


class _Evil:
    def __reduce__(self):
        return (print, ("code from a file was run",))


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (["nothing", "--node", "1"], DataError, "neither a data set nor a file"),
        (["ba-shapes"], InputError, "--node 0..699"),
        (["ba-shapes", "--node", "9999"], InputError, "0 to 699"),
        (["ba-shapes", "--graph", "1"], InputError, "one graph"),
        (["ba-shapes", "--node", "1", "--method", "magic"], InputError, "one of graphsvx"),
        (["ba-shapes", "--node", "1", "--edge", "1,2"], InputError, "one question at a time"),
        (["ba-shapes", "--edge", "1"], InputError, "2 numbers"),
        (["ba-shapes", "--nodes", "a,b"], InputError, "numbers separated by commas"),
        (["ba-shapes", "--node", "1", "--set", "samples"], InputError, "NAME=VALUE"),
        (["ba-shapes", "--node", "1", "--set", "speed=9"], InputError, "speed"),
        (["ba-shapes", "--node", "1", "--set", "players=edge"], InputError, "players must be"),
        (["ba-shapes", "--node", "1", "--contrast", "1,2", "--target", "1"], InputError, "leave"),
        (["ba-shapes", "--node", "1", "--samples", "1"], InputError, "at least 2"),
        (["ba-shapes", "--node", "1", "--model", "magic"], InputError, "magic"),
        (["ba-shapes", "--node", "1", "--target", "44"], InputError, "0 to 3"),
        (["ba-shapes", "--node", "1", "--samples", "50", "--picture", "e.doc"], InputError, "doc"),
    ],
)
def test_invalid_input_is_reported_by_name(
    models, monkeypatch, tmp_path, words, error, message
) -> None:
    monkeypatch.setenv("GRAPHSVX_MODELS", str(models))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        CliRunner().invoke(app, ["explain", *words], catch_exceptions=False)
    assert list(tmp_path.iterdir()) == []


def test_a_file_with_code_in_it_is_refused(models, monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.setenv("GRAPHSVX_MODELS", str(models))
    torch.save(_Evil(), tmp_path / "evil.pt")
    checkpoint = next(models.glob("*.safetensors"))
    words = ["explain", str(tmp_path / "evil.pt"), "--checkpoint", str(checkpoint), "--node", "0"]
    with pytest.raises(GraphSVXError, match="cannot be read"):
        CliRunner().invoke(app, words, catch_exceptions=False)
    assert "was run" not in capsys.readouterr().out


def test_an_error_is_one_line_and_exit_code_two(models) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from graphsvx.cli import main; main()",
         "explain", "nothing", "--node", "1"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stderr.startswith("error: ")


def test_help_shows_examples() -> None:
    text = CliRunner().invoke(app, ["explain", "--help"]).stdout
    assert "graphsvx explain ba-shapes --node 400" in text


def test_interactions_and_sets_are_printed_and_saved(run, tmp_path) -> None:
    path = tmp_path / "e.json"
    text = run(
        "ba-shapes", "--node", "400", "--samples", "60", "--order", "2", "--set", "index=STII",
        "--sufficient", "0.5", "--flip", "--json", str(path),
    )  # fmt: skip
    assert "together" in text
    explanation = Explanation.load(path)
    assert explanation.interactions is not None
    assert explanation.interactions.order == 2
    assert explanation.interactions.index == "STII"
    assert [answer.question for answer in explanation.answers] == ["sufficient", "flip"]
