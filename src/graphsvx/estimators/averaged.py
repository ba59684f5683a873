"""Fits of different models to the same coalitions, averaged; games that are partly known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Floats
from graphsvx.estimators.least_squares import Fit, surrogate
from graphsvx.masks.base import Masks

_LEAST = 1e-300


def with_known(
    rest: Fit, credit: Floats, variance: Floats, values: Tensor, explained: Tensor
) -> Fit:
    """The fit `rest` to what a known game leaves, and that game's `credit` [M, outputs].

    `variance` [M, outputs]: of the credit; `explained` [rows, outputs]: the known game's values.
    """
    errors = torch.from_numpy(np.sqrt(rest.errors.numpy() ** 2 + variance.T))
    held_out = rest.held_out_r2
    if held_out is not None:
        missed = _odd_squares(values - explained) / _odd_squares(values).clamp(min=_LEAST)
        held_out = 1 - missed * (1 - held_out)
    of_rest = rest.variance_of_sums

    def variance_of_sums(weights: Floats) -> Floats:
        of_known: Floats = variance.T @ weights**2
        return of_known if of_rest is None else of_rest(weights) + of_known

    return replace(
        rest, values=rest.values + torch.from_numpy(credit.T.copy()), errors=errors,
        model=f"logits of messages; {rest.model or 'linear'}", held_out_r2=held_out,
        variance_of_sums=None if of_rest is None else variance_of_sums,
    )  # fmt: skip


def averaged(masks: Masks, values: Tensor, empty: Tensor, fits: Sequence[Fit]) -> Fit:
    """Each fit with a weight in proportion to its precision, by output; variances as well.

    They have seen the same coalitions, so that their errors are not independent.
    """
    usable = [fit for fit in fits if bool(torch.isfinite(fit.errors).all())]
    if len(usable) < 2:
        return usable[0] if usable else fits[0]
    total = torch.stack([fit.errors.square().sum(1) for fit in usable])  # [fits, outputs]
    precision = 1 / total.clamp(min=_LEAST)
    weights = precision / precision.sum(0)
    credit = sum(w[:, None] * fit.values for w, fit in zip(weights, usable, strict=True))
    variance = sum(w[:, None] * fit.errors.square() for w, fit in zip(weights, usable, strict=True))
    of_sums = [fit.variance_of_sums for fit in usable]
    shares = weights.numpy()[:, :, None]

    def variance_of_sums(sums: Floats) -> Floats:
        parts = [of_sum(sums) for of_sum in of_sums if of_sum is not None]
        total: Floats = (shares * np.stack(parts)).sum(0)
        return total

    r2 = [fit.held_out_r2 for fit in usable if fit.held_out_r2 is not None]
    return replace(
        surrogate(masks, values, empty, torch.as_tensor(credit), torch.as_tensor(variance).sqrt()),
        model=" | ".join(fit.model or "linear" for fit in usable),
        held_out_r2=(weights * torch.stack(r2)).sum(0) if len(r2) == len(usable) else None,
        variance_of_sums=None if None in of_sums else variance_of_sums,
    )


def _odd_squares(values: Tensor) -> Tensor:
    """Sum of the squares of the differences of pairs, [outputs]."""
    return (values[::2] - values[1::2]).square().sum(0)
