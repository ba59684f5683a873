"""What the command line answers without importing torch: help, version, lists and typos."""

from __future__ import annotations

import subprocess
import sys

import pytest

import graphsvx
from graphsvx.cli import options as names
from graphsvx.methods import registry
from graphsvx.methods.graphsvx import RENAMED, SETTINGS
from graphsvx_lab import datasets, zoo
from graphsvx_lab.datasets.catalogue import CATALOGUE
from graphsvx_lab.zoo.settings import (
    BLOCK_MODELS,
    CITATION_MODELS,
    RELATIONAL_MODELS,
    TYPED_MODELS,
)

HEAVY = ("torch", "torch_geometric", "scipy", "sklearn", "pandas", "numpy", "matplotlib")
ASK = f"""
import sys
import graphsvx_command
sys.argv = ["graphsvx", *sys.argv[1:]]
try:
    graphsvx_command.main()
finally:
    heavy = sorted(set(sys.modules) & set({HEAVY!r}))
    print("imported:", *heavy, file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("words", "code", "answer"),
    [
        ("--help", 0, "explain"),
        ("--version", 0, "graphsvx 0."),
        ("explain --help", 0, "my_module:build"),
        ("run --help", 0, "--groups"),
        ("datasets", 0, "ba-shapes"),
        ("explan", 2, "explain"),
        ("explain coar --node 1", 2, "did you mean 'cora'?"),
        ("explain cora --node 1 --method graphsvxx", 2, "did you mean 'graphsvx'?"),
        ("run cora --out x --set sampels=1", 2, "did you mean 'samples'?"),
        ("explain cora --node 1 --model gnc", 2, "did you mean 'gcn'?"),
        ("train corra", 2, "did you mean 'cora'?"),
    ],
)
def test_answered_without_torch(words: str, code: int, answer: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", ASK, *words.split()], capture_output=True, text=True, check=False
    )
    assert ran.returncode == code
    assert answer in " ".join((ran.stdout + ran.stderr).split())
    assert ran.stderr.splitlines()[-1] == "imported:"


@pytest.mark.parametrize(
    "code",
    [
        # The package alone is light; its names are there.
        f"import graphsvx; assert 'explain' in dir(graphsvx); "
        f"assert not set(sys.modules) & set({HEAVY!r})",
        # What it adds to PyG at first use.
        "import torch_geometric; before = set(sys.modules); import graphsvx; graphsvx.explain; "
        "heavy = {'sklearn', 'matplotlib', 'networkx', 'scipy.spatial', 'scipy.optimize', 'rich'}; "
        "assert not heavy & (set(sys.modules) - before)",
    ],
    ids=["light", "lazy"],
)
def test_import_graphsvx(code: str) -> None:
    subprocess.run([sys.executable, "-c", f"import sys; {code}"], check=True)


@pytest.mark.parametrize("name", sorted({*dir(graphsvx)} - {"__version__"}))
def test_a_name_is_there_at_first_use(name: str) -> None:
    # Asked for as if it were not there yet: what was imported before is an attribute.
    public = graphsvx.__getattr__(name)
    assert public.__name__.rpartition(".")[2] == name


@pytest.mark.parametrize("name", registry.names())
def test_settings_read_from_the_source_are_those_of_the_method(name: str) -> None:
    also = {"graphsvx-paper": {"dataset"}, "pgexplainer": {"load"}}.get(name, set())
    flat = set(SETTINGS) if name.startswith("graphsvx") else set()
    assert set(names.setting_names(name)) == set(registry.settings(name)) | flat | also


def test_names_are_those_of_the_registries() -> None:
    assert tuple(names.METHODS) == registry.names()
    assert set(names.ZOO) == {*BLOCK_MODELS, *CITATION_MODELS, *TYPED_MODELS, *RELATIONAL_MODELS}
    assert set(names._EARLIER) == set(RENAMED)
    assert zoo.models("cora") == CITATION_MODELS


@pytest.mark.parametrize("name", ["ba-shapes", "ba-community", "tree-cycles", "tree-grid"])
def test_listed_sizes_are_those_of_the_loaded_set(name: str) -> None:
    loaded = datasets.load(name)
    assert CATALOGUE[name].sizes == datasets.statistics(loaded)
    assert CATALOGUE[name].truth == loaded.node_truth.kind


def test_listed_sizes_of_real_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    root = datasets.data_dir()
    for name in ("cora", "cora-noisy-nodes", "cora-noisy-features"):
        if not (root / "Cora" / "raw" / "ind.cora.x").exists():
            pytest.skip("no files of Cora")
        assert CATALOGUE[name].sizes == datasets.statistics(datasets.load(name))
