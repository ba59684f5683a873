"""Interactions in plots, tables and words."""

from __future__ import annotations

from dataclasses import replace

import matplotlib.pyplot as plt
import pytest

from graphsvx import Explanation, GraphSVX, explain
from graphsvx.errors import InputError
from tests.worlds import random_graph, random_model


@pytest.fixture(scope="module")
def explanation() -> Explanation:
    data, model = random_graph(4, nodes=9, chance=0.3), random_model("gin", 2)
    found = explain(model, data, node=1, method=GraphSVX(order=2, features="all"))
    return replace(found, answers=(found.sufficient("class"), found.flip()))


@pytest.mark.parametrize("kind", ["graph", "heatmap", "network"])
def test_interactions_are_drawn(explanation: Explanation, kind: str) -> None:
    ax = explanation.plot(kind=kind)
    curves = [patch for patch in ax.patches if patch.get_gid() == "interaction"]
    assert (len(ax.images) == 1) if kind == "heatmap" else curves
    ax.get_figure().canvas.draw()
    plt.close("all")


def test_the_legend_says_what_curves_are(explanation: Explanation) -> None:
    exact = explanation.interactions
    unsure = replace(exact, errors=exact.values.abs())
    for record, expected in ((exact, 2), (unsure, 0), (None, 0)):
        ax = replace(explanation, interactions=record).plot(kind="graph")
        labels = [text.get_text() for text in ax.get_legend().get_texts()]
        assert len([label for label in labels if label.startswith("together")]) == expected
    plt.close("all")


def test_a_plot_of_interactions_needs_some(explanation: Explanation) -> None:
    with pytest.raises(InputError, match="order=2"):
        replace(explanation, interactions=None).plot(kind="network")


def test_table_and_words_name_pairs_and_sets(explanation: Explanation) -> None:
    strongest = explanation.together(1)[0]
    table = str(explanation)
    assert "together" in table
    assert explanation.answers[0].wanted in " ".join(table.split())
    words = explanation.describe()
    assert strongest.players[1] in words
    assert "alone would be enough" in words


def test_pairs_that_may_be_zero_are_not_named_and_left_out_players_are(
    explanation: Explanation,
) -> None:
    record = explanation.interactions
    strongest = " and ".join(explanation.together(1)[0].players)
    assert f"{strongest} together" in str(explanation)
    unsure = replace(record, errors=record.values.abs(), left_out=7)
    table = str(replace(explanation, interactions=unsure, answers=()))
    assert f"{strongest} together" not in table
    assert "pairs of 7 players left out" in table
    assert " together " not in replace(explanation, interactions=unsure, answers=()).describe()
