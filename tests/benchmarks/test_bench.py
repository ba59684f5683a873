"""The bench runs from end to end and writes what it says; no times are asserted."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCN, GCNConv, global_max_pool

from benchmarks import __main__ as bench
from benchmarks import (
    contenders,
    error,
    interactions,
    large_games,
    machine,
    recorded,
    report,
    speed,
    truths,
    worlds,
)
from graphsvx.methods import registry
from graphsvx.testing.oracle import shapley_of_table

pytest.importorskip("shap")
pytest.importorskip("shapiq")


class _OfGraphs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.out = GCNConv(4, 8), nn.Linear(8, 2)

    def forward(self, x, edge_index, batch=None):
        return self.out(global_max_pool(self.conv(x, edge_index).relu(), batch))


def _graph(nodes: int, links: int, features: int, seed: int) -> Data:
    rng = torch.Generator().manual_seed(seed)
    ends = torch.randint(0, nodes, (2, links), generator=rng)
    ends = ends[:, ends[0] != ends[1]].unique(dim=1)
    x = torch.randn(nodes, features, generator=rng)
    return Data(x=x, edge_index=torch.cat([ends, ends.flip(0)], 1),
                y=torch.arange(nodes) % 4)  # fmt: skip


@pytest.fixture
def _small_zoo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Untrained models on random graphs in place of the zoo, which takes minutes to train."""

    def ensure(name: str, model: str | None = None):
        torch.manual_seed(0)
        if name == "mutag":
            graphs = tuple(_graph(13, 16, 4, seed) for seed in range(4))
            return SimpleNamespace(model=_OfGraphs().eval(), dataset=SimpleNamespace(graphs=graphs))
        graph = _graph(120, 150, 8, 0)
        split = SimpleNamespace(test=torch.arange(60))
        dataset = SimpleNamespace(graph=graph, graphs=(graph,), split=split, truth=None)
        return SimpleNamespace(model=GCN(8, 8, 2, 4).eval(), dataset=dataset)

    monkeypatch.setattr(worlds.zoo, "ensure", ensure)
    trained = ensure("any")
    monkeypatch.setattr(
        large_games, "world", lambda name, kind: (trained.model, trained.dataset.graph)
    )


def _in_this_process(command: list[str], **_: object) -> SimpleNamespace:
    """`python -c CODE` without a new process, which would take seconds to import torch."""
    with redirect_stdout(io.StringIO()) as out:
        exec(command[-1], {})
    return SimpleNamespace(stdout=out.getvalue(), returncode=0)


@pytest.mark.usefixtures("_small_zoo")
def test_a_quick_run_writes_tables_pictures_and_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "RESULTS", tmp_path / "docs")
    monkeypatch.setattr(truths, "cache_dir", lambda: tmp_path / "cache")
    monkeypatch.setattr(speed.subprocess, "run", _in_this_process)
    bench.main(["--quick", "--docs", "--json", str(tmp_path / "all.json")])
    figures = json.loads((tmp_path / "all.json").read_text())
    assert set(figures) == {"machine", "speed", "error"}
    assert all(line["theirs"] > 0 and line["ours"] > 0 for line in figures["speed"]["lines"])
    names = {path.name for path in (tmp_path / "docs").iterdir()}
    pages = {f"{a}.{b}" for a in ("speed", "error") for b in ("md", "json", "png")}
    assert names == {*pages, "error-large.png"}
    page = (tmp_path / "docs" / "error.md").read_text()
    assert all(f"## {title}" in page for title in ("12 to 16 players", "65 to 2,500 players", "Do"))
    assert "| contender |" in capsys.readouterr().out


@pytest.mark.usefixtures("_small_zoo")
def test_contenders_that_play_the_same_rows_agree() -> None:
    world = worlds.world("any")
    for node in (3, 17):
        task = contenders.Task.of(world.model, world.graph, node, 60)
        ours = contenders.ours(task, 60)
        for theirs in (contenders.one_by_one(task), contenders.replicated(task, depth=2)):
            assert set(theirs) == set(ours)
            assert speed._far(ours, theirs) < 1e-5


def test_every_estimator_finds_a_known_answer_with_all_calls() -> None:
    rng = np.random.default_rng(0)
    game = worlds.Played("test", 5, rng.normal(size=32), None, 0)
    truth = shapley_of_table(game.values)
    assert truth.sum() == pytest.approx(game.values[-1] - game.values[0])
    for name, estimate in error.estimators().items():
        if "on the graph" in name or "permutation" in name or "SVARM" in name:
            continue  # needs a graph, or never is exact
        credit, calls = estimate(game, 32, 0)
        assert calls <= 33
        if "Separate" not in name:
            assert credit == pytest.approx(truth, abs=1e-3), name


def test_the_machine_is_described_without_names_of_hosts_or_folders() -> None:
    text = str(machine.describe())
    assert "/" not in text
    assert report._machine(machine.describe()).count("\n") == 5


@pytest.mark.filterwarnings("ignore")
def test_interactions_of_random_games_equal_shapiq() -> None:
    figures = interactions.measure_exact(games=8)
    assert figures["beyond"] == 0
    assert set(figures["largest"]) == {"k-SII", "SII", "STII", "FSII", "BII"}


def test_pairs_of_a_game_by_definition() -> None:
    values = np.array([0.0, 1, 2, 4, 3, 5, 6, 9])  # of three players, by bits
    pairs = interactions.true_pairs(values)
    assert pairs[0, 1] == pytest.approx((4 - 1 - 2 + 0 + 9 - 5 - 6 + 3) / 2)
    estimated, errors = interactions.our_pairs(np.arange(256.0) ** 2, 100, 0)
    assert estimated.shape == errors.shape == (8, 8)


def test_recorded_explanations_are_compared_to_the_last_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = [case for case in recorded.cases() if case.name.startswith("gcn small node {'samp")]
    monkeypatch.setattr(recorded, "cases", lambda: iter(chosen))
    file = tmp_path / "before.json"
    assert recorded.main([str(file)]) == 0
    assert recorded.main([str(file), "--compare"]) == 0
    before = json.loads(file.read_text())
    changed = next(iter(before.values()))
    changed["bases"][0] = float(np.nextafter(changed["bases"][0], 2))
    file.write_text(json.dumps(before))
    capsys.readouterr()
    assert recorded.main([str(file), "--compare"]) == 1
    *lines, last = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    assert "bases by" in lines[0]
    assert last == f"{len(chosen)} explained, 1 differ"


def test_the_record_has_every_question_and_method() -> None:
    names = [case.name for case in recorded.cases()]
    assert len(names) == len(set(names)) > 200
    for method in registry.names()[1:]:
        assert any(name.endswith(f" {method}") for name in names)
