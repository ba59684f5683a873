"""The framework: declared grids are measured, kept, resumed, and made into pages."""

from __future__ import annotations

import math
import multiprocessing
import os
import re
import signal
import textwrap
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphsvx import GraphSVX
from graphsvx.errors import DataError, InputError
from graphsvx.methods import Random
from graphsvx.utils.processes import can_fork
from graphsvx_lab import studies
from graphsvx_lab.metrics.measurements import Row, Value, model_values
from graphsvx_lab.studies import (
    Grid,
    Measurements,
    Page,
    Setting,
    Study,
    StudyContext,
    faithfulness,
    motifs,
)
from graphsvx_lab.studies import study as framework
from graphsvx_lab.studies.page import pivot
from graphsvx_lab.studies.study import NO_FILES, Answer, Case, measure_in_processes
from tests.studies.conftest import trained_on

NODES = (400, 401, 402)


def prediction(answer: Answer) -> dict[str, float]:
    return {"prediction": answer.explanation.prediction, "nothing": float("nan")}


KILLED_AT = "KILLED_AT"
"""Environment variable with a seed whose measuring ends the process: a global that changes would
be taken for other code."""


def players(case: Case) -> Iterator[Value]:
    if os.environ.get(KILLED_AT) == str(case.seed):
        os.kill(os.getpid(), signal.SIGKILL)
    for method, explanations in case.explanations.items():
        yield method, -1, "explained", len(explanations)
    yield from model_values({"seed": case.seed})


def page(results: Measurements) -> Page:
    return Page("Small", [], sections={"Details": (pivot(results, "p", "prediction"),)})


METHODS = {"GraphSVX": Setting(GraphSVX(samples=200)), "Random": Setting(Random(players="nodes"))}
GRID = Grid(
    ("ba-shapes",), lambda _: METHODS, lambda _: {"all": NODES}, measures=(prediction,),
    case_measures=(players,), seeds=(0, 1),
)  # fmt: skip
SMALL = Study("small", "a small one", (GRID,), page)


def untimed(results: Measurements) -> dict[str, Any]:
    return {fact: value for fact, value in results.facts.items() if fact != framework.SECONDS}


def test_a_grid_is_measured_on_everything_that_it_declares(context: StudyContext):
    results = replace(SMALL, grids=(replace(GRID, seeds=(0,)),)).measure(context)
    predictions = {
        (row.method, row.question) for row in results.values if row.measure == "prediction"
    }
    # Quick: two questions of each kind.
    assert predictions == {(method, node) for method in METHODS for node in NODES[:2]}
    assert results.values[Row("ba-shapes", "", 0, "", -1, "seed")] == 0
    assert results.values[Row("ba-shapes", "", 0, "Random", -1, "explained")] == 2
    assert not results.keys(measure="nothing")
    assert "`GraphSVX(samples=20)`" in results.facts["settings"]["GraphSVX"]["BA-Shapes"]


def test_a_page_is_made_again_without_measuring(
    context: StudyContext, monkeypatch: pytest.MonkeyPatch
):
    files = SMALL.run(context)
    before = {file.name: file.read_bytes() for file in files}
    assert set(before) == {"small.parquet", "small.md"}
    monkeypatch.setattr(Study, "measure", lambda *_: 1 / 0)
    monkeypatch.setattr(StudyContext, "trained_model", lambda *_: 1 / 0)
    for file in SMALL.write_page(context.out):
        assert file.read_bytes() == before[file.name]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked process")
def test_a_study_that_was_killed_goes_on_and_gives_the_same_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Grid, "reduced", lambda self: self)  # two seeds, all questions
    uninterrupted = SMALL.measure(StudyContext(tmp_path, tmp_path / "runs-a", True, 1))
    context = StudyContext(tmp_path / "out", tmp_path / "runs-b", True, 1)
    child = os.fork()
    if child == 0:
        os.environ[KILLED_AT] = "1"
        SMALL.measure(context)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    # A page can be made from what was measured, and names what was not.
    text = SMALL.write_page(context.out)[0].read_text()
    assert "**BA-Shapes (seed 1) is missing:** not measured yet" in text
    assert {row.seed for row in SMALL.read(context.out).values} == {0}
    measured: list[int] = []
    plain = Grid.measured
    monkeypatch.setattr(
        Grid, "measured", lambda self, *given: measured.append(given[3]) or plain(self, *given)
    )
    # What was explained is not explained again: it would fail, and be told.
    monkeypatch.setattr(GraphSVX, "__call__", lambda *_: 1 / 0)
    resumed = SMALL.measure(context)
    assert measured == [1]
    assert not resumed.facts["failures"]
    assert list(resumed.values.items()) == list(uninterrupted.values.items())
    assert untimed(resumed) == untimed(uninterrupted)
    assert not resumed.facts["missing"]


@pytest.mark.skipif(not can_fork(), reason="cells are measured in forked processes")
def test_several_processes_measure_the_same_as_one(tmp_path: Path):
    contexts = [
        StudyContext(tmp_path / f"{workers}", tmp_path / f"runs-{workers}", True, workers, "same")
        for workers in (1, 2)
    ]
    # Two seeds of two studies that share their models, and one that has to be alone.
    both = (replace(GRID, quick=("ba-shapes",)), replace(GRID, quick=("tree-cycles",)))
    timed = Study("timed", "takes times", (GRID,), page, takes_times=True)
    declared = [Study("both", "two sets", both, page), SMALL, timed]
    done = measure_in_processes(dict.fromkeys(declared, contexts[1]))
    assert {name: len(cells) for name, cells in done.items()} == {"both": 2, "small": 1, "timed": 0}
    assert not measure_in_processes(dict.fromkeys(declared, contexts[0]))
    for study in declared:
        alone = study.measure(contexts[0])
        together = study.measure(contexts[1], done[study.name])
        assert list(together.values.items()) == list(alone.values.items())
        assert untimed(together) == untimed(alone)
        assert together.facts[framework.SECONDS] >= 0


@pytest.mark.skipif(not can_fork(), reason="cells are measured in forked processes")
@pytest.mark.parametrize("error", [DataError("no files"), ZeroDivisionError("a bug")])
def test_cells_that_failed_or_whose_process_died_are_left_to_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
):
    context = StudyContext(tmp_path / "out", tmp_path / "runs", True, 2)
    grid = replace(GRID, quick=("ba-shapes", "tree-cycles"))
    caller, measure_cell = os.getpid(), Study.measure_cell

    def fails(study: Study, context: StudyContext, cell: Any) -> Any:
        if os.getpid() != caller and cell[1].dataset == "tree-cycles":
            raise error
        if os.getpid() != caller:
            os.kill(os.getpid(), signal.SIGKILL)
        return measure_cell(study, context, cell)

    monkeypatch.setattr(Study, "measure_cell", fails)
    study = replace(SMALL, grids=(grid,))
    assert measure_in_processes({study: context}) == {"small": {}}
    study.run(context)
    assert study.read(context.out).names("dataset") == ["ba-shapes", "tree-cycles"]


@pytest.mark.skipif(not can_fork(), reason="cells are measured in forked processes")
def test_cells_that_ask_most_explainers_are_measured_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        Study, "measure_cell", lambda study, *_: Measurements(study.name, facts={"settings": {}})
    )
    taken: list[str] = []
    monkeypatch.setattr(framework, "message", lambda text: taken.append(text.split(",")[0]))
    asked = {"ba-shapes": 1, "tree-cycles": 20, "tree-grid": 5}
    grid = replace(
        GRID, quick=tuple(asked), seeds=(0,),
        methods=lambda data: {str(i): METHODS["Random"] for i in range(asked[data])})  # fmt: skip
    context = StudyContext(tmp_path / "out", tmp_path / "runs", True, 2)
    monkeypatch.setattr(framework, "imap_unordered", lambda work, take, _: iter(
        [(key, work(key)) for key in iter(take, None)]))  # fmt: skip
    monkeypatch.setattr(framework, "closing", nullcontext)
    measure_in_processes({replace(SMALL, grids=(grid,)): context})
    assert taken == ["tree-cycles", "tree-grid", "ba-shapes"]


@pytest.mark.skipif(not can_fork(), reason="cells are measured in forked processes")
def test_ctrl_c_stops_all_processes_and_what_is_done_is_kept(tmp_path: Path):
    context = StudyContext(tmp_path / "out", tmp_path / "runs", True, 2)

    def waits(case: Case) -> list[Value]:
        (tmp_path / f"began-{case.trained.dataset.name}").touch()
        time.sleep(100 * (case.trained.dataset.name == "tree-cycles"))
        return []

    grid = replace(GRID, quick=("ba-shapes", "tree-cycles"), case_measures=(waits,))
    study, caller = replace(SMALL, grids=(grid,)), os.getpid()

    def interrupts() -> None:
        while not (tmp_path / "began-tree-cycles").exists() or not any(
            (tmp_path / "runs").glob("ba-shapes*/small-*.parquet")
        ):
            time.sleep(0.05)
        os.kill(caller, signal.SIGINT)

    # A shell lets processes in the background ignore Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        Thread(target=interrupts, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            study.run(context)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not multiprocessing.active_children()
    assert not list((tmp_path / "runs").glob("tree-cycles*/small-*.parquet"))


def test_what_was_measured_is_not_measured_again_by_the_same_code(
    context: StudyContext, monkeypatch: pytest.MonkeyPatch
):
    first = SMALL.measure(context)
    with monkeypatch.context() as patch:
        patch.setattr(Grid, "measured", lambda *_: 1 / 0)
        again = SMALL.measure(context)
        assert list(again.values.items()) == list(first.values.items())
        assert again.facts == first.facts
        # Other code, or another declaration, is measured.
        for change in (
            {"measures": ()},
            {"questions": lambda _: {"all": NODES[::2]}},
            {"methods": lambda _: {"Random": METHODS["Random"]}},
        ):
            with pytest.raises(ZeroDivisionError):
                replace(SMALL, grids=(replace(GRID, **change),)).measure(context)
        patch.setattr(framework, "hash_of_code", lambda: "other code")
        with pytest.raises(ZeroDivisionError):
            SMALL.measure(context)


def test_a_measure_of_the_package_keeps_its_name_while_its_globals_change(
    monkeypatch: pytest.MonkeyPatch,
):
    names = [framework._named(measure) for measure in faithfulness.REAL_GRID.measures]
    monkeypatch.setattr(faithfulness, "TOP", 11)  # as a cache that fills
    assert [framework._named(measure) for measure in faithfulness.REAL_GRID.measures] == names
    # What a measure closes over belongs to its name; other functions are named by their code.
    assert framework._named(motifs.fidelity_curves((0.1,))) != names[0]
    assert framework._named(prediction) is prediction


def test_failures_are_told_and_tried_again(context: StudyContext, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        patch.setattr(GraphSVX, "__call__", lambda *_: 1 / 0)
        SMALL.run(context)
    text = (context.out / "small.md").read_text()
    assert "ZeroDivisionError" in text
    assert "| GraphSVX |" not in text
    SMALL.run(context)
    text = (context.out / "small.md").read_text()
    assert "Failures" not in text
    assert "| GraphSVX |" in text


def test_a_missing_data_set_is_told_and_others_are_measured(
    context: StudyContext, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(framework, "why_missing", lambda name: "no x" * (name == "cora"))
    grid = replace(GRID, datasets=("cora", "ba-shapes"), quick=("cora", "ba-shapes"))
    results = replace(SMALL, grids=(grid,)).measure(context)
    assert results.facts["missing"] == {"Cora": NO_FILES}
    assert results.names("dataset") == ["ba-shapes"]
    assert f"**Cora is missing:** {NO_FILES}" in page(results).markdown(results)


def test_models_with_other_settings_are_kept_apart(context: StudyContext):
    usual = context.trained_model("tree-cycles", 3)
    other = context.trained_model("tree-cycles", 3, cut_edges=False)
    assert usual.card.settings.cut_edges
    assert not other.card.settings.cut_edges
    assert context.trained_model("tree-cycles", 3, cut_edges=True) is usual
    assert context.trained_model("tree-cycles", 3, cut_edges=False) is other
    assert context.folder(usual, "x") != context.folder(other, "x")


def test_the_example_of_the_package_runs(context: StudyContext):
    """A new study is what the docstring shows, and no more."""
    block = re.search(r"below:\n\n(.*?)\n\nClaims need", studies.__doc__ or "", re.DOTALL)
    assert block is not None
    imports = """
        from graphsvx import GraphSVX
        from graphsvx.methods import Random
        from graphsvx_lab.studies import *
        from graphsvx_lab.studies import motifs
        from graphsvx_lab.studies.page import pivot
        from graphsvx_lab.metrics.measurements import reaches
    """
    space: dict = {}
    exec(textwrap.dedent(imports), space)
    exec(textwrap.dedent(block.group(1)), space)
    space["largest_share"].run(context)
    text = (context.out / "largest-share.md").read_text()
    assert "| Some node has more than a third (BA-Shapes) | 0.33 |" in text
    assert "| Random |" in text


class CountEdges(nn.Module):
    """Logits of each graph: 0 and its number of edges, over 10."""

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        batch = torch.zeros(len(x), dtype=torch.long) if batch is None else batch
        count = torch.bincount(batch[edge_index[0]], minlength=int(batch.max()) + 1) / 10
        return torch.stack([torch.zeros_like(count), count], 1)


def test_graphs_are_named_by_their_place_in_the_data_set(context: StudyContext):
    trained = trained_on("ba-2motifs", CountEdges())
    trained = replace(trained, card=SimpleNamespace(name="counts"))
    explained = context.explanations(trained, Random(players="nodes"), [501, 3])
    assert [e.graph_index for e in explained.values()] == list(explained) == [3, 501]
    counts = [trained.dataset.graphs[i].num_edges / 10 for i in (3, 501)]
    assert [e.prediction for e in explained.values()] == pytest.approx([score(c) for c in counts])


def score(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))


def test_studies_are_found_by_name():
    assert len(studies.names()) == len(set(studies.names()))
    assert [studies.get(name).name for name in studies.names()] == list(studies.names())
    with pytest.raises(InputError, match="choose one of: ground-truth"):
        studies.get("mine")
