"""Methods by name."""

from __future__ import annotations

import pytest

from graphsvx import register
from graphsvx.cli.options import MethodChoice
from graphsvx.errors import DataError, InputError
from graphsvx.estimators import WLS
from graphsvx.generators import ReplaceRows
from graphsvx.masks import Paired, Random
from graphsvx.methods import GNNExplainer, PGExplainer, registry
from graphsvx.methods.graphsvx import GraphSVX


def test_every_name_makes_its_method_and_knows_its_blocks():
    for name in registry.names():
        method = registry.method(name)
        assert callable(method)
        assert registry.blocks(name).mask.does
        assert registry.settings(name) == {
            key: getattr(method, key) for key in registry.settings(name)
        }
    assert registry.names()[:2] == ("graphsvx", "graphsvx-paper")


def test_settings_are_handed_on():
    assert registry.method("gnnexplainer", epochs=7) == GNNExplainer(epochs=7)
    assert registry.method("graphsvx-paper", dataset="tree-grid") == GraphSVX.paper("tree-grid")
    given = {"samples": "64", "players": "nodes", "hops": "null", "indirect": "False"}
    read = registry.method(
        "graphsvx", **{key: registry.parse_setting(text) for key, text in given.items()}
    )
    assert read == GraphSVX(samples=64, players="nodes")
    assert registry.parse_setting("[3.0, 1.0]") == (3.0, 1.0)
    assert registry.parse_setting("class:2") == "class:2"


def test_a_trained_method_is_loaded(known, tmp_path):
    model, data = known
    PGExplainer(epochs=1).fit(model, data, nodes=[0]).save(tmp_path / "pg.safetensors")
    assert registry.method("pgexplainer", load=tmp_path / "pg.safetensors").trained is not None
    with pytest.raises(InputError, match="has its settings"):
        registry.method("pgexplainer", load=tmp_path / "pg.safetensors", epochs=3)
    with pytest.raises(DataError, match="no file"):
        registry.method("pgexplainer", load=tmp_path / "none")


def test_unknown_names_and_settings_are_refused():
    with pytest.raises(InputError, match="choose one of graphsvx, graphsvx-paper"):
        registry.method("subgraphx")
    with pytest.raises(InputError, match=r"greedy has no setting 'epochs'; .*it has features"):
        registry.method("greedy", epochs=3)


@pytest.fixture
def registered(monkeypatch):
    """Registrations of a test end with it."""
    known = {kind: {**named} for kind, named in registry._KNOWN.items()}
    monkeypatch.setattr(registry, "_KNOWN", known)


class Halves(Paired):
    """A mask of one's own."""


def test_blocks_are_settings_by_name():
    given = registry.method(
        "graphsvx", mask="Paired(stretch=8)", generator="ReplaceRows(by='zero')", estimator="WLS"
    )
    assert given == GraphSVX(mask=Paired(stretch=8), generator=ReplaceRows("zero"), estimator=WLS())
    paper = registry.method("graphsvx-paper", mask="Random")
    assert paper == GraphSVX.paper(mask=Random())


@pytest.mark.usefixtures("registered")
def test_a_registered_block_or_method_is_found_by_name():
    assert register("mask", "halves")(Halves) is Halves
    register("mask", "halves")(Halves)  # again, as a reloaded module does
    assert registry.method("graphsvx", mask="halves(stretch=2)") == GraphSVX(mask=Halves(2))
    assert "halves" in registry.available("mask")

    @register("method", "quick")
    def quick(samples=50):
        return GraphSVX(samples=samples)

    assert registry.method("quick", samples=70) == GraphSVX(samples=70)
    assert registry.settings("quick") == {"samples": 50}
    with pytest.raises(InputError, match=r"quick has no setting 'hops'; it has samples"):
        registry.method("quick", hops=3)
    assert "quick" not in registry.names()


@pytest.mark.usefixtures("registered")
def test_registrations_are_checked():
    with pytest.raises(InputError, match="kind must be one of method, mask"):
        register("masks", "x")
    with pytest.raises(InputError, match="without spaces"):
        register("mask", "a b")
    with pytest.raises(InputError, match="by its class"):
        register("mask", "x")(3)
    with pytest.raises(InputError, match="already a mask 'Paired'"):
        register("mask", "Paired")(Halves)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Pairs", "there is no mask 'Pairs'; did you mean 'Paired'. choose one of All"),
        ("Paired(8)", r"written as Paired\(setting=value, ...\)"),
        ("Paired(stretch=open('x'))", "written as"),
        ("Paired(stretch=8", "written as"),
        ("Paired(width=8)", r"Paired has no setting 'width'; it has stretch"),
        ("Paired(stretch=0)", "stretch must be"),
    ],
)
def test_wrong_texts_of_blocks_are_refused(text, problem):
    with pytest.raises(InputError, match=problem):
        registry.method("graphsvx", mask=text)


def test_entry_points_of_other_packages_are_found(tmp_path, monkeypatch):
    (tmp_path / "other_masks.py").write_text(
        "from graphsvx.masks import Paired\nclass Mine(Paired):\n    pass\n"
    )
    info = tmp_path / "other_masks-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-masks\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[graphsvx.masks]\nmine = other_masks:Mine\nbroken = other_masks:Gone\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert "mine" in registry.available("mask")
    method = MethodChoice("graphsvx", pairs=("mask=mine(stretch=3)",)).build()
    assert type(method.mask).__name__ == "Mine"
    assert method.mask.stretch == 3
    with pytest.raises(InputError, match="'broken' of the entry point 'other_masks:Gone' cannot"):
        registry.method("graphsvx", mask="broken")
