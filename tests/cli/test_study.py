"""`graphsvx study`, with small studies of the tests' own; each real one has its quick test."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from graphsvx import GraphSVX
from graphsvx.errors import DataError
from graphsvx_lab import studies
from graphsvx_lab.metrics.measurements import Row
from graphsvx_lab.studies import Claim, Grid, Measurements, Page, Setting, Study, StudyContext
from graphsvx_lab.studies.page import pivot
from graphsvx_lab.studies.study import Answer
from tests.cli.conftest import Run


def _prediction(answer: Answer) -> dict[str, float]:
    return {"prediction": answer.explanation.prediction}


def _page(results: Measurements) -> Page:
    claims = [Claim("Nodes are explained", "all", "yes", holds=True)]
    table = pivot(results, "values", "prediction", note="Three nodes explained.")
    return Page("Small", claims, sections={"Details": (table,)})


GRID = Grid(
    ("ba-shapes",), lambda _: {"ours": Setting(GraphSVX(samples=50))},
    lambda _: {"all": (400, 401, 402)}, measures=(_prediction,),
)  # fmt: skip
SMALL = Study("small", "a small one", (GRID,), _page)


def _list(monkeypatch: pytest.MonkeyPatch, *listed: Study) -> None:
    """Let these be all studies that there are."""
    module = SimpleNamespace(**{study.name: study for study in listed})
    monkeypatch.setitem(sys.modules, "graphsvx_lab.studies.listed", module)
    monkeypatch.setattr(studies, "_STUDIES", dict.fromkeys(vars(module), "listed"))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, with two studies: one works, one is stopped half-way."""

    def stopped(results: Measurements) -> Page:
        if results.values:  # the summary names the claims of studies that were not measured
            raise KeyboardInterrupt
        return Page("Stopped", [])

    _list(monkeypatch, SMALL, replace(SMALL, name="stopped", about="is stopped", page=stopped))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_studies_are_listed(place: Path, run: Run):
    result = run("study")
    assert result.code == 0
    assert "a small one" in result.out
    assert not list(place.iterdir())


def test_a_quick_study_never_touches_the_results(place: Path, run: Run):
    result = run("study", "small", "--quick")
    assert result.code == 0
    assert "Three nodes explained." in result.out
    assert not (place / "docs").exists()
    results = Measurements.read(place / "out/studies/small.parquet", "small")
    assert [row.question for row in results.values] == [400, 401]
    assert results.facts["command"] == "graphsvx study small --quick"
    summary = (place / "out/studies/README.md").read_text()
    assert "| [small](small.md) | Nodes are explained | all | yes | holds |" in summary
    assert "stopped (not measured yet: `graphsvx study stopped`): is stopped" in summary


def test_pages_are_made_from_measurements_alone(
    place: Path, run: Run, monkeypatch: pytest.MonkeyPatch
):
    assert run("study", "small", "--pages").code == 2  # nothing was measured
    results = Measurements("small", {Row("ba-shapes", "", 0, "ours", 1, "prediction"): 0.25})
    results.write(place / "docs/results/small.parquet")
    monkeypatch.setattr(StudyContext, "trained_model", lambda *_: 1 / 0)
    result = run("study", "small", "--pages")
    assert result.code == 0, result.err
    assert "| ours | 0.25 |" in (place / "docs/results/small.md").read_text()
    assert not (place / "runs").exists()


def test_a_stopped_study_says_how_to_go_on_and_keeps_what_is_done(place: Path, run: Run):
    result = run("study", "stopped", "--quick", "--workers", "1")
    assert result.code == 130
    assert "graphsvx study stopped --quick --workers 1" in result.err
    assert not (place / "out/studies/README.md").exists()
    assert list((place / "runs/studies-quick").rglob("*.parquet"))


def test_all_goes_on_without_a_study_whose_files_are_missing(
    place: Path, run: Run, monkeypatch: pytest.MonkeyPatch
):
    def missing(*_: object) -> None:
        raise DataError("there is no file cora.x")

    grid = replace(GRID, models={"": missing})
    _list(monkeypatch, replace(SMALL, name="missing", grids=(grid,)), SMALL)
    result = run("study", "--all", "--quick", "--workers", "1")
    assert result.code == 2
    assert "left out missing: there is no file cora.x" in result.err
    summary = (place / "out/studies/README.md").read_text()
    assert "- missing (not measured yet: `graphsvx study missing`): a small one" in summary


def test_all_goes_on_without_a_study_that_fails(
    place: Path, run: Run, monkeypatch: pytest.MonkeyPatch
):
    grid = replace(GRID, models={"": lambda *_: 1 / 0})
    _list(monkeypatch, replace(SMALL, name="broken", grids=(grid,)), SMALL)
    result = run("study", "--all", "--quick", "--workers", "1")
    assert result.code == 2
    assert "left out broken: Traceback" in result.err
    assert "ZeroDivisionError" in result.err
    assert (place / "out/studies/small.md").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nothing",), "there is no study 'nothing'; choose one of: small, stopped"),
        (("small", "--all"), "leave out the name"),
    ],
)
def test_wrong_requests_are_one_line(place: Path, run: Run, words: tuple[str, ...], message: str):
    result = run("study", *words)
    assert result.code == 2
    assert message in result.err
    assert "Traceback" not in result.err
