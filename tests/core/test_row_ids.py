"""Equal rows have equal numbers, in the order in which they were first seen."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from graphsvx.core.arrays import RowIds, row_keys
from graphsvx.engine.lazy import PatchedRows


@pytest.mark.parametrize("width", [1, 9, 64, 65, 200])
def test_row_ids_are_numbers_in_the_order_of_first_occurrence(width: int) -> None:
    rng = np.random.default_rng(width)
    known: dict[bytes, int] = {}
    numbering = RowIds()
    pool = rng.random((200, width)) < 0.5
    for count in (30, 30, 300, 3, 8, 8, 30):
        rows = pool[rng.integers(0, len(pool), count)]
        # Rows may differ in this part alone.
        other = rng.integers(0, 2, (count, 1)).astype(np.int16)
        given, new = numbering.add(rows, other)
        before = len(known)
        keys = [row.tobytes() + number.tobytes() for row, number in zip(rows, other, strict=True)]
        wanted = [known.setdefault(key, len(known)) for key in keys]
        assert given.tolist() == wanted
        assert [wanted[i] for i in new] == list(range(before, len(known)))
        assert len(numbering) == len(known)


@pytest.mark.parametrize("count", [1, 3])
def test_patched_rows_are_projected_as_if_they_were_written_out(count: int) -> None:
    rng = torch.Generator().manual_seed(0)
    table = torch.randn(6, 200, generator=rng, dtype=torch.float64)
    columns = torch.tensor([3, 50, 7, 199])
    off = torch.rand(9, 4, generator=rng) < 0.5
    other = torch.randn(4, generator=rng, dtype=torch.float64)
    rows = PatchedRows(table, count, columns, off, other)
    plain = rows.plain()
    assert rows.shape == plain.shape == (6 + 9 * count, 200)
    for k in range(9):
        for c in range(count):
            wanted = table[c].clone()
            wanted[columns[off[k]]] = other[off[k]]
            assert torch.equal(plain[6 + k * count + c], wanted)
    weight, bias = torch.randn(5, 200, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
    torch.testing.assert_close(
        functional.linear(rows, weight, bias), functional.linear(plain, weight, bias)
    )
    torch.testing.assert_close(rows @ weight.t(), plain @ weight.t())
    torch.testing.assert_close(rows * 2, plain * 2)


def test_booleans_are_packed_into_one_bit_each() -> None:
    rows = np.random.default_rng(0).random((7, 130)) < 0.5
    assert {len(key) for key in row_keys(rows)} == {17}
    assert len(RowIds().add(rows)[1]) == 7


def test_rows_without_columns_are_equal() -> None:
    empty = np.zeros((3, 0), dtype=bool)
    assert row_keys(empty) == [b""] * 3
    assert RowIds().add(empty)[0].tolist() == [0, 0, 0]
