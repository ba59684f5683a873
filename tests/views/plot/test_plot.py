"""Plots are tested by what they draw: artists, places, colours, words."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.testing.compare import compare_images

from graphsvx.errors import InputError
from graphsvx.views import palette, plot
from tests import records
from tests.views.plot.looks import by_gid, many, ticks, words

BASELINE = Path(__file__).parent / "baseline"


# --- the graph ---------------------------------------------------------------------------


def test_the_graph_has_every_node_the_explained_one_marked_and_all_edges():
    ax = plot.graph(records.house())
    assert len(by_gid(ax, "nodes").get_offsets()) == 8
    assert len(by_gid(ax, "explained").get_offsets()) == 1
    assert np.allclose(
        by_gid(ax, "explained").get_offsets()[0], by_gid(ax, "nodes").get_offsets()[0]
    )
    edges = next(c for c in ax.collections if isinstance(c, LineCollection))
    assert len(edges.get_segments()) == 9
    assert {"402", "400", "17", "88"} <= set(words(ax))


def test_fill_is_the_class_and_ring_and_size_are_the_credit():
    e = records.house()
    ax = plot.graph(e)
    nodes = by_gid(ax, "nodes")
    fills = [to_hex(c).upper() for c in nodes.get_facecolors()]
    assert fills[0] == palette.mixed(palette.of_class(1), "#FFFFFF", 0.15)
    assert fills[1] == fills[2] == palette.mixed(palette.of_class(2), "#FFFFFF", 0.15)
    rings = [to_hex(c).upper() for c in nodes.get_edgecolors()]
    assert rings[1] == palette.FOR
    assert rings[5] == palette.of_credit(-0.05, 0.6 * 0.31)
    sizes = nodes.get_sizes()
    assert sizes[1] > sizes[2] > sizes[3] > sizes[4] > sizes[5] > sizes[6]
    widths = nodes.get_linewidths()
    assert widths[1] > widths[2] > widths[3]


def test_without_classes_the_fill_is_the_credit():
    explanation = records.house()
    ax = plot.graph(replace(explanation, field=replace(explanation.field, classes=None)))
    fills = [to_hex(c).upper() for c in by_gid(ax, "nodes").get_facecolors()]
    assert fills[1] == palette.FOR
    assert fills[2] == palette.of_credit(0.24, 0.31)


def test_edges_between_important_nodes_are_bold():
    ax = plot.graph(records.house())
    edges = next(c for c in ax.collections if isinstance(c, LineCollection))
    bold = sum(width > 2 for width in edges.get_linewidths())
    inside = {402, 400, 401, 403}
    assert bold == sum(u in inside and v in inside for u, v in records.HOUSE_EDGES) == 4


def test_edge_credit_colours_the_edges():
    ax = plot.graph(records.edges_only())
    edges = next(c for c in ax.collections if isinstance(c, LineCollection))
    widths = sorted(edges.get_linewidths())
    assert widths[-1] == pytest.approx(4.8)
    colours = {to_hex(c).upper() for c in edges.get_colors()}
    assert palette.FOR in colours
    against = palette.mixed(palette.PALE, palette.AGAINST, 0.25 + 0.75 * 0.2)
    assert against in colours


def test_large_graphs_are_grouped_and_the_legend_counts_the_hidden_nodes():
    e = records.crowd()
    ax = plot.graph(e)
    assert len(by_gid(ax, "nodes").get_offsets()) <= 46
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    hidden = next(label for label in labels if "more nodes" in label)
    groups = [int(word[1:]) for word in words(ax) if word.startswith("+")]
    assert hidden.startswith(f"+{sum(groups)} more nodes, together ")
    assert len(by_gid(ax, "nodes").get_offsets()) - len(groups) + sum(groups) == 300


def test_legend_and_colour_bar_are_outside_of_the_graph():
    ax = plot.graph(records.house())
    figure = ax.figure
    figure.draw_without_rendering()
    box = ax.get_window_extent()
    legend = ax.get_legend().get_window_extent()
    assert legend.y1 <= box.y0 + 1
    assert figure.axes[1].get_window_extent().x0 >= box.x1
    assert [t.get_text() for t in ax.get_legend().get_texts()] == [
        "explained", "base", "house roof", "house middle", "house floor", "important part",
    ]  # fmt: skip


@pytest.mark.parametrize("make", [records.house, records.crowd, records.molecule, records.hostile])
def test_no_text_is_clipped(make):
    figure = plot.figure(make())
    tight = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    assert tight.x0 >= 0
    assert tight.y0 >= 0
    assert tight.x1 <= width
    assert tight.y1 <= height


@pytest.mark.parametrize("make", [records.house, records.crowd])
def test_dots_do_not_lie_on_each_other(make):
    ax = plot.graph(make())
    ax.figure.draw_without_rendering()
    nodes = by_gid(ax, "nodes")
    places = ax.transData.transform(nodes.get_offsets()) / ax.figure.dpi * 72
    radius = np.sqrt(nodes.get_sizes()) / 2
    gap = np.linalg.norm(places[:, None] - places[None], axis=2) - radius[:, None] - radius[None]
    np.fill_diagonal(gap, 1)
    assert gap.min() > -1.5


def test_a_molecule_has_symbols_and_bond_orders():
    ax = plot.graph(records.molecule(), atoms=records.ATOMS, bonds=records.BONDS, title=False)
    assert sorted(words(ax)) == sorted(records.ATOMS)
    edges = next(c for c in ax.collections if isinstance(c, LineCollection))
    assert len(edges.get_segments()) == 17 + 4
    fills = [to_hex(c).upper() for c in by_gid(ax, "nodes").get_facecolors()]
    assert fills[6] == palette.FOR


@pytest.mark.parametrize(("order", "strokes"), [(1, 1), (2, 2), (3, 3), (1.5, 4)])
def test_bonds_by_order(order, strokes):
    ax = plot.graph(records.molecule(), atoms=records.ATOMS, bonds={(3, 9): order})
    edges = next(c for c in ax.collections if isinstance(c, LineCollection))
    assert len(edges.get_segments()) == 16 + strokes


def test_missing_atoms_are_an_error_that_says_so():
    with pytest.raises(InputError, match="symbol for every node"):
        plot.graph(records.molecule(), atoms={0: "C"})


@pytest.mark.parametrize("name", ["$^$", "$\\frac{1$", "a_b^c"])
def test_names_from_data_are_not_parsed_as_mathtext(name):
    explanation = records.house()
    e = replace(
        explanation,
        class_names=(name,) * 4,
        node_credit=replace(explanation.node_credit, names=(name,) * 7),
        feature_credit=replace(explanation.feature_credit, names=(name,) * 2),
    )
    for draw in (plot.graph, plot.bars, plot.waterfall):
        ax = draw(e)
        ax.figure.draw_without_rendering()
    plot.share([e], {400}).figure.draw_without_rendering()
    plot.heatmap([e], players="all", labels=[name]).figure.draw_without_rendering()
    plot.noise_kde({name: [1, 2]}).figure.draw_without_rendering()


def test_the_same_seed_gives_the_same_picture():
    first, again = plot.graph(records.crowd(), seed=4), plot.graph(records.crowd(), seed=4)
    same = by_gid(first, "nodes").get_offsets(), by_gid(again, "nodes").get_offsets()
    assert np.array_equal(*same)


def test_a_one_way_graph_has_arrows():
    explanation = records.house()
    field = replace(explanation.field, edge_index=explanation.field.edge_index[:, :9])
    ax = plot.graph(replace(explanation, field=field))
    assert len(ax.patches) == 9


# --- bars and waterfall --------------------------------------------------------------------


def test_bars_are_the_credit_best_first_in_the_colour_of_their_sign():
    e = records.house()
    ax = plot.bars(e)
    widths = [bar.get_width() for bar in ax.patches]
    assert widths == pytest.approx([0.31, 0.24, 0.12, 0.10, 0.06, -0.05, -0.015, -0.01, 0.004])
    assert ticks(ax)[:2] == ["node 400", "node 401"]
    colours = [to_hex(bar.get_facecolor()).upper() for bar in ax.patches]
    assert colours == [palette.FOR if width > 0 else palette.AGAINST for width in widths]


def test_error_bars_are_95_percent_intervals():
    ax = plot.bars(records.features_only())
    lines = next(c for c in ax.collections if isinstance(c, LineCollection))
    left, right = lines.get_segments()[1][:, 0]
    assert (left, right) == pytest.approx((-0.11 - 1.96 * 0.03, -0.11 + 1.96 * 0.03))
    assert "95 % interval" in ax.get_xlabel()


def test_exact_credit_has_no_error_bars():
    ax = plot.bars(records.house())
    assert not any(isinstance(c, LineCollection) for c in ax.collections)
    assert "interval" not in ax.get_xlabel()


def test_bars_beyond_the_top_are_summed_up():
    e = records.house()
    ax = plot.bars(e, top=3)
    assert ticks(ax)[-1] == "6 more together"
    assert sum(bar.get_width() for bar in ax.patches) == pytest.approx(e.total)


def test_bars_of_many_players_begin_with_groups():
    e = records.crowd()
    ax = plot.bars(e, top=8)
    rings = e.by_hop()
    assert ticks(ax)[0] == f"{len(rings[0].members)} nodes 1 hop away"
    widths = [bar.get_width() for bar in ax.patches]
    assert widths[: len(rings)] == pytest.approx([ring.value for ring in rings])
    strongest = [player.value for player in e.top_nodes(8 - len(rings), by="absolute")]
    assert widths[len(rings) :] == pytest.approx(strongest)
    steps = plot.waterfall(e, top=4)
    assert f"others of {len(rings[0].members)} nodes 1 hop away" in ticks(steps)


def test_players_that_may_be_0_are_summed_or_pale():
    e = records.features_only()
    ranked = e.top_features(by="absolute")
    errors = torch.zeros_like(e.feature_credit.errors)
    errors[0, e.feature_ids.tolist().index(ranked[0].id)] = abs(ranked[0].value)
    unsure = replace(e, feature_credit=replace(e.feature_credit, errors=errors))
    for draw in (plot.bars, plot.waterfall):
        names = ticks(draw(unsure))
        assert f"feature {ranked[0].id}" not in names
        assert any(name.endswith("more together") for name in names)
    none = replace(e, feature_credit=replace(e.feature_credit, errors=torch.ones_like(errors)))
    faces = {bar.get_facecolor()[:3] for bar in plot.bars(none).patches}
    assert faces.isdisjoint({to_rgb(palette.FOR), to_rgb(palette.AGAINST)})


def test_cells_are_drawn_as_a_matrix():
    e = records.with_cells()
    ax = e.plot()
    assert ticks(ax) == ["node 402", "node 400", "node 401"]
    columns = [label.get_text() for label in ax.get_xticklabels()]
    assert columns == ["presence", "degree", "bias", "other features"]
    (image,) = ax.get_images()
    drawn = image.get_array().filled(np.nan)
    nan = np.nan
    expected = [[nan, 0.06, -0.015, nan], [0.3, nan, -0.1, 0.04], [0.02, 0.1, nan, nan]]
    np.testing.assert_allclose(drawn, expected)
    assert "+0.30" in words(ax)


@pytest.mark.parametrize("players", ["nodes", "features"])
def test_bars_of_one_kind(players):
    ax = plot.bars(records.house(), players=players)
    assert len(ax.patches) == {"nodes": 7, "features": 2}[players]


def test_numbers_are_within_the_axes():
    for make in (records.house, records.features_only, records.crowd):
        ax = plot.bars(make())
        ax.figure.draw_without_rendering()
        box = ax.get_window_extent()
        for text in ax.texts:
            extent = text.get_window_extent()
            assert extent.x0 >= box.x0 - 1
            assert extent.x1 <= box.x1 + 1


def test_the_waterfall_goes_from_base_to_prediction():
    e = records.house()
    ax = plot.waterfall(e)
    steps = ax.patches[:-2]
    assert steps[0].get_x() == pytest.approx(e.base)
    for before, after in pairwise(steps):
        assert after.get_x() == pytest.approx(before.get_x() + before.get_width())
    assert steps[-1].get_x() + steps[-1].get_width() == pytest.approx(e.prediction)
    assert ticks(ax)[0] == "base"
    assert ticks(ax)[-1] == "prediction"


def test_the_waterfall_says_what_is_not_accounted_for():
    assert "not accounted for" in ticks(plot.waterfall(records.importances()))
    assert "not accounted for" not in ticks(plot.waterfall(records.house()))


def test_without_players_bars_say_so():
    assert "no players" in words(plot.bars(records.empty()))[0]
    assert ticks(plot.waterfall(records.empty())) == ["base", "prediction"]


# --- which one, and files ------------------------------------------------------------------


def test_plot_picks_the_right_picture():
    assert by_gid(records.house().plot(), "nodes")
    assert by_gid(records.edges_only().plot(), "nodes")
    assert records.features_only().plot().patches
    assert ticks(records.house().plot(kind="waterfall"))[0] == "base"
    with pytest.raises(
        InputError, match="graph, bars, waterfall, heatmap, network, cells, got 'pie'"
    ):
        records.house().plot(kind="pie")


@pytest.mark.parametrize(
    "draw",
    [
        lambda ax: plot.graph(records.house(), ax),
        lambda ax: plot.bars(records.house(), ax),
        lambda ax: plot.waterfall(records.house(), ax),
        lambda ax: plot.beeswarm(many(3), ax),
        lambda ax: plot.heatmap(many(3), ax),
        lambda ax: plot.share([records.house()], {400}, ax),
        lambda ax: plot.convergence([records.house()] * 2, ax),
        lambda ax: plot.noise_kde({"a": [1, 2]}, ax),
        lambda ax: plot.explanation(records.empty(), ax),
    ],
)
def test_each_draws_on_the_given_axes_and_returns_them(draw):
    ax = Figure().add_subplot()
    assert draw(ax) is ax
    assert plt.get_fignums() == []


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf", ".PNG"])
def test_a_saved_figure_is_the_same_each_time(tmp_path, suffix):
    first, again = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    plot.save(records.house(), first, dpi=50)
    plot.save(records.house(), again, dpi=50)
    assert first.read_bytes() == again.read_bytes()
    assert len(list(tmp_path.iterdir())) == 2
    assert plt.get_fignums() == []


def test_rows_are_bars_and_top_is_the_important_part():
    left, right, _ = plot.figure(records.house(), rows=3, top=1).axes
    assert len(right.patches) == 3 + 1
    edges = next(c for c in left.collections if isinstance(c, LineCollection))
    assert sum(width > 2 for width in edges.get_linewidths()) == 1


def test_vector_files_have_real_text(tmp_path):
    plot.save(records.hostile(), tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert "&lt;script&gt;window" in text
    assert "<script" not in text


@pytest.mark.parametrize("name", ["a.jpeg", "a", "a.html"])
def test_another_suffix_is_an_error_that_says_so(tmp_path, name):
    with pytest.raises(InputError, match=r"\.png, \.svg, \.pdf"):
        plot.save(records.house(), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(
    mpl.__version_info__ < (3, 11), reason="matplotlib before 3.11 draws the letters differently"
)
@pytest.mark.parametrize("name", ["house", "crowd", "molecule"])
def test_plots_match_their_reference_images(tmp_path, name):
    """Compared with a stored picture; made again with GRAPHSVX_NEW_PICTURES=1."""
    options = {"atoms": records.ATOMS, "bonds": records.BONDS} if name == "molecule" else {}
    path = tmp_path / f"{name}.png"
    with mpl.rc_context({"font.family": "DejaVu Sans"}):
        plot.save(getattr(records, name)(), path, dpi=60, **options)
    baseline = BASELINE / path.name
    if os.environ.get("GRAPHSVX_NEW_PICTURES"):
        baseline.parent.mkdir(exist_ok=True)
        baseline.write_bytes(path.read_bytes())
    assert compare_images(str(baseline), str(path), tol=6) is None
