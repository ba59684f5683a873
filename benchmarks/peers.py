"""Estimators of shapiq 1.8, which needs Python 3.12, in a process of their own.

The environment variable SHAPIQ_PYTHON names an interpreter with shapiq 1.8; without it they are
left out. Coalitions and values go through a pipe.
"""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.coverage import values_of

CALLS = 1000
_SECONDS = 120
NAMES = (
    "KernelSHAP", "LeverageSHAP", "OddSHAP", "PolySHAP", "RegressionMSR", "SVARM",
    "PermutationSamplingSV",
)  # fmt: skip


def measure(
    games: list[Any], judge: Callable[..., dict[str, float]], ours: Callable[[Any], float]
) -> dict[str, Any]:
    """Median errors at 1,000 distinct calls, and those of `ours` on the same games."""
    interpreter = os.environ.get("SHAPIQ_PYTHON")
    estimates: dict[str, Callable[[Any], np.ndarray | None]] = {"shap KernelExplainer": _by_shap}
    if interpreter is not None:
        estimates |= {f"shapiq {name}": partial(_estimate, interpreter, name) for name in NAMES}
    results: dict[str, Any] = {}
    for name, estimate in estimates.items():
        judged, own = [], []
        for game in games:
            values = estimate(game)
            if values is not None:
                judged.append(judge(game, values, None))
                own.append(ours(game))
        if judged:
            results[name] = {
                "error": median(each["error"] for each in judged), "ours": median(own),
                "top": float(np.mean([each["top"] for each in judged])), "games": len(judged),
            }  # fmt: skip
    return results


def _by_shap(game: Any) -> np.ndarray:
    """shap's KernelExplainer, with least squares instead of its selection of few players."""
    import shap  # noqa: PLC0415  (slow to import)

    np.random.seed(0)  # shap draws from numpy's global state
    explainer = shap.KernelExplainer(
        lambda rows: values_of(game.game, game.target, rows > 0.5), np.zeros((1, game.game.players))
    )
    credit = explainer.shap_values(
        np.ones((1, game.game.players)), nsamples=CALLS - 2, l1_reg=False, silent=True
    )
    return np.asarray(credit)[0]


def _estimate(interpreter: str, name: str, game: Any) -> np.ndarray | None:
    """None where the peer fails, or takes more than two minutes."""
    worker = Path(__file__).with_name("shapiq_worker.py")
    command = ["timeout", str(_SECONDS), interpreter, str(worker), name,
               str(game.game.players), str(CALLS)]  # fmt: skip
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL) as process:  # fmt: skip
        if process.stdin is None or process.stdout is None:
            return None
        while True:
            head = process.stdout.read(8)
            if len(head) < 8:
                return None
            # Pickle: both ends are this benchmark, in processes of the same user.
            kind, content = pickle.loads(process.stdout.read(struct.unpack("<q", head)[0]))
            if kind == "values":
                return np.asarray(content)
            rows = np.unpackbits(content, axis=1, count=game.game.players).astype(bool)
            answer = pickle.dumps(values_of(game.game, game.target, rows))
            process.stdin.write(struct.pack("<q", len(answer)) + answer)
            process.stdin.flush()
