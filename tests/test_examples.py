"""Every example in docs/examples runs as it stands, and quickly."""

from __future__ import annotations

import runpy
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from graphsvx_lab import datasets, zoo

EXAMPLES = sorted((Path(__file__).parents[1] / "docs" / "examples").glob("*.py"))


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 9


train = zoo.train


@cache
def _trained(name: str, settings: zoo.Settings) -> zoo.Trained:
    """A model trained for a tenth of the epochs, shared by the examples."""
    return train(datasets.load(name), settings=replace(settings, epochs=settings.epochs // 10))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zoo, "train", lambda data, settings: _trained(data.name, settings))
    begun = time.process_time()
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.strip(), "an example shows something"
    assert time.process_time() - begun < 60
