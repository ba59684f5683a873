"""Rows that differ from a few others in a few columns, however their masks lie in memory."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import linear

from graphsvx.engine.lazy import PatchedRows


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_linear_layer_gives_what_it_gives_on_plain_rows(count: int, transposed: bool):
    rng = torch.Generator().manual_seed(count)
    table = torch.randn(9, 30, generator=rng)
    columns = torch.tensor([2, 3, 11, 28])
    off = torch.rand(7, 4, generator=rng) < 0.5
    if transposed:
        off = off.t().contiguous().t()
    rows = PatchedRows(table, count, columns, off, torch.randn(4, generator=rng))
    weight, bias = torch.randn(5, 30, generator=rng), torch.randn(5, generator=rng)
    plain = rows.plain()
    assert torch.allclose(linear(rows, weight, bias), linear(plain, weight, bias), atol=1e-5)
    assert torch.allclose(rows @ weight.t(), plain @ weight.t(), atol=1e-5)
