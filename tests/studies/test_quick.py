"""A quick run of every study: everything is measured, nothing fails, and a page is made."""

from __future__ import annotations

from functools import cache

import pytest

from graphsvx import runs
from graphsvx_lab import datasets, studies
from graphsvx_lab.metrics.measurements import Measurements
from graphsvx_lab.studies import StudyContext, noise, properties
from tests.runs.helpers import ThisProcess

FIGURES = {
    "ground-truth": "methods", "noisy-features": "kde", "noisy-nodes": "kde", "masks": "accuracy",
    "budget": "samples", "ablation": "indirect", "time": "seconds", "properties": "shares",
    "cut-edges": "accuracy", "molecules": "truth", "shortcut": "first", "real-graphs": "curves",
    "fresh-models": "accuracy",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _less_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data sets are loaded once, and no processes are made."""
    monkeypatch.setattr(datasets, "load", LOADED_ONCE)
    monkeypatch.setattr(runs, "Local", ThisProcess)


LOADED_ONCE = cache(datasets.load)
LONG = ("false-positives", "faithfulness")  # measures of the first are tested in test_beyond.py
SIMILAR = ("masks", "settings", "shortcut")  # to budget, ablation and cut-edges
FOLDERS = {
    "noisy-features": "Cora", "noisy-nodes": "Cora", "real-graphs": "Cora", "molecules": "Molecules"
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=pytest.mark.data(FOLDERS[name])
            if name in FOLDERS
            else pytest.mark.thorough
            if name in SIMILAR
            else (),
        )
        for name in studies.names()
        if name not in LONG
    ],
)
def test_a_quick_study_measures_everything_that_it_declares(name: str, quick: StudyContext) -> None:
    study = studies.get(name)
    study.run(quick)
    text = (quick.out / f"{name}.md").read_text()
    assert "Failures" not in text, text[-3000:]
    assert "is missing" not in text
    assert "figures mean nothing" in text
    assert (f"{name}-{FIGURES[name]}.png" in text) if name in FIGURES else "![" not in text
    results = study.read(quick.out)
    for grid in study.grids:
        reduced = grid.reduced()
        for dataset in reduced.datasets:
            methods = set(reduced.methods(dataset)) if grid.measures else set()
            assert methods <= set(results.names("method", dataset=dataset))
            assert set(reduced.models) <= set(results.names("model", dataset=dataset))
    # One seed is too few for any claim.
    assert all(claim.holds is None for claim in study.page(results).claims if claim.paper)
    LAWS.get(name, lambda _: None)(results)


def only_the_shapley_family_adds_up(results: Measurements) -> None:
    for method in results.names("method", measure="residual"):
        gap = results.estimate("residual", method=method, statistic=max).mean
        assert (gap < 1e-9) == method.startswith("GraphSVX")


def shares_sum_to_one(results: Measurements) -> None:
    parts = ("own motif", "other motifs", "base graph", "own features")
    for method in (properties.OURS, properties.PAPERS, properties.GNN, properties.RANDOM):
        shares = [results.estimate(p, over="explainable", method=method).mean for p in parts]
        assert sum(shares) == pytest.approx(1, abs=1e-6)
    only_the_shapley_family_adds_up(results)


def only_fits_with_their_ends_add_up(results: Measurements) -> None:
    for method in results.names("method", "the paper's rows, WL", measure="residual"):
        gap = results.estimate("residual", method=method).mean
        assert (gap < 1e-9) == (properties.NO_ENDS not in method)


def what_cannot_be_used_is_not_at_the_top(results: Measurements) -> None:
    unable = [title for title in results.names("data") if "weights 0" in title]
    share = f"share by value, {noise.CANDIDATES['features'][1]}"
    assert results.estimate(share, method="SHAP", data=unable).mean == 0


def more_samples_bring_ours_nearer(results: Measurements) -> None:
    errors = [results.estimate("error", method=f"ours, {n}").mean for n in (500, 6000)]
    assert errors[1] < errors[0]


LAWS = {
    "properties": shares_sum_to_one,
    "ablation": only_fits_with_their_ends_add_up,
    "noisy-features": what_cannot_be_used_is_not_at_the_top,
    "budget": more_samples_bring_ours_nearer,
}
