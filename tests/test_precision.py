"""Models in half precision: explained as they compute, said so, and equal to brute force."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn

import graphsvx
from graphsvx import GraphSVX
from graphsvx.testing.oracle import credit_of, probability_of
from tests import typed_worlds
from tests.worlds import random_graph, random_model


class AutocastInside(nn.Module):
    """Computes in bfloat16 and returns single precision, or what comes out."""

    def __init__(self, inner: nn.Module, single: bool) -> None:
        super().__init__()
        self.inner, self.single = inner, single

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = self.inner(x, edge_index)
        return out.float() if self.single else out


def half(model: nn.Module, data, dtype: torch.dtype):
    data.x = data.x.to(dtype)
    return model.to(dtype), data


SETTINGS = {
    "bfloat16": ("bfloat16", lambda model, data: half(model, data, torch.bfloat16)),
    "float16": ("float16", lambda model, data: half(model, data, torch.float16)),
    "autocast around": ("bfloat16", lambda model, data: (model, data)),
    "autocast inside": ("bfloat16", lambda model, data: (AutocastInside(model, False), data)),
    "inside, returns single": ("bfloat16", lambda model, data: (AutocastInside(model, True), data)),
}


@pytest.mark.parametrize("kind", ["gcn", "gat", "gin", "sage"])
@pytest.mark.parametrize("setting", SETTINGS)
def test_half_precision_is_computed_as_the_model_does_and_said(kind: str, setting: str) -> None:
    precision, change = SETTINGS[setting]
    data = random_graph(3)
    data.x = data.x.float()
    model, data = change(random_model(kind, 2).float(), data)
    around = torch.autocast("cpu", dtype=torch.bfloat16)
    with around if setting == "autocast around" else nullcontext():
        explanation = graphsvx.explain(model, data, node=1, method=GraphSVX(players="nodes"))
        scores = probability_of(model, 1)(data)
        truth = credit_of(explanation, model, data)
    # A score is rounded to this share of it; credit is a mean of differences of two.
    rounding = 2 * torch.finfo(getattr(torch, precision)).eps
    assert explanation.target == int(scores.argmax())
    assert explanation.prediction == pytest.approx(float(scores.max()), abs=rounding)
    assert explanation.nodes == pytest.approx(truth.nodes, abs=rounding)
    assert explanation.certificate.precision is not None
    assert explanation.certificate.precision.startswith(precision)
    assert f"computes in {precision}" in explanation.certificate.line()


def test_single_and_double_precision_are_not_mentioned() -> None:
    data = random_graph(3)
    for model in (random_model("gcn", 2), random_model("gcn", 2).float()):
        data.x = data.x.to(next(model.parameters()).dtype)
        explanation = graphsvx.explain(model, data, node=1, method=GraphSVX(samples=40))
        assert explanation.certificate.precision is None
        assert "computes in" not in str(explanation.certificate)


def test_typed_models_in_half_precision_say_so() -> None:
    data = typed_worlds.typed_graph(3)
    model = typed_worlds.hetero_model("sage", data, 2).bfloat16()
    for node_type in data.node_types:
        data[node_type].x = data[node_type].x.bfloat16()
    explanation = graphsvx.explain(model, data, node=("paper", 1), method=GraphSVX(samples=40))
    assert explanation.certificate.precision == "bfloat16"
