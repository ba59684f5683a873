"""Rows of bits by number: equal rows have equal numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphsvx.graph import Ids, changes

Words = NDArray[np.uint64]


def _bytes(parts: tuple[NDArray[Any], ...]) -> NDArray[np.uint8]:
    packed = [
        np.packbits(part, axis=1)
        if part.dtype == bool
        else np.ascontiguousarray(part).view(np.uint8)
        for part in parts
    ]
    return packed[0] if len(packed) == 1 else np.concatenate(packed, axis=1)


def keys(*parts: NDArray[Any]) -> list[bytes]:
    """One hashable key a row; equal rows, equal keys."""
    joined = np.ascontiguousarray(_bytes(parts))
    width = joined.shape[1]
    if width == 0:
        return [b""] * len(joined)
    return joined.view(np.dtype((np.void, width)))[:, 0].tolist()


def words(*parts: NDArray[Any]) -> Words:
    """Each row as few 64-bit words, [rows, words]; equal rows, equal words."""
    joined = _bytes(parts)
    width = joined.shape[1]
    padded = np.zeros((len(joined), max(1, -(-width // 8)) * 8), dtype=np.uint8)
    padded[:, :width] = joined
    return padded.view(np.uint64)


class Numbers:
    """Gives rows numbers from 0 in the order in which they are first seen."""

    def __init__(self) -> None:
        self._rows: Words | None = None

    def __len__(self) -> int:
        return 0 if self._rows is None else len(self._rows)

    def add(self, *parts: NDArray[Any]) -> tuple[Ids, Ids]:
        """The number of each row, and the positions of those that had none."""
        start, rows = len(self), words(*parts)
        if self._rows is not None:
            rows = np.concatenate([self._rows, rows])
        first = _first(_hash(rows))
        # Different rows with the same hash are as good as impossible, but must not pass.
        if rows.shape[1] > 1 and not np.array_equal(rows[first], rows):
            _, some, which = np.unique(rows, axis=0, return_index=True, return_inverse=True)
            first = some[which.reshape(-1)]
        fresh = np.zeros(len(rows), dtype=bool)
        fresh[first] = True
        number = fresh.cumsum() - 1
        new = np.flatnonzero(fresh)
        self._rows = rows[new]
        return number[first[start:]], new[start:] - start


def _first(hashes: Words) -> Ids:
    """Where each number is seen for the first time."""
    order = hashes.argsort()
    ordered = hashes[order]
    new = changes(ordered)
    found = np.empty(len(order), dtype=np.int64)
    if len(order):
        found[order] = np.minimum.reduceat(order, np.flatnonzero(new))[new.cumsum() - 1]
    return found


def _hash(rows: Words) -> Words:
    if rows.shape[1] == 1:
        return rows[:, 0]
    found = np.zeros(len(rows), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column in rows.T:
            found ^= column
            found *= np.uint64(0x9E3779B97F4A7C15)
            found ^= found >> np.uint64(29)
            found *= np.uint64(0xBF58476D1CE4E5B9)
            found ^= found >> np.uint64(32)
    return found
