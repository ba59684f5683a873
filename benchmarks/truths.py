"""Shapley values that took very many calls, kept in the cache: benchmarks can be resumed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

from graphsvx.utils.files import atomic_write
from graphsvx_lab.datasets.catalogue import cache_dir

Truth = tuple[np.ndarray, np.ndarray]
"""Shapley values and their standard errors, [M] each."""


def stored(how: str, probes: np.ndarray, compute: Callable[[], Truth]) -> Truth:
    """What `compute` returned for the same game before; else computed now, and kept.

    A game is known by its values at random coalitions, `probes`, to six digits; `how` says by what
    method, calls and seed its Shapley values are estimated.
    """
    digits = np.char.mod("%.5e", probes.astype(np.float64)).tolist()
    digest = hashlib.sha256(repr((how, digits)).encode()).hexdigest()[:24]
    path = cache_dir() / "bench-truths" / f"{digest}.npy"
    if path.exists():
        values, errors = np.load(path)
        return values, errors
    values, errors = compute()
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as part, part.open("wb") as file:
        np.save(file, np.stack([values, errors]))
    return values, errors
