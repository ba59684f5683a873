"""`graphsvx datasets`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphsvx_lab import datasets
from graphsvx_lab.datasets import raw
from tests.cli.conftest import Run


@pytest.fixture(autouse=True)
def no_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A data directory without files, and no network to get them from."""
    monkeypatch.setenv("GRAPHSVX_DATA", str(tmp_path / "empty"))

    def refuse(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(raw.urllib.request, "urlopen", refuse)


def test_every_set_is_listed_even_without_its_files(run: Run, tmp_path: Path) -> None:
    ran = run("datasets", "--json", str(tmp_path / "sets.json"))
    assert ran.code == 0
    assert all(name in ran.out for name in datasets.names())
    assert "4,110" in ran.out
    assert "files missing" in ran.out
    assert "ind.cora.allx" in ran.out
    rows = {row["name"]: row for row in json.loads((tmp_path / "sets.json").read_text())}
    assert tuple(rows) == datasets.names()
    assert rows["tree-grid"]["edges"] == rows["tree-grid"]["paper"]["edges"] == 3410
    assert rows["ba-shapes"]["split"] == {"train": 560, "val": 70, "test": 70}
    assert rows["ba-shapes"]["fingerprint"] == datasets.load("ba-shapes").fingerprint
    assert "Mutagenicity_A.txt" in rows["mutag"]["missing"]
    assert rows["cora-noisy-nodes"]["licence"] == "MIT"
    assert rows["acm"]["origin"].startswith("https://github.com/liun-online/HeCo/")
    assert rows["ba-shapes"]["origin"] is None
    assert not (tmp_path / "empty").exists()


@pytest.mark.parametrize("path", ["file/sets.json", "/proc/x.json"])
def test_a_file_that_cannot_be_written(run: Run, tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_text("in the way")
    ran = run("datasets", "--json", str(tmp_path / path))
    assert ran.code == 2
    assert ran.err.startswith("error: ")
    assert "cannot be written" in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_seed_that_is_no_integer(run: Run) -> None:
    ran = run("datasets", "--seed", "abc")
    assert ran.code == 2
    assert "Traceback" not in ran.err
