"""Settings: equal effort for every explainer, on seeds that nobody scores."""

from __future__ import annotations

import pytest

from graphsvx.errors import InputError
from graphsvx_lab.datasets.catalogue import TRUTH_SETS
from graphsvx_lab.metrics.measurements import Measurements, Row
from graphsvx_lab.studies import ground_truth, settings
from graphsvx_lab.studies.settings import EXPLAINERS, READINGS, label, tried_settings, words


def test_no_seed_is_used_for_both_choosing_and_scoring():
    choosing = set(settings.GRID.seeds)
    assert not choosing & {seed for grid in ground_truth.ground_truth.grids for seed in grid.seeds}
    assert min(choosing) >= 100


@pytest.mark.parametrize("dataset", TRUTH_SETS)
@pytest.mark.parametrize("explainer", EXPLAINERS)
def test_every_explainer_has_as_many_candidates_and_the_selected_one_is_among_them(
    dataset: str, explainer: str
):
    tried = tried_settings(dataset, explainer)
    labels = [label(explainer, setting) for setting in tried]
    assert len(set(labels)) == len(labels)
    assert len(labels) * len(READINGS[explainer]) == settings.CANDIDATES
    selected = settings.selected_setting(dataset, explainer)
    assert label(explainer, selected) in labels
    assert (selected.by, selected.edge_rule) in READINGS[explainer]


def test_the_default_row_is_the_default_and_data_without_truth_is_refused():
    for dataset in TRUTH_SETS:
        method = settings.selected_setting(dataset, settings.DEFAULT).method
        assert method.budget.samples == 1000
    with pytest.raises(InputError, match="must be one of"):
        settings.selected_setting("cora", settings.OURS)


def measured(best: str = "", gain: float = 0.0) -> Measurements:
    """All tried_settings alike, but for one explainer's last one, with its last reading."""
    results = Measurements("settings")
    for name in EXPLAINERS:
        tried = tried_settings("tree-grid", name)
        for setting in tried:
            for reading in READINGS[name]:
                better = name == best and setting is tried[-1] and reading == READINGS[name][-1]
                for protocol in ("paper", "strict"):
                    row = Row("tree-grid", "", 100, label(name, setting), 1,
                              f"{protocol}, {words(reading)}")  # fmt: skip
                    # Only one of the two protocols is better: half of it counts.
                    results.add(row, 0.5 + gain * (better and protocol == "strict"))
    return results


def test_a_selected_setting_that_is_not_the_best_is_told():
    page = settings.settings.page(measured())
    assert all(claim.holds for claim in page.claims)
    assert [claim.paper for claim in page.claims] == [""] * 6
    page = settings.settings.page(measured("GNNExplainer", 0.1))
    verdicts = {claim.on: claim for claim in page.claims}
    assert verdicts["GNNExplainer"].holds is False
    assert verdicts["GNNExplainer"].ours == "0 of 1 sets, furthest 0.050"
    assert verdicts["PGExplainer"].ours == "1 of 1 sets"
    assert verdicts["PGExplainer"].holds is True
    table = page.sections["Details"][0].markdown()
    assert "edge_size=0.05" in table
    assert "signed, undirected" in table
    # A difference below 0.01 does not decide.
    assert settings.settings.page(measured("GNNExplainer", 0.018)).claims[3].holds is True
