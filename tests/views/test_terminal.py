"""The table in the terminal."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console

from graphsvx.errors import InputError
from graphsvx.results.credit import Credit
from graphsvx.results.details import FieldRecord
from graphsvx.views import CreditBar, plot, table
from tests import records


def printed(
    renderable, *, terminal: bool = False, encoding: str = "utf-8", width: int = 100
) -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    Console(file=file, width=width, force_terminal=terminal, legacy_windows=False).print(renderable)
    file.flush()
    return raw.getvalue().decode(encoding)


def test_every_player_has_a_line_with_its_credit():
    e = records.house()
    text = printed(table(e))
    for node, value in e.nodes.items():
        line = next(line for line in text.splitlines() if f"node {node} " in line)
        assert f"{value:+.4f}".replace("-", "−") in line
    assert "degree" in text
    assert e.certificate.line().split(";")[0] in " ".join(text.split())


def test_bars_start_at_one_middle_and_point_to_their_side():
    text = printed(table(records.house()))
    lines = [line for line in text.splitlines() if "node " in line and "│" in line]
    assert len({line.index("│") for line in lines}) == 1
    head = next(line for line in text.splitlines() if "against│for" in line)
    assert head.index("│") == lines[0].index("│")
    largest = next(line for line in lines if "node 400" in line)
    assert largest.rstrip().endswith("│" + "█" * 10)
    against = next(line for line in lines if "node 17 " in line)
    assert against.rstrip().endswith("▐█│")


@pytest.mark.parametrize("credit", [0.0, 0.001, 0.5, 1.0, -0.03, -0.55, -1.0, float("nan")])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_every_bar_has_the_same_width(credit, ascii_only):
    assert CreditBar(credit, 1.0).drawn(ascii_only).cell_len == 21


def test_the_table_is_plain_text_when_piped():
    assert "\x1b" not in printed(table(records.crowd()))


def test_the_table_is_coloured_in_a_terminal():
    assert "\x1b[31m" in printed(table(records.house()), terminal=True)
    assert "\x1b[34m" in printed(table(records.house()), terminal=True)


def test_where_only_ascii_can_be_shown_bars_are_ascii():
    assert printed(CreditBar(-0.5, 1.0), encoding="ascii").rstrip() == "     #####|"


def test_errors_are_shown_when_there_are_any():
    text = printed(table(records.features_only()))
    assert "± 0.0300" in text
    assert "±" not in printed(table(records.house()))


def test_the_rest_is_summed_up():
    e = records.house()
    text = printed(table(e, top=3))
    ranked = sorted([*e.top_nodes(), *e.top_features()], key=lambda player: -abs(player.value))
    rest = sum(player.value for player in ranked[3:])
    line = next(line for line in text.splitlines() if "6 more together" in line)
    assert f"{rest:+.4f}".replace("-", "−") in line


def test_many_players_are_shown_by_group():
    e = records.crowd()
    lines = printed(table(e, top=5)).splitlines()
    rings = e.by_hop()
    for ring in rings:
        hops = int(ring.name.removeprefix("hop "))
        name = f"{len(ring.members)} nodes {hops} hop{'s' * (hops != 1)} away"
        line = next(line for line in lines if line.strip().startswith(name))
        assert f"{ring.value:+.4f}".replace("-", "−") in line
    for player in e.top_nodes(5, by="absolute"):
        assert any(line.startswith(f"   node {player.id} ") for line in lines)
    first = next(line for line in lines if "more together" in line)
    inside = [player for player in e.top_nodes() if player.id in rings[0].members]
    unsure = sum(abs(player.value) < 2 * player.error for player in inside)
    assert f"({unsure} of them may be 0)" in first


def test_a_branch_of_one_node_is_one_row():
    leaves = 40
    star = [(0, 1), (0, 2), *((2, 3 + i) for i in range(leaves))]
    ids = list(range(3 + leaves))
    values = np.full(leaves + 2, 0.01)
    values[:2] = 0.3, 0.2
    e = records.replace(
        records.crowd(),
        node_credit=records.credit(ids[1:], values),
        field=FieldRecord(
            ids=torch.tensor(ids), hops=records.hops_from(star, ids, [0]),
            edge_index=records.both_ways(star), classes=None, num_nodes=len(ids), num_features=1,
        ),
    )  # fmt: skip
    lines = printed(table(e)).splitlines()
    assert sum("node 1 " in line for line in lines) == 1
    assert any(line.strip().startswith(f"node 2 and {leaves} nodes behind it") for line in lines)
    names = [label.get_text() for label in plot.bars(e).get_yticklabels()]
    assert names.count("node 1") == 1


def test_the_cells_with_the_most_credit_are_in_the_table():
    text = printed(table(records.with_cells()))
    assert "presence of node 400" in text
    assert "degree of node 401" in text


def test_names_are_printed_without_markup_or_control_characters():
    explanation = records.hostile()
    assert "[red]bold[/red]" in printed(table(explanation))
    names = ("\x1b[2Jgone", "a\nb", *explanation.node_credit.names[2:])
    e = records.replace(
        explanation, node_credit=records.replace(explanation.node_credit, names=names)
    )
    text = printed(table(e))
    assert "\x1b" not in text
    assert "a b" in text


def test_an_explanation_without_players_has_a_table_too():
    assert "no players" in printed(table(records.empty()))


def test_an_explanation_prints_itself_as_its_table():
    assert printed(records.house()) == printed(table(records.house()))


def test_the_table_fits_a_narrow_terminal():
    text = printed(table(records.house()), width=60)
    assert max(len(line) for line in text.splitlines()) <= 60
    assert "+0.3100" in text


def test_a_negative_number_of_rows_is_an_error_that_says_so():
    with pytest.raises(InputError, match="top must be an integer of at least 0, got -1"):
        table(records.house(), top=-1)


def test_a_generated_graph_is_shown_as_an_adjacency_list():
    house = records.house()
    ring = FieldRecord(
        ids=torch.arange(3), hops=torch.zeros(3, dtype=torch.long),
        edge_index=torch.tensor([[0, 1, 2, 1, 2, 0], [1, 2, 0, 0, 1, 2]]),
        classes=torch.tensor([5, 6, 7]), num_nodes=3, num_features=1,
    )  # fmt: skip
    nobody = Credit.none(len(house.outputs))
    e = replace(house, kind="model", field=ring, node_credit=nobody, feature_credit=nobody)
    lines = [line.split() for line in printed(table(e)).splitlines()]
    assert ["1", "6", "2,", "0"] in lines
    assert "credit" not in printed(table(e))
