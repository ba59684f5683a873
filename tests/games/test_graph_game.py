"""Values of games on graphs are those of one model call a coalition, however they are evaluated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Data

from graphsvx.core.arrays import Bools
from graphsvx.core.players import find_edge_players, find_players
from graphsvx.core.query import build_query
from graphsvx.engine.choose import choose_evaluator
from graphsvx.games import graph_game
from graphsvx.games.graph_game import GraphGame
from graphsvx.generators import CutEdges, GameSetup, Isolate
from graphsvx.masks.base import all_rows
from graphsvx.testing.oracle import cut, probability_of, replace_features
from tests.worlds import random_graph, random_model

NODE = 1
TRUTH: dict[str, list[float]] = {}
"""Values by single calls: of a side, the same whatever the memory and the blocks."""


def game_of(side: str, model: nn.Module, data: Data, memory: int | None) -> GraphGame:
    query = build_query(model, data, node=NODE)
    evaluator = choose_evaluator(query, None, 0)
    field, graph = evaluator.field, query.graph
    if side == "edges":
        players = find_edge_players(graph, field, None, "together")
    else:
        kinds = "both" if side == "joint" else side
        players = find_players(graph, field, None, "all", kinds)
    setup = GameSetup(graph, field, players, graph.statistics.mean)
    generator = CutEdges() if side == "edges" else Isolate()
    asked = query if memory is None else replace(query, memory=memory)
    return GraphGame(asked, evaluator, setup, generator, side, rest_on=side == "nodes")


def plain_value(game: GraphGame, row: Bools, model: nn.Module, data: Data) -> float:
    """One call on the whole graph; in games of features alone, no node has been left out."""
    players, field = game.setup.players, game.setup.field
    columns, score = players.feature_members, probability_of(model, NODE, target=0)
    if game.side == "edges":
        off = field.edges[players.edge_members[~row[players.edge_owner]]]
        return score(cut(data, edges=off.tolist()))
    features = row[: len(columns)] if game.side in ("features", "joint") else np.ones(0, dtype=bool)
    nodes = row[len(features) :]
    ids = field.ids[players.node_members]
    features_off = columns[~features].tolist() if len(features) else []
    nodes_off = ids[~nodes].tolist() if len(nodes) else []
    return score(replace_features(cut(data, nodes_off), [NODE], features_off))


@pytest.mark.parametrize("side", ["nodes", "features", "joint", "edges"])
@pytest.mark.parametrize("memory", [None, 1])
@pytest.mark.parametrize("block", [None, 1, 700])
def test_values_are_those_of_single_calls(
    side: str, memory: int | None, block: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With little memory, coalitions are numbered block by block and graphs are made again."""
    model, data = random_model("gcn", 2), random_graph(5, nodes=6, chance=0.35)
    if block is not None:
        monkeypatch.setattr(graph_game, "_BLOCK_BYTES", block)
        monkeypatch.setattr(graph_game, "_LEAST_BLOCK_BYTES", block)
    with torch.no_grad():
        game = game_of(side, model, data, memory)
        rows = all_rows(game.players)[::-1]
        states, ends = game.states(rows), game.end_states()
        assert len(states) == len(rows)
        assert (states[-1], states[0]) == tuple(ends)
        game.values(states[3:7])
        new = game.count_new(states)
        calls = game.calls
        values = game.values(states)
    assert game.calls == calls + new == len(np.unique(states))
    assert game.count_new(states) == 0
    if side not in TRUTH:
        TRUTH[side] = [plain_value(game, row, model, data) for row in rows]
    assert values[:, 0].tolist() == pytest.approx(TRUTH[side], abs=1e-10)
    assert game.full_output is not None
    assert game.full_output.softmax(-1)[0].tolist() == pytest.approx(values[0].tolist())
    torch.testing.assert_close(game.raw(states)[:, 0].softmax(-1), values)
