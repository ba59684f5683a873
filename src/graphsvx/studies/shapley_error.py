"""How far credit is from the Shapley values that it stands for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import nan
from typing import Any

import torch
from torch import Tensor

from graphsvx.errors import InputError
from graphsvx.explanation import Explanation
from graphsvx.masks import Auto, Mask, Masks
from graphsvx.masks.base import Game
from graphsvx.methods import GraphSVX
from graphsvx.studies.setting import Setting
from graphsvx.studies.study import Answer, Measure

REFERENCE = 20
"""A reference may make this many times the model calls."""


@dataclass(frozen=True)
class OtherRandomNumbers:
    """A mask with another stream of random numbers: a reference that shares no luck with others.

    `separate=False` plays one joint game of features and nodes, as the paper's first masks do.
    """

    inner: Mask = Auto()  # noqa: RUF009  (a frozen record)
    separate: bool = True

    def __call__(self, game: Game, budget: int, rng: torch.Generator) -> Masks:
        """As `inner`."""
        fresh = int(torch.randint(2**62, (1,), generator=rng))
        return self.inner(game, budget, torch.Generator().manual_seed(fresh))


def paper_game(dataset: str, **changes: Any) -> GraphSVX:
    """The paper's coalitions and budget, without the indirect effect: more values are exact."""
    return GraphSVX.paper(dataset, **{"indirect": False, **changes})


def reference(method: GraphSVX, separate: bool = True) -> Setting:
    """The same game: exact where `REFERENCE` times the calls allow it, our estimator elsewhere."""
    mask = OtherRandomNumbers(separate=separate)
    return Setting(replace(method, mask=mask, samples=REFERENCE * method.samples))


def relative_error(explanation: Explanation, known: Explanation) -> float:
    """|phi - phi_ref|^2 / |phi_ref|^2 over all players; NaN if the reference is 0 everywhere."""
    ids = [(e.feature_ids.tolist(), e.node_ids.tolist(), e.edge_ids.tolist())
           for e in (explanation, known)]  # fmt: skip
    if ids[0] != ids[1]:
        raise InputError(
            f"an error needs the same players on both sides, got {explanation.title} with "
            f"{explanation.method} and {known.title} with {known.method}"
        )
    return _squares(_credit(explanation) - _credit(known), known)


def own_error(explanation: Explanation) -> float:
    """The relative squared error that an estimate expects of itself, from its error bars."""
    return _squares(explanation.errors, explanation)


def error_against(reference_of: Callable[[str], str | None]) -> Measure:
    """`error` against the reference of a method; a reference's `own error`."""

    def measure(answer: Answer) -> dict[str, float]:
        name = reference_of(answer.method)
        if name == answer.method:
            return {"own error": own_error(answer.explanation)}
        known = answer.of(name) if name else None
        return {} if known is None else {"error": relative_error(answer.explanation, known)}

    return measure


def _credit(one: Explanation) -> Tensor:
    return torch.cat([one.feature_values, one.node_values, one.edge_values])


def _squares(distance: Tensor, known: Explanation) -> float:
    size = float((_credit(known) ** 2).sum())
    return float((distance**2).sum()) / size if size > 0 else nan
