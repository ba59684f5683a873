"""The surrogate g: weighted linear regressions of values on coalitions (Eq. 3).

All in float64 and for all explained outputs at once. With z centred to z - |z| / M the
efficiency constraint is met by construction: credit is an equal share for everybody plus a part
that sums to zero. Where rows are too few to tell players apart, that part has the least norm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from graphsvx.masks.base import Masks


@dataclass(frozen=True, eq=False)
class Fit:
    """What a regression found, for each output."""

    values: Tensor
    """phi: [outputs, M]."""
    errors: Tensor
    """Standard errors: 0 if exact, NaN if the rows do not support any."""
    base: Tensor
    """phi_0: [outputs]."""
    r2: Tensor
    """Weighted R² on the rows: [outputs]."""
    complete: Tensor | None = None
    """Selective regressions: phi of all players before any was left out."""


class Regression(Protocol):
    """Fits g to the played rows."""

    def __call__(self, masks: Masks, values: Tensor, empty: Tensor, full: Tensor) -> Fit:
        """`values` [rows, outputs]; `empty` and `full` [outputs] are the scores of 0 and 1."""
        ...


@dataclass(frozen=True)
class WLS:
    """Weighted least squares with g(0) and g(1) exact: the Shapley values on all coalitions."""

    def __call__(self, masks: Masks, values: Tensor, empty: Tensor, full: Tensor) -> Fit:
        """Closed form."""
        if masks.credit is not None:
            phi = (masks.credit.t() @ values).t()
            return surrogate(masks, values, empty, phi, torch.zeros_like(phi))
        design = _Design.of(masks)
        gain = full - empty
        target = values - empty - design.share[:, None] * gain
        part = design.solve(target)
        phi = gain[:, None] / max(design.players, 1) + part
        return surrogate(masks, values, empty, phi, design.errors(target, part))


@dataclass(frozen=True)
class WLR:
    """Weighted linear regression with an intercept: g(1) is exact, g(0) is fitted.

    The base value is the constant of g, as in the paper's ablation; the empty coalition takes
    part as an ordinary row with the largest weight. Errors are not known for it.
    """

    def __call__(self, masks: Masks, values: Tensor, empty: Tensor, full: Tensor) -> Fit:
        """Solve with g(1) = f(1) eliminated: regress f(1) - y on the players that are off."""
        players = masks.rows.shape[1]
        if masks.credit is not None:
            return WLS()(masks, values, empty, full)
        off = torch.cat([torch.ones(1, players, dtype=torch.float64), 1 - _float(masks)])
        weights = torch.from_numpy(
            np.concatenate([[masks.weights.max(initial=1.0)], masks.weights])
        )
        lost = full - torch.cat([empty[None], values])
        root = weights.sqrt()[:, None]
        phi = torch.linalg.lstsq(off * root, lost * root, driver="gelsd").solution.t()
        unknown = torch.full_like(phi, torch.nan)
        base = full - phi.sum(1)
        return surrogate(
            masks, values, base, phi, torch.zeros_like(phi) if players <= 1 else unknown
        )


def _float(masks: Masks) -> Tensor:
    return torch.from_numpy(masks.rows).double()


def surrogate(masks: Masks, values: Tensor, base: Tensor, phi: Tensor, errors: Tensor) -> Fit:
    """Credit as a fit, with the weighted R² of g on the rows."""
    weights = torch.from_numpy(masks.weights)[:, None]
    total = weights.sum()
    if len(values) == 0 or total <= 0:
        return Fit(phi, errors, base, torch.ones_like(base))
    fitted = base + _float(masks) @ phi.t()
    mean = (weights * values).sum(0) / total
    lost = (weights * (values - fitted) ** 2).sum(0)
    spread = (weights * (values - mean) ** 2).sum(0)
    flat = spread <= 1e-18 * total
    r2 = torch.where(flat, torch.ones_like(lost), 1 - lost / spread.clamp(min=1e-300))
    return Fit(phi, errors, base, r2)


@dataclass(frozen=True, eq=False)
class _Design:
    """The centred, weighted rows, factorised on their smaller side."""

    masks: Masks
    players: int
    share: Tensor
    rows: Tensor
    inverse: Tensor
    """Pseudo-inverse of rows' W rows (or of the rows' own products, if they are fewer)."""
    dual: bool

    @staticmethod
    def of(masks: Masks) -> _Design:
        count, players = masks.rows.shape
        z = _float(masks)
        share = z.sum(1) / max(players, 1)
        rows = (z - share[:, None]) * torch.from_numpy(masks.weights).sqrt()[:, None]
        dual = count < players
        gram = rows @ rows.t() if dual else rows.t() @ rows
        return _Design(masks, players, share, rows, _inverse(gram, centred=not dual), dual)

    def solve(self, target: Tensor) -> Tensor:
        """The zero-sum part of phi, [outputs, M]."""
        y = target * torch.from_numpy(self.masks.weights).sqrt()[:, None]
        if self.dual:
            return (self.rows.t() @ (self.inverse @ y)).t()
        return (self.inverse @ (self.rows.t() @ y)).t()

    def errors(self, target: Tensor, part: Tensor) -> Tensor:
        """Standard errors by the jackknife over drawn pairs (a sandwich with leverages).

        A pair acts on the zero-sum part through the difference of its two values only, so it
        is one observation. Enumerated rows are no draws and add nothing; a stratum of which a
        share f was drawn counts with 1 - f.
        """
        masks = self.masks
        if masks.exact or self.players <= 1:
            return torch.zeros_like(part)
        unknown = torch.full_like(part, torch.nan)
        if masks.pair is None or masks.unseen is None or self.dual:
            return unknown
        first = np.flatnonzero(masks.pair >= 0)[::2]
        if len(first) < 2:
            return unknown
        rows = self.rows[first] * 2**0.5
        root = torch.from_numpy(masks.weights[first]).sqrt()[:, None] * 2**0.5
        odd = (target[first] - target[first + 1]) / 2
        residual = odd * root - rows @ part.t()
        moved = rows @ self.inverse
        leverage = (moved * rows).sum(1, keepdim=True)
        if bool((leverage > 1 - 1e-9).any()):
            return unknown
        unseen = torch.from_numpy(masks.unseen[first])[:, None]
        scaled = residual / (1 - leverage) * unseen.sqrt()
        spread = (moved**2).t() @ scaled**2
        return spread.sqrt().t().contiguous()


def _inverse(gram: Tensor, centred: bool) -> Tensor:
    """Pseudo-inverse of a Gram matrix; by Cholesky, ten times faster, where it has full rank.

    Centred rows sum to zero, so their Gram matrix lacks the direction of all ones; filling it
    changes nothing for the others.
    """
    if not gram.numel():
        return gram
    if centred:
        size = gram.shape[0]
        filled = gram + gram.diagonal().mean() / size
        factor, failed = torch.linalg.cholesky_ex(filled)
        pivots = factor.diagonal()
        if not int(failed) and float(pivots.min()) > 1e-5 * float(pivots.max()):
            return torch.cholesky_inverse(factor)
    return torch.linalg.pinv(gram, hermitian=True, rtol=1e-11)
