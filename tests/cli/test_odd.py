"""Odd words at the command line: one line and exit code 2, never a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch
from torch_geometric.data import Data

from graphsvx.cli.options import MethodChoice
from graphsvx.errors import GraphSVXError
from graphsvx.methods import registry
from graphsvx_lab import datasets, zoo
from tests.cli.conftest import HEAR_CTRL_C

TEXTS = [
    "", " ", "x", "Paired", "None", "True", "nan", "NaN", "Infinity", "-1", "0", "1e400", "2.5",
    "9" * 5000, "[" * 5000, "[1, 2]", "{}", '{"a": [0]}', '{"a": "b"}', "\x1b[31m", "\u202e", "[1",
    "=", "a=b", "class:1", "class:x", "null", '"mean"', "1_000",
]  # fmt: skip


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    settings = replace(zoo.settings_for("ba-shapes"), epochs=1)
    zoo.save(zoo.train(datasets.load("ba-shapes"), settings.model, 0, settings=settings), root=root)
    return root


@pytest.fixture
def refused(run, models, monkeypatch):
    """Runs the command line, which must answer with one line and exit code 2."""
    monkeypatch.setenv("GRAPHSVX_MODELS", str(models))

    def go(*words: str) -> str:
        ran = run(*words)
        assert ran.code == 2, (ran.out, ran.err)
        assert "Traceback" not in ran.err
        assert "\x1b" not in ran.err
        return ran.err

    return go


@pytest.mark.parametrize("name", registry.names())
def test_every_setting_with_every_text(name: str) -> None:
    for setting in (*registry.settings(name), "dataset", "load", "self", "", "__class__"):
        for text in TEXTS:
            try:
                MethodChoice(name, pairs=(f"{setting}={text}",)).build()
            except GraphSVXError:
                continue


def test_an_unknown_mask_is_refused(refused) -> None:
    said = refused("explain", "ba-shapes", "--node", "400", "--set", "mask=Paired-up")
    assert "mask" in said
    assert "Paired-up" in said


@pytest.mark.parametrize(
    "words",
    [
        ("run", "ba-shapes", "--nodes", "0-999999999999", "--out", "OUT"),
        ("run", "ba-shapes", "--nodes", "9" * 30, "--out", "OUT"),
        ("run", "ba-shapes", "--nodes", "5-3", "--out", "OUT"),
        ("run", "ba-shapes", "--nodes", "1,,2", "--out", "OUT"),
        ("run", "ba-shapes", "--nodes", "class:99999999999999999999", "--out", "OUT"),
        ("run", "ba-shapes", "--nodes", "\u202e", "--out", "OUT"),
        ("run", "ba-shapes", "--nodes", "1", "--out", "/proc/nothing/run"),
        ("run", "ba-shapes", "--nodes", "1", "--out", "/dev/null"),
        ("run", "ba-shapes", "--nodes", "1", "--out", "x" * 300),
        ("run", "ba-shapes", "--nodes", "1", "--out", "OUT", "--seed", "-1"),
        ("run", "ba-shapes", "--nodes", "1", "--out", "OUT", "--seed", "9" * 30),
        ("run", "ba-shapes", "--nodes", "1", "--out", "OUT", "--workers", "99999999"),
        ("run", "ba-shapes", "--nodes", "1", "--out", "OUT", "--part", "9" * 30),
        ("run", "--status", "/proc/self/status"),
        ("run", "--status", "x" * 300),
        ("report", "/dev/null"),
        ("explain", "x" * 300, "--node", "0"),
        ("explain", "\x1b[31m", "--node", "0"),
        ("explain", "ba-shapes", "--node", "9" * 30),
        ("explain", "ba-shapes", "--nodes", "1,1"),
        ("explain", "ba-shapes", "--nodes", "9" * 5000),
        ("explain", "ba-shapes", "--edge", "1"),
        ("explain", "ba-shapes", "--node", "400", "--target", "-1"),
        ("explain", "ba-shapes", "--node", "400", "--few", "0"),
        ("explain", "ba-shapes", "--node", "400", "--samples", "-5"),
        ("explain", "ba-shapes", "--node", "400", "--hops", "-5"),
        ("explain", "ba-shapes", "--node", "400", "--scale", "percent"),
        ("explain", "ba-shapes", "--node", "400", "--contrast", "1,99"),
        ("explain", "ba-shapes", "--node", "400", "--seed", "-1"),
        ("explain", "ba-shapes", "--node", "400", "--model-seed", "-1"),
        ("explain", "ba-shapes", "--node", "400", "--method", "\x1b[31m"),
        ("explain", "ba-shapes", "--node", "400", "--samples", "20", "--json", "/proc/x.json"),
        ("explain", "ba-shapes", "--node", "400", "--samples", "20", "--html", "/dev/null"),
        ("explain", "ba-shapes", "--node", "400", "--checkpoint", "/dev/null"),
        ("explain", "ba-shapes", "--node", "400", "--checkpoint", "x" * 300),
        ("explain", "ba-shapes", "--node", "400", "--set", "load=x"),
        ("train", "ba-shapes", "--model", "\u202e"),
        ("train", "ba-shapes", "--seed", "-3"),
        ("study", "\u202e"),
    ],
    ids=lambda words: " ".join(word[:20] for word in words).encode("unicode_escape").decode(),
)  # fmt: skip
def test_odd_words_are_refused(refused, tmp_path, words) -> None:
    refused(*(str(tmp_path / "run") if word == "OUT" else word for word in words))


@pytest.mark.parametrize("content", [b"", b"x", b"PK\x03\x04", b"\x80\x02}q\x00."])
def test_a_graph_that_is_no_graph(refused, models, tmp_path, content) -> None:
    path = tmp_path / "graph.pt"
    path.write_bytes(content)
    (checkpoint,) = models.glob("*.safetensors")
    said = refused("explain", str(path), "--checkpoint", str(checkpoint), "--node", "0")
    assert "cannot be read as a PyG Data" in said or "must hold a PyG Data" in said


@pytest.mark.parametrize(
    "graph",
    [Data(), Data(x=torch.ones(3, 10)), Data(x=torch.ones(3, 10), edge_index=torch.full((2, 1), 9)),
     Data(x="x", edge_index=torch.zeros(2, 0).long()), {"x": torch.ones(2, 2)}],
)  # fmt: skip
def test_a_graph_that_cannot_be_used(refused, models, tmp_path, graph) -> None:
    torch.save(graph, tmp_path / "graph.pt")
    (checkpoint,) = models.glob("*.safetensors")
    out = str(tmp_path / "run")
    for command, *rest in (
        ["explain", "--node", "0"],
        ["explain"],
        ["run", "--nodes", "0", "--out", out],
        ["run", "--nodes", "0-5", "--out", out],
        ["run", "--out", out],
    ):
        refused(command, str(tmp_path / "graph.pt"), "--checkpoint", str(checkpoint), *rest)


def test_ctrl_c_while_everything_is_imported() -> None:
    code = "import graphsvx_command as c; print('ready', flush=True); c.main()"
    words = ["explain", "ba-shapes", "--node", "400"]
    child = subprocess.Popen(
        [sys.executable, "-c", HEAR_CTRL_C + code, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    time.sleep(0.5)  # importing takes longer
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 130
    assert said == "stopped\n"


_ASCII = r"""
import sys, torch
from tests.worlds import random_graph
from graphsvx import cli
data = random_graph(1)
data.class_names = ["K\u00fcche", "\u4e2d", "c"]
torch.save(data, "graph.pt")
for words in (["datasets"], ["explain", "graph.pt", "--node", "1", "--describe",
              "--model", "tests.worlds:one_gcn"]):
    sys.argv = ["graphsvx", *words]
    try:
        cli.main()
    except SystemExit as stop:
        assert not stop.code, words
"""


@pytest.mark.parametrize("encoding", ["ascii", pytest.param("latin-1", marks=pytest.mark.thorough)])
def test_standard_output_of_any_encoding(tmp_path, encoding) -> None:
    plain = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    path = os.pathsep.join(sys.path)
    ran = subprocess.run(
        [sys.executable, "-c", _ASCII], capture_output=True, cwd=tmp_path, check=False,
        env={**os.environ, **plain, "PYTHONIOENCODING": encoding, "PYTHONPATH": path},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert b"Traceback" not in ran.stderr
    assert b"tree-cycles" in ran.stdout
    assert b"base" in ran.stdout


def test_names_of_files_do_not_steer_the_terminal(run, tmp_path) -> None:
    ran = run("run", "--status", str(tmp_path / "a\x1b[31m\x07b"))
    assert "\x1b[31m" not in ran.out + ran.err
    assert ran.code == 2


def test_sigterm_ends_with_143(tmp_path) -> None:
    code = (
        "import os, signal, sys; from graphsvx import cli; from graphsvx.cli import stopping\n"
        "def work():\n"
        "    with stopping.stopped_by_signals():\n"
        "        os.kill(os.getpid(), signal.SIGTERM); signal.pause()\n"
        "cli.app = work; cli.main()"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (ran.returncode, ran.stderr.strip()) == (143, b"stopped")


def test_the_command_handles_ctrl_c() -> None:
    code = "import sys; sys.argv = ['graphsvx', '--help']; import graphsvx_command as c; c.main()"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Usage" in ran.stdout
