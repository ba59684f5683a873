"""What the figures were measured on; nothing that names the machine or its owner."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

import torch

PACKAGES = ("torch", "torch_geometric", "numpy", "scipy", "shap", "shapiq")


def processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def describe() -> dict[str, str]:
    return {
        "processor": processor(),
        "cores": str(os.cpu_count()),
        "torch threads": str(torch.get_num_threads()),
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "versions": ", ".join(f"{name} {version(name)}" for name in PACKAGES),
    }
