"""`graphsvx study`, with small studies of the tests' own; each real one has its quick test."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphsvx import GraphSVX, studies
from graphsvx.errors import DataError
from graphsvx.studies import Desk, Page, Study, Table
from tests.cli.conftest import Run


def _small(desk: Desk) -> Page:
    world = desk.world("ba-shapes")
    found = desk.explanations(world, GraphSVX(samples=50), [400, 401, 402], label="ours")
    rows = tuple((one.centres[0], one.prediction) for one in found)
    return Page("Small", (Table("values", ("node", "prediction"), rows),), "Three nodes explained.")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, with two studies: one works, one is stopped half-way."""

    def stopped(desk: Desk) -> Page:
        _small(desk)
        raise KeyboardInterrupt

    both = (Study("small", "a small one", _small), Study("stopped", "is stopped", stopped))
    monkeypatch.setattr(studies, "_ALL", both)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_studies_are_listed(place: Path, run: Run):
    found = run("study")
    assert found.code == 0
    assert "a small one" in found.out
    assert not list(place.iterdir())


def test_a_quick_study_never_touches_the_results(place: Path, run: Run):
    found = run("study", "small", "--quick", "--workers", "1")
    assert found.code == 0
    assert "Three nodes explained." in found.out
    assert not (place / "docs").exists()
    record = json.loads((place / "out/studies/small.json").read_text())
    assert [row["node"] for row in record["tables"][0]["rows"]] == [400, 401, 402]
    assert record["command"] == "graphsvx study small --quick"
    summary = (place / "out/studies/README.md").read_text()
    assert "[Small](small.md)" in summary
    assert "**stopped**: not made yet" in summary


def test_a_stopped_study_says_how_to_go_on_and_keeps_what_is_done(place: Path, run: Run):
    found = run("study", "stopped", "--quick", "--workers", "1")
    assert found.code == 130
    assert "graphsvx study stopped --quick --workers 1" in found.err
    assert not (place / "out").exists()
    assert list((place / "runs/studies-quick").rglob("*.parquet"))


def test_all_goes_on_without_a_study_whose_files_are_missing(
    place: Path, run: Run, monkeypatch: pytest.MonkeyPatch
):
    def missing(desk: Desk) -> Page:
        raise DataError("there is no file cora.x")

    both = (Study("missing", "needs files", missing), studies._ALL[0])
    monkeypatch.setattr(studies, "_ALL", both)
    found = run("study", "--all", "--quick", "--workers", "1")
    assert found.code == 2
    assert "left out missing: there is no file cora.x" in found.err
    assert "**missing**: not made yet" in (place / "out/studies/README.md").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nothing",), "there is no study 'nothing'; choose one of: small, stopped"),
        (("small", "--all"), "leave out the name"),
    ],
)
def test_wrong_requests_are_one_line(place: Path, run: Run, words: tuple[str, ...], message: str):
    found = run("study", *words)
    assert found.code == 2
    assert message in found.err
    assert "Traceback" not in found.err
