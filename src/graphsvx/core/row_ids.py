"""Integer ids for rows of arrays: equal rows get equal ids."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphsvx.core.arrays import Ids, run_starts

PackedWords = NDArray[np.uint64]


def _bytes(parts: tuple[NDArray[Any], ...]) -> NDArray[np.uint8]:
    packed = [
        np.packbits(part, axis=1)
        if part.dtype == bool
        else np.ascontiguousarray(part).view(np.uint8)
        for part in parts
    ]
    return packed[0] if len(packed) == 1 else np.concatenate(packed, axis=1)


def row_keys(*parts: NDArray[Any]) -> list[bytes]:
    """One hashable key per row; equal rows have equal keys."""
    joined = np.ascontiguousarray(_bytes(parts))
    width = joined.shape[1]
    if width == 0:
        return [b""] * len(joined)
    return joined.view(np.dtype((np.void, width)))[:, 0].tolist()


def packed_words(*parts: NDArray[Any]) -> PackedWords:
    """Rows packed into 64-bit words, [rows, words]; booleans take one bit each."""
    joined = _bytes(parts)
    width = joined.shape[1]
    padded = np.zeros((len(joined), max(1, -(-width // 8)) * 8), dtype=np.uint8)
    padded[:, :width] = joined
    return padded.view(np.uint64)


_FEW = 16  # rows that are added to at least so many times as many are looked for by bisection


class RowIds:
    """Assigns ids 0, 1, ... to distinct rows in the order in which they are added."""

    def __init__(self) -> None:
        self._rows: PackedWords | None = None
        self._sorted: tuple[PackedWords, Ids] | None = None
        """Sorted hashes of the rows, and the id of each; None: not up to date."""

    def __len__(self) -> int:
        return 0 if self._rows is None else len(self._rows)

    def add(self, *parts: NDArray[Any]) -> tuple[Ids, Ids]:
        """The id of each row, and the positions of rows that were new."""
        start, rows = len(self), packed_words(*parts)
        if self._rows is not None and len(rows) * _FEW < start:
            ids = self._add_few(self._rows, rows)
            if ids is not None:
                return ids
        if self._rows is not None:
            rows = np.concatenate([self._rows, rows])
        first = _first(_hash(rows))
        # Hash collisions are practically impossible, but must not merge different rows.
        if rows.shape[1] > 1 and not np.array_equal(rows[first], rows):
            _, first_index, inverse = np.unique(
                rows, axis=0, return_index=True, return_inverse=True
            )
            first = first_index[inverse.reshape(-1)]
        is_new = np.zeros(len(rows), dtype=bool)
        is_new[first] = True
        number = is_new.cumsum() - 1
        new = np.flatnonzero(is_new)
        self._rows, self._sorted = rows[new], None
        return number[first[start:]], new[start:] - start

    def _add_few(self, numbered: PackedWords, rows: PackedWords) -> tuple[Ids, Ids] | None:
        """`add` where few rows join many, which are not sorted again; None: hashes collide."""
        if self._sorted is None:
            hashes = _hash(numbered)
            order = hashes.argsort()
            self._sorted = hashes[order], order
        ordered, order = self._sorted
        hashes = _hash(rows)
        at = np.minimum(np.searchsorted(ordered, hashes), len(ordered) - 1)
        met = ordered[at] == hashes
        ids = order[at]
        if rows.shape[1] > 1 and not np.array_equal(numbered[ids[met]], rows[met]):
            return None
        others = np.flatnonzero(~met)
        first = _first(hashes[others])
        if rows.shape[1] > 1 and not np.array_equal(rows[others[first]], rows[others]):
            return None
        is_new = first == np.arange(len(others))
        ids[others] = len(numbered) + (is_new.cumsum() - 1)[first]
        new = others[is_new]
        if len(new):
            self._rows = np.concatenate([numbered, rows[new]])
            places = np.searchsorted(ordered, hashes[new])
            by_hash = hashes[new].argsort()
            numbers = len(numbered) + np.arange(len(new))
            self._sorted = (
                np.insert(ordered, places[by_hash], hashes[new][by_hash]),
                np.insert(order, places[by_hash], numbers[by_hash]),
            )
        return ids, new


def _first(hashes: PackedWords) -> Ids:
    """Position of the first occurrence of each value."""
    order = hashes.argsort()
    ordered = hashes[order]
    new = run_starts(ordered)
    first = np.empty(len(order), dtype=np.int64)
    if len(order):
        first[order] = np.minimum.reduceat(order, np.flatnonzero(new))[new.cumsum() - 1]
    return first


def _hash(rows: PackedWords) -> PackedWords:
    if rows.shape[1] == 1:
        return rows[:, 0]
    hashes = np.zeros(len(rows), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column in rows.T:
            hashes ^= column
            hashes *= np.uint64(0x9E3779B97F4A7C15)
            hashes ^= hashes >> np.uint64(29)
            hashes *= np.uint64(0xBF58476D1CE4E5B9)
            hashes ^= hashes >> np.uint64(32)
    return hashes
