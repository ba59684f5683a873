"""Pictures of many explanations, and of studies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graphsvx.errors import InputError
from graphsvx.results import summary
from graphsvx.views import plot
from tests import records
from tests.views.plot.looks import many, ticks


def test_the_beeswarm_has_a_dot_for_each_explanation_and_player():
    explanations = many()
    ax = plot.beeswarm(explanations)
    assert ticks(ax)[:2] == ["feature 3", "feature 9"]
    positions = sorted(ax.collections[0].get_offsets()[:, 0].tolist())
    assert positions == pytest.approx(
        sorted(explanation.features[3] for explanation in explanations)
    )
    heights = ax.collections[0].get_offsets()[:, 1]
    assert np.abs(heights).max() < 0.5


def test_the_beeswarm_s_colour_is_the_feature_s_value():
    explanations = many(3)
    inputs = np.zeros((3, 10))
    inputs[:, 3] = [0, 5, 10]
    ax = plot.beeswarm(explanations, inputs=inputs)
    low, _, high = ax.collections[0].get_facecolors()
    assert low[2] > high[2]
    assert high[0] > low[0]
    with pytest.raises(InputError, match="with 3 rows"):
        plot.beeswarm(explanations, inputs=inputs[:2])


def test_the_heat_map_is_players_by_explanations():
    explanations = many(6)
    ax = plot.heatmap(explanations)
    cells = ax.images[0].get_array()
    assert cells.shape == (5, 6)
    assert list(cells[0]) == pytest.approx(
        [explanation.features[3] for explanation in explanations]
    )
    assert ax.images[0].norm.vmin == -ax.images[0].norm.vmax


def test_players_that_are_missing_somewhere_stay_blank():
    ax = plot.heatmap([records.features_only(), records.house()])
    row = ticks(ax).index("feature 3")
    assert np.ma.is_masked(ax.images[0].get_array()[row, 1])


def test_shares_stack_up_to_the_prediction():
    e = records.house()
    ax = plot.share([e], motif=range(400, 405))
    parts = {c.get_label(): c for c in ax.containers}
    sizes = {name: c.patches[0].get_width() for name, c in parts.items()}
    assert sizes["base"] == pytest.approx(e.base)
    assert sizes["motif"] == pytest.approx(0.31 + 0.24 + 0.12 + 0.10)
    assert sizes["other nodes"] == pytest.approx(-0.05 + 0.004 - 0.01)
    assert sum(sizes.values()) == pytest.approx(e.prediction)


def test_each_explanation_may_have_a_motif_of_its_own():
    e = records.house()
    ax = plot.share([e, e], motif=[{400}, {401}])
    motif = next(c for c in ax.containers if c.get_label() == "motif")
    assert [bar.get_width() for bar in motif.patches] == pytest.approx([0.31, 0.24])
    with pytest.raises(InputError, match="got 1 collections"):
        plot.share([e, e], motif=[{400}])


def test_convergence_is_sorted_by_calls_and_shows_the_band():
    explanation = records.features_only()
    runs = [
        replace(
            explanation,
            certificate=replace(
                explanation.certificate,
                games=(replace(explanation.certificate.games[0], calls=calls),),
            ),
        )
        for calls in (3000, 50, 400)
    ]
    ax = plot.convergence(runs, top=2)
    lines = [line for line in ax.lines if line.get_gid()]
    assert [line.get_gid() for line in lines] == ["feature 3", "feature 9"]
    assert list(lines[0].get_xdata()) == [50, 400, 3000]
    assert ax.get_xscale() == "log"
    band = ax.collections[1].get_paths()[0].vertices[:, 1]
    assert band.min() == pytest.approx(-0.11 - 1.96 * 0.03)
    with pytest.raises(InputError, match="two or more"):
        plot.convergence(runs[:1])


def test_densities_integrate_to_one_and_peak_at_the_counts():
    counts = {"a": [0, 0, 1, 0, 2], "b": [7] * 50, "c": [3]}
    ax = plot.noise_kde(counts)
    for line, peak in zip(ax.lines, (0, 7, 3), strict=True):
        x, y = line.get_data()
        assert np.trapezoid(y, x) == pytest.approx(1, abs=0.05)
        assert x[np.argmax(y)] == pytest.approx(peak, abs=0.4)
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["a", "b", "c"]
    with pytest.raises(InputError, match="'a'"):
        plot.noise_kde({"a": []})


@pytest.mark.parametrize("draw", [plot.beeswarm, plot.heatmap])
def test_a_summary_in_place_of_explanations_is_refused_with_advice(draw):
    with pytest.raises(InputError, match="list of explanations"):
        draw(summary.features(many()))
