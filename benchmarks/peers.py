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
    if interpreter is None:
        return {}
    results: dict[str, Any] = {}
    for name in NAMES:
        judged, own = [], []
        for game in games:
            values = _estimate(interpreter, name, game)
            if values is not None:
                judged.append(judge(game, values, None))
                own.append(ours(game))
        if judged:
            results[name] = {
                "error": median(each["error"] for each in judged), "ours": median(own),
                "top": float(np.mean([each["top"] for each in judged])), "games": len(judged),
            }  # fmt: skip
    return results


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
