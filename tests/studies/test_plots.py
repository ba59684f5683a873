"""Pictures of the studies."""

from __future__ import annotations

from graphsvx_lab.studies import plots
from tests.views.plot.looks import ticks


def test_dots_stand_at_their_figures_with_their_intervals():
    band = (0.5, 0.4, 0.7)
    lines = {
        "accuracy": {"Cora": {"ours": band, "theirs": (0.2, 0.1, 0.3)}, "MUTAG": {"ours": band}},
        "error": {"Cora": {"theirs": (0.0, 0.0, 0.01)}},
    }
    figure = plots.dots(lines, {("accuracy", "Cora", "theirs"): 0.9}, log=("error",))
    cora, mutag, error, empty = figure.axes
    # Rows from above: ours at height 1, theirs at 0; an interval and a dot each, then the diamond.
    assert cora.lines[0].get_xydata().tolist() == [[0.2 - 0.1, 0], [0.3, 0]]
    assert cora.lines[1].get_xydata().tolist() == [[0.2, 0]]
    assert cora.lines[2].get_xydata().tolist() == [[0.9, 0]]
    assert cora.lines[4].get_xydata().tolist() == [[0.5, 1]]
    assert ticks(cora) == ["theirs", "ours"]
    assert len(mutag.lines) == 2
    # What is below a logarithmic axis is drawn at its end.
    assert error.lines[0].get_xdata().tolist() == [plots.SMALLEST, 0.01]
    assert error.get_xscale() == "log"
    assert not empty.lines
    assert cora.get_title(loc="left") == "Cora"


def test_measures_of_different_data_are_side_by_side_and_share_axes_by_measure():
    names = [f"method {number}" for number in range(8)]
    wide, narrow = (dict.fromkeys(names, (0.5, low, 0.6)) for low in (-3.0, 0.4))
    figure = plots.dots({"AUROC": {"a": wide, "b": narrow}, "correlation": {"c": narrow}})
    a, b, c = figure.axes
    assert len({ax.get_subplotspec().rowspan.start for ax in (a, b, c)}) == 1
    assert a.get_xlim() == b.get_xlim()
    assert a.get_xlim()[0] < -3 < 0 < c.get_xlim()[0]
    assert [ax.get_xlabel() for ax in (a, b, c)] == ["AUROC", "AUROC", "correlation"]
    # No two methods have the same colour.
    assert len({line.get_color() for line in a.lines}) == len(names)


def test_curves_have_bands_and_the_paper_s_points():
    points = {50.0: (0.5, 0.4, 0.6), 500.0: (0.8, 0.7, 0.9)}
    lines = {"accuracy": {"Cora": {"ours": points, "theirs": {}}}}
    figure = plots.curves(lines, "samples", {("accuracy", "Cora"): {500.0: 0.95}}, log=("samples",))
    (ax,) = figure.axes
    assert ax.lines[0].get_xydata().tolist() == [[50, 0.5], [500, 0.8]]
    assert ax.lines[-1].get_xydata().tolist() == [[500, 0.95]]
    corners = ax.collections[0].get_paths()[0].vertices
    assert [50, 0.4] in corners.tolist()
    assert [500, 0.9] in corners.tolist()
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "linear")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["ours", "theirs"]


def test_panels_of_noise_share_one_legend():
    figure = plots.noise_panels({"Cora": {"a": [0, 1]}, "PubMed": {"a": [1, 2], "b": [3]}}, "nodes")
    assert [ax.get_legend() for ax in figure.axes] == [None, None]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b"]
