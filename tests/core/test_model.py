"""Scores of a model on every scale, against arithmetic with 60 digits."""

from __future__ import annotations

from decimal import Decimal, localcontext

import pytest
import torch
from torch import Tensor, nn

from graphsvx import GraphSVX, explain
from graphsvx.core.model import log_odds
from tests.worlds import random_graph


def exact_log_odds(logits: Tensor) -> Tensor:
    """log p_c - log(1 - p_c) in long decimals, class by class."""
    with localcontext() as context:
        context.prec = 60
        rows = [
            [
                float(Decimal(own) - sum(Decimal(z).exp() for z in row[:c] + row[c + 1 :]).ln())
                for c, own in enumerate(row)
            ]
            for row in logits.tolist()
        ]
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("spread", [1e-3, 1.0, 30.0, 700.0])
@pytest.mark.parametrize("classes", [2, 3, 17])
def test_log_odds_are_right_to_the_last_digits(classes: int, spread: float) -> None:
    logits = spread * torch.randn(20, classes, dtype=torch.float64)
    logits[0, 0] += 40 * spread  # one class is as good as certain
    logits[1] = 0.0  # all are alike
    logits[2, : classes // 2] = logits[2].max()
    rounding = 1e-15 * (classes + float(logits.abs().max()))
    assert torch.allclose(log_odds(logits), exact_log_odds(logits), rtol=1e-14, atol=rounding)


def test_log_odds_of_a_certain_class_have_a_finite_gradient() -> None:
    logits = torch.tensor([[0.0, -800.0, -801.0]], dtype=torch.float64, requires_grad=True)
    log_odds(logits)[0, 0].backward()
    assert logits.grad is not None
    assert float(logits.grad[0, 0]) == pytest.approx(1)
    assert bool(logits.grad.isfinite().all())


def test_log_odds_of_ten_thousand_classes() -> None:
    class Wide(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            total = x.index_add(0, edge_index[1], x[edge_index[0]])
            return total[:, :1] * torch.linspace(-1, 1, 10_000, dtype=x.dtype)

    e = explain(Wide(), random_graph(1, chance=0.9), node=1, scale="log_odds", target=9_999,
                method=GraphSVX(samples=60, hops=1))  # fmt: skip
    assert e.base + e.total == pytest.approx(e.prediction, abs=1e-9)
