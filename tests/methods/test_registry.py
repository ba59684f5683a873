"""Methods by name."""

from __future__ import annotations

import pytest

from graphsvx.errors import DataError, InputError
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
    with pytest.raises(InputError, match=r"greedy has the settings .*got \['epochs'\]"):
        registry.method("greedy", epochs=3)
