"""The snippets of README.md and the commands of the start page run as they stand."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest
from typer.testing import CliRunner

from graphsvx.cli import app
from graphsvx_lab import datasets, zoo

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
START = (ROOT / "docs" / "start.md").read_text()
SNIPPETS = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
COMMANDS = re.findall(r"^\$ graphsvx (.*)$", START, re.MULTILINE)


def test_the_snippets_run_one_after_the_other_and_print_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    assert SNIPPETS
    for snippet in SNIPPETS:
        exec(snippet, names)
    plt.close("all")
    assert (tmp_path / "why.html").exists()
    shown = "".join(re.findall(r"^```text\n(.*?)^```", README, re.DOTALL | re.MULTILINE))
    printed = capsys.readouterr().out
    assert printed.splitlines()[0] == shown.splitlines()[0]
    # On another processor the model has other weights, in the last digits.
    assert len(_players(shown) & _players(printed)) >= 0.7 * len(_players(shown)) > 5
    assert _prediction(printed) == pytest.approx(_prediction(shown), abs=0.05)


def _players(table: str) -> set[str]:
    return set(re.findall(r"^ +(\S.*?)  ", table, re.MULTILINE))


def _prediction(text: str) -> float:
    return float(re.findall(r"^prediction ([\d.]+) = base", text, re.MULTILINE)[0])


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that are hardly trained, where the commands look for them."""
    monkeypatch.setenv("GRAPHSVX_MODELS", str(tmp_path / "models"))
    for name in ("karate", "molecules-carbonyl"):
        dataset = datasets.load(name)
        settings = replace(zoo.settings_for(name), epochs=1)
        zoo.save(zoo.train(dataset, settings=settings))


@pytest.mark.usefixtures("models")
def test_the_commands_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(COMMANDS) >= 5
    for command in COMMANDS:
        done = CliRunner().invoke(app, shlex.split(command))
        assert done.exit_code == 0, f"{command}: {done.output}"
    assert (tmp_path / "report.html").exists()


@pytest.mark.parametrize("page", [README, START], ids=["readme", "start"])
def test_what_a_block_prints_stands_below_it(page: str) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```\n\n(```text)?", page, re.DOTALL | re.MULTILINE)
    assert any("print(" in code for code, _ in blocks)
    for code, output in blocks:
        assert bool(output) == ("print(" in code), code


def test_files_that_it_links_to_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), target
