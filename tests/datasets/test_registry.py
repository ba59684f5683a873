"""Names, seeds and places."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphsvx.errors import DataError
from graphsvx_lab import datasets


def test_names_lists_every_set_of_the_paper() -> None:
    assert set(datasets.PAPER_STATISTICS) < set(datasets.names())
    for base in ("cora", "citeseer", "pubmed"):
        assert {base, f"{base}-noisy-features", f"{base}-noisy-nodes"} <= set(datasets.names())


def test_an_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(DataError, match=r"unknown data set 'BA_Shapes'.*'ba-shapes'"):
        datasets.load("BA_Shapes")
    with pytest.raises(DataError, match="choose one of: ba-shapes"):
        datasets.load("xyzzy")


@pytest.mark.parametrize("seed", ["1", 1.0, None, True])
def test_a_seed_must_be_an_integer(seed: object) -> None:
    with pytest.raises(DataError, match="seed must be an integer"):
        datasets.load("ba-shapes", seed)


def test_the_only_graph() -> None:
    assert datasets.load("ba-shapes").graph.num_nodes == 700
    with pytest.raises(DataError, match="1000 graphs"):
        _ = datasets.load("ba-2motifs").graph


def test_the_wrong_kind_of_truth_is_a_data_error() -> None:
    with pytest.raises(DataError, match="no ground truth on graphs"):
        _ = datasets.load("ba-shapes").graph_truth
    with pytest.raises(DataError, match="no ground truth on nodes"):
        _ = datasets.load("ba-2motifs").node_truth
    with pytest.raises(DataError, match="graph must be between 0 and 999"):
        datasets.load("ba-2motifs").graph_truth.graph_nodes(1000)


def test_folders_follow_argument_environment_and_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("GRAPHSVX_DATA", raising=False)
    monkeypatch.delenv("GRAPHSVX_MODELS", raising=False)
    assert datasets.data_dir() == tmp_path / "graphsvx" / "data"
    assert datasets.models_dir() == tmp_path / "graphsvx" / "models"
    monkeypatch.setenv("GRAPHSVX_DATA", "/elsewhere")
    assert datasets.data_dir() == Path("/elsewhere")
    assert datasets.data_dir(tmp_path) == tmp_path
