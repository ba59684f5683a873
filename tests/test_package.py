"""Wheel and sdist: built, and installed into an environment that has the core packages only."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ONE_LINE = """
import importlib.util
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN
import graphsvx
torch.manual_seed(0)
data = Data(x=torch.randn(9, 3), edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]))
model = GCN(in_channels=3, hidden_channels=4, num_layers=2, out_channels=2)
explanation = graphsvx.explain(model, data, node=0)
assert abs(explanation.base + explanation.total - explanation.prediction) < 1e-6
print(graphsvx.__version__, explanation)
extras = ("matplotlib", "pandas", "pyarrow", "shap")
assert not [name for name in extras if importlib.util.find_spec(name)]
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


def test_the_packages_hold_what_they_should(packages: Path) -> None:
    (wheel,) = packages.glob("*.whl")
    files = zipfile.ZipFile(wheel).namelist()
    assert "graphsvx/py.typed" in files
    assert any(name.endswith("page.js") for name in files), "what pages are made of"
    outside = {name.split("/")[0] for name in files if ".dist-info" not in name}
    assert outside == {"graphsvx", "graphsvx_command", "graphsvx_lab"}
    (sdist,) = packages.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[-1] for name in archive.getnames()}
    assert {"pyproject.toml", "LICENSE", "CHANGELOG.md", "README.md"} <= names
    assert not any(name.startswith((".venv", "out", "runs")) for name in names)


def test_every_requirement_is_pinned() -> None:
    pinned = {
        _normal(line.split("==")[0]) for line in (ROOT / "constraints.txt").read_text().split()
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    lines = [line for group in groups for line in group]
    wanted = {_normal(re.split(r"[>=\[]", line)[0]) for line in lines} - {"graphsvx"}
    assert wanted <= pinned


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_sdist_builds_the_same_wheel(packages: Path, tmp_path: Path) -> None:
    (sdist,), (wheel,) = packages.glob("*.tar.gz"), packages.glob("*.whl")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    rebuilt = zipfile.ZipFile(tmp_path / wheel.name)
    contents = {name: rebuilt.read(name) for name in rebuilt.namelist()}
    original = zipfile.ZipFile(wheel)
    assert contents == {name: original.read(name) for name in original.namelist()}


@pytest.fixture(scope="module")
def core(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and the core packages: the folder of its commands."""
    folder = tmp_path_factory.mktemp("env")
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (wheel,) = packages.glob("*.whl")
    _link_core_packages(wheel, site)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    for command in (
        [*pip, "install", "--quiet", "--no-deps", "--no-index", "--no-compile", str(wheel)],
        [*pip, "check"],
    ):
        done = _run(command, folder)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / "bin"


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment |= {"GRAPHSVX_MODELS": str(folder / "models"), "COLUMNS": "400"}
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=folder, check=False
    )


def test_a_core_install_explains_and_its_dependencies_fit(core: Path, tmp_path: Path) -> None:
    done = _run([str(core / "python"), "-c", ONE_LINE], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "prediction" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "package", "extra"),
    [
        ("explain ba-shapes --node 400 --picture why.png", "matplotlib", "plot"),
        ("explain ba-shapes --node 400 --method shap", "shap", "baselines"),
        ("explain ba-shapes --node 400 --method lime", "lime", "baselines"),
        ("explain ba-shapes --node 400 --method pgm-explainer", "pgmpy", "baselines"),
        ("explain ba-shapes --node 400 --method integrated-gradients", "captum", "baselines"),
        ("explain molecules-aromatic --graph 0", "rdkit", "molecules"),
        ("run ba-shapes --out runs/mine", "pyarrow", "data"),
        ("serve ba-shapes", "starlette", "serve"),
        ("study noisy-features --quick", "pyarrow", "data"),
    ],
)
def test_a_missing_extra_is_named_before_work_starts(
    core: Path, tmp_path: Path, arguments: str, package: str, extra: str
) -> None:
    done = _run([str(core / "graphsvx"), *arguments.split()], tmp_path)
    assert done.returncode == 2, done.stderr
    assert re.search(rf"error: .*{package}.*graphsvx\[{extra}\]", done.stderr), done.stderr
    assert list(tmp_path.iterdir()) == [], "a model was trained, or a file written"


def _link_core_packages(wheel: Path, site: Path) -> None:
    """Links to what the wheel needs without extras, and what that needs, of this environment."""
    (metadata,) = (f for f in zipfile.Path(wheel).iterdir() if f.name.endswith(".dist-info"))
    waiting, seen = _needed(importlib.metadata.PathDistribution(metadata)), set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # for another system or Python
        waiting += _needed(distribution)
        _link(distribution, site)


def _needed(distribution: importlib.metadata.Distribution) -> list[str]:
    parts = [requirement.partition(";") for requirement in distribution.requires or []]
    return [
        re.split(r"[\s<>=!~\[(]", wanted.strip())[0].lower()
        for wanted, _, marker in parts
        if "extra" not in marker
    ]


def _link(distribution: importlib.metadata.Distribution, site: Path) -> None:
    for file in distribution.files or []:
        top = file.parts[0]
        target = Path(str(distribution.locate_file(top)))
        if top not in ("..", "__pycache__") and target.exists() and not (site / top).exists():
            (site / top).symlink_to(target)
