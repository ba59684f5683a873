"""What the tests of studies share: a context, hand-made answers, and models that are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphsvx.results.explanation import Explanation
from graphsvx_lab import datasets
from graphsvx_lab.studies import StudyContext
from graphsvx_lab.studies.context import Setting
from graphsvx_lab.studies.study import Answer, Case
from graphsvx_lab.zoo import Trained


class Degree(nn.Module):
    """p(class 1) = sigmoid(in-degree): what cutting a neighbour does is known."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        degree = torch.zeros(len(x)).index_add(0, edge_index[1], torch.ones(edge_index.shape[1]))
        return torch.stack([torch.zeros_like(degree), degree], 1)


def trained_on(name: str, model: nn.Module | None = None) -> Any:
    """A data set with a model that was never trained."""
    return Trained(model or Degree(), None, datasets.load(name, 100))


def answer_of(
    trained: Any, explanation: Explanation, question: int, *, method: str = "ours",
    setting: Setting | None = None, others: dict[str, Explanation] | None = None,
    **questions: tuple[int, ...],
) -> Answer:  # fmt: skip
    """An answer to a question that the named protocols score."""
    ours = setting or Setting(method=None)
    explanations = {method: {question: explanation}}
    explanations |= {name: {question: explanation} for name, explanation in (others or {}).items()}
    case: Any = Case(None, trained, 0, questions, {method: ours}, explanations)
    return Answer(case, trained, ours, method, question, explanation)


@pytest.fixture
def context(tmp_path: Path) -> StudyContext:
    """A quick context in an empty folder."""
    return StudyContext(tmp_path / "out", tmp_path / "runs", quick=True, workers=1)


@pytest.fixture(scope="session")
def quick(tmp_path_factory: pytest.TempPathFactory) -> StudyContext:
    """One quick context for all tests of a process: models are trained once."""
    folder = tmp_path_factory.mktemp("quick")
    return StudyContext(folder / "out", folder / "runs", quick=True, workers=1)
