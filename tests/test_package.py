"""Wheel and sdist: built, and installed into an environment that has the core packages only."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tarfile
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
    assert outside == {"graphsvx", "graphsvx_command"}
    (sdist,) = packages.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[-1] for name in archive.getnames()}
    assert {"pyproject.toml", "LICENSE", "CHANGELOG.md", "README.md"} <= names
    assert not any(name.startswith((".venv", "out", "runs")) for name in names)


def test_a_core_install_explains_and_its_dependencies_fit(packages: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    _link_core_packages(site)
    (wheel,) = packages.glob("*.whl")
    python = str(tmp_path / "env" / "bin" / "python")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    pip = [sys.executable, "-m", "pip", "--python", python]
    for command in (
        [*pip, "install", "--quiet", "--no-deps", "--no-index", "--no-compile", str(wheel)],
        [*pip, "check"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    command = [python, "-c", ONE_LINE]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "prediction" in done.stdout


def _link_core_packages(site: Path) -> None:
    """Links to what graphsvx needs without extras, and what that needs, of this environment."""
    waiting, seen = ["graphsvx"], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # for another system or Python
        for requirement in distribution.requires or []:
            wanted, _, marker = requirement.partition(";")
            if "extra" not in marker:
                waiting.append(re.split(r"[\s<>=!~\[(]", wanted.strip())[0].lower())
        if name != "graphsvx":
            _link(distribution, site)


def _link(distribution: importlib.metadata.Distribution, site: Path) -> None:
    for file in distribution.files or []:
        top = file.parts[0]
        target = Path(str(distribution.locate_file(top)))
        if top not in ("..", "__pycache__") and target.exists() and not (site / top).exists():
            (site / top).symlink_to(target)
