"""A sample of the random games that `scripts/bench soundness` compares with brute force.

Every family of models and every kind of change is met; the seeds are fixed, not chosen.
"""

from __future__ import annotations

import random

import pytest
import torch
from benchmarks.soundness import changes, judge, layers, oracle
from benchmarks.soundness.families import FAMILIES, thresholds
from benchmarks.soundness.run import line, main, play
from torch_geometric.data import Data
from torch_geometric.nn import GraphConv, conv

from graphsvx.engine import rows
from graphsvx.games.graph_game import GraphGame
from graphsvx.generators import isolate

GAMES = [(family, seed) for family in FAMILIES for seed in range(3)]
GAMES += [("layers", seed) for seed in range(3, 10)] + [("changed", seed) for seed in range(3, 15)]


@pytest.mark.parametrize(("family", "seed"), GAMES)
def test_no_wrong_value_is_returned_silently(family: str, seed: int) -> None:
    verdict = play(family, seed)
    assert not verdict.failed, line(verdict)


def test_every_layer_of_pyg_is_tried_or_named() -> None:
    known = {name.split()[0] for name in layers.RECIPES} | set(layers.LEFT_OUT)
    assert known == set(conv.__all__)


def _world() -> judge.World:
    """A path of four nodes, weights of one: values that can be worked out by hand."""
    model = GraphConv(1, 1, bias=False).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1.0)
    edges = torch.tensor([[1, 2, 3], [0, 0, 2]])
    x = torch.tensor([[1.0], [2.0], [4.0], [8.0]], dtype=torch.float64)
    question = oracle.Question("node", (0,), scale="value", target=0)
    return judge.World(
        "by hand", model, Data(x=x, edge_index=edges), question, {"players": "nodes"}
    )


@pytest.mark.parametrize("size", [1e-4, 1.0])
def test_a_wrong_value_is_noticed(monkeypatch: pytest.MonkeyPatch, size: float) -> None:
    world = _world()
    judge.judge(world, random.Random(0))
    store = GraphGame._store

    def slightly_wrong(self, states, out, *rest):
        out = out.clone()
        out[-1] += size
        return store(self, states, out, *rest)

    monkeypatch.setattr(GraphGame, "_store", slightly_wrong)
    monkeypatch.setattr("graphsvx.methods.playing.replays_agree", lambda *_: True)
    with pytest.raises(judge.WrongError):
        judge.judge(world, random.Random(0))


def test_thresholds_are_restored() -> None:
    before = rows._BATCH_ITEMS, isolate._WIDE
    with thresholds(random.Random(3)):
        assert before[1] != isolate._WIDE
    assert before == (rows._BATCH_ITEMS, isolate._WIDE)


def test_changes_of_code_are_undone() -> None:
    before = vars(conv.GCNConv)["message"]
    with changes.CHANGES["GCNConv.message"](_world(), random.Random(0)):
        assert vars(conv.GCNConv)["message"] is not before
    assert vars(conv.GCNConv)["message"] is before


def test_one_game_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "common:0", "--gigabytes", "0"]) in (0, 1)
    assert "--only common:0" in capsys.readouterr().out
    assert main(["--games", "3", "--gigabytes", "0"]) in (0, 1)
    assert "| all | 3 |" in capsys.readouterr().out
