"""Checkpoints: round trips, and everything that may be wrong with one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from graphsvx.errors import DataError, InputError
from graphsvx_lab import datasets, zoo
from graphsvx_lab.zoo import Step, Trained, checkpoints


def test_a_checkpoint_gives_the_same_model_back(path: Path, quick: Trained) -> None:
    for loaded in (zoo.load("ba-shapes", root=path.parent), zoo.load(path), zoo.load(str(path))):
        graph = loaded.dataset.graph
        assert torch.equal(
            loaded.model(graph.x, graph.edge_index), quick.model(graph.x, graph.edge_index)
        )
        assert not loaded.model.training
        assert loaded.card == replace(quick.card, weights=loaded.card.weights)
        assert loaded.dataset.fingerprint == quick.dataset.fingerprint


def test_weights_and_card_can_be_read_without_the_data(path: Path, quick: Trained) -> None:
    model, card = zoo.read(path)
    graph = quick.dataset.graph
    assert torch.equal(model(graph.x, graph.edge_index), quick.model(graph.x, graph.edge_index))
    assert not model.training
    assert card.fingerprint == quick.dataset.fingerprint
    path.write_bytes(b"")
    with pytest.raises(DataError, match="damaged"):
        zoo.read(path)


def test_files_are_named_after_what_they_hold(path: Path) -> None:
    names = sorted(path.name for path in path.parent.iterdir())
    stem = "ba-shapes-graphconv-seed0"
    assert names == [f"{stem}.json", f"{stem}.safetensors"]
    assert path == zoo.checkpoint_path("ba-shapes", root=path.parent)


def test_the_card_is_plain_json(path: Path) -> None:
    card = json.loads(path.with_suffix(".json").read_text())
    assert card["dataset"] == "ba-shapes"
    assert card["settings"]["hidden"] == 20
    assert set(card["accuracy"]) == {"train", "val", "test"}
    assert {"torch", "torch_geometric", "python"} <= set(card["versions"])


def test_data_of_another_seed_gets_another_file(quick: Trained) -> None:
    assert replace(quick.card, data_seed=3).name == "ba-shapes-graphconv-seed0-data3"


def test_ensure_trains_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = zoo.settings_for("tree-cycles")
    for module in ("training", "checkpoints"):
        monkeypatch.setattr(
            f"graphsvx_lab.zoo.{module}.settings_for", lambda *_: replace(usual, epochs=5)
        )
    steps: list[Step] = []
    first = zoo.ensure("tree-cycles", seed=2, progress=steps.append, root=tmp_path)
    assert len(steps) == 5
    again = zoo.ensure("tree-cycles", seed=2, progress=steps.append, root=tmp_path)
    assert len(steps) == 5
    assert first.card == again.card
    assert first.dataset.seed == 2
    # Other settings are usual from now on: the old checkpoint is not passed off as the model.
    for module in ("training", "checkpoints"):
        monkeypatch.setattr(
            f"graphsvx_lab.zoo.{module}.settings_for", lambda *_: replace(usual, epochs=6)
        )
    newer = zoo.ensure("tree-cycles", seed=2, progress=steps.append, root=tmp_path)
    assert (len(steps), newer.card.settings.epochs) == (5 + 6, 6)


def test_a_card_from_before_a_setting_existed(path: Path, quick: Trained) -> None:
    changed(path, lambda card: [card["settings"].pop(k) for k in ("normalise", "cut_edges")])
    before = replace(quick.card.settings, normalise=False, cut_edges=False)
    assert zoo.load(path).card.settings == before


def changed(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    card = json.loads(path.with_suffix(".json").read_text())
    change(card)
    path.with_suffix(".json").write_text(json.dumps(card))


def test_a_missing_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no file .*graphsvx train"):
        zoo.load("ba-shapes", root=tmp_path)
    with pytest.raises(DataError, match="unknown data set 'ba-shape'"):
        zoo.load("ba-shape", root=tmp_path)


def test_weights_without_their_card(path: Path) -> None:
    path.with_suffix(".json").unlink()
    with pytest.raises(DataError, match=r"no file .*\.json"):
        zoo.load(path)
    with pytest.raises(DataError, match=r"no file .*\.json"):
        zoo.ensure("ba-shapes", root=path.parent)


def test_damaged_weights(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"damaged.*graphsvx train ba-shapes"):
        zoo.load(path)
    path.write_bytes(content[:40])
    with pytest.raises(DataError, match="damaged"):
        zoo.load("ba-shapes", root=path.parent)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"format": 9}', "\x00", "[" * 100_000])
def test_a_damaged_card(path: Path, content: str) -> None:
    path.with_suffix(".json").write_text(content)
    with pytest.raises(DataError, match="damaged"):
        zoo.load(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda card: card.pop("settings"),
        lambda card: card.update(seed="0"),
        lambda card: card.update(more=1),
        lambda card: card["settings"].pop("hidden"),
        lambda card: card["settings"].update(hidden="20"),
        lambda card: card["settings"].update(surprise=1),
        lambda card: card["settings"].update(hidden=-20),
        lambda card: card["settings"].update(model="resnet"),
        lambda card: card["settings"].update(dropout=float("nan")),
        lambda card: card.update(settings=[]),
        lambda card: card.update(features=-5),
        lambda card: card.update(features=True),
        lambda card: card.update(classes=0),
        lambda card: card.update(classes=10**30),
        lambda card: card.update(seed=-1),
        lambda card: card.update(task="edge"),
        lambda card: card.update(accuracy={"test": 2.0}),
        lambda card: card.update(accuracy={"test": None}),
        lambda card: card.update(versions=[]),
        lambda card: card.update(weights=None),
    ],
)
def test_a_card_with_wrong_entries(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    changed(path, change)
    with pytest.raises(DataError, match="damaged"):
        zoo.load(path)


@pytest.mark.parametrize("setting", [{"hidden": 21}, {"model": "gin"}, {"concat": False}])
def test_weights_that_do_not_fit_the_card(path: Path, setting: dict[str, Any]) -> None:
    changed(path, lambda card: card["settings"].update(setting))
    with pytest.raises(DataError, match="does not fit its card") as caught:
        zoo.load(path)
    assert "\n" not in str(caught.value)


def test_a_card_of_another_data_set(path: Path) -> None:
    changed(path, lambda card: card.update(dataset="tree-cycles"))
    with pytest.raises(DataError, match="card of another checkpoint"):
        zoo.load("ba-shapes", root=path.parent)
    with pytest.raises(DataError, match="trained on other data"):
        zoo.load(path)


def test_a_card_with_another_fingerprint(path: Path) -> None:
    changed(path, lambda card: card.update(fingerprint="0" * 64))
    with pytest.raises(DataError, match="trained on other data"):
        zoo.load("ba-shapes", root=path.parent)


def test_data_that_the_model_was_not_trained_on(path: Path) -> None:
    with pytest.raises(DataError, match="trained on other data"):
        zoo.load(path, dataset=datasets.load("ba-shapes", seed=1))


def test_a_checkpoint_put_in_anothers_place(path: Path) -> None:
    for ending in (".safetensors", ".json"):
        path.with_suffix(ending).rename(path.parent / f"ba-shapes-graphconv-seed5{ending}")
    with pytest.raises(DataError, match="card of another checkpoint"):
        zoo.load("ba-shapes", seed=5, root=path.parent)


def test_foreign_tensors_with_a_matching_digest(path: Path) -> None:
    safetensors.torch.save_file({"x": torch.zeros(2)}, path)
    changed(path, lambda c: c.update(weights=hashlib.sha256(path.read_bytes()).hexdigest()))
    with pytest.raises(DataError, match="does not fit its card"):
        zoo.load(path)


def test_a_stop_while_saving_leaves_the_old_checkpoint(
    path: Path, quick: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {p.name: p.read_bytes() for p in path.parent.iterdir()}

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints.safetensors.torch, "save_file", stop)
    with pytest.raises(KeyboardInterrupt):
        zoo.save(quick, root=path.parent)
    assert {p.name: p.read_bytes() for p in path.parent.iterdir()} == before


def test_a_folder_that_cannot_be_made(quick: Trained, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match="GRAPHSVX_MODELS"):
        zoo.save(quick, root=tmp_path / "file" / "models")


def test_a_checkpoint_with_another_ending(quick: Trained, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"must end in \.safetensors"):
        zoo.save(quick, tmp_path / "model.pt")
    assert list(tmp_path.iterdir()) == []


def test_unknown_names(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown model"):
        zoo.load("ba-shapes", "resnet", root=tmp_path)
    with pytest.raises(InputError, match="unknown data set"):
        zoo.ensure("nowhere", root=tmp_path)
    with pytest.raises(InputError, match="seed must be an integer"):
        zoo.ensure("ba-shapes", seed="x", root=tmp_path)
    assert list(tmp_path.iterdir()) == []
