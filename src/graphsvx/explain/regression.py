"""The surrogate g: weighted linear regressions of values on coalitions (Eq. 3).

All in float64 and for all explained outputs at once. With z centred to z - |z| / M the
efficiency constraint is met by construction: credit is an equal share for everybody plus a part
that sums to zero. Where rows are too few to tell players apart, that part has the least norm.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from graphsvx.explain.shrink import scarce, shrunk
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
        gain = full - empty
        if scarce(masks):
            players = masks.rows.shape[1]
            share = torch.from_numpy(masks.rows.sum(1)).double() / players
            part, errors = shrunk(masks, values - empty - share[:, None] * gain)
            return surrogate(masks, values, empty, gain[:, None] / players + part, errors)
        design = _Design.of(masks)
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


def _blocks(masks: Masks) -> Iterator[slice]:
    """Players in blocks: 1,000 rows of 20,000 players would take 160 MB at once."""
    step = max(1, (1 << 22) // max(1, len(masks.rows)))
    for first in range(0, masks.rows.shape[1], step):
        yield slice(first, first + step)


def _times(masks: Masks, right: Tensor) -> Tensor:
    """z @ right."""
    total = torch.zeros(len(masks.rows), right.shape[1], dtype=torch.float64)
    for part in _blocks(masks):
        total += torch.from_numpy(masks.rows[:, part]).double() @ right[part]
    return total


def surrogate(masks: Masks, values: Tensor, base: Tensor, phi: Tensor, errors: Tensor) -> Fit:
    """Credit as a fit, with the weighted R² of g on the rows."""
    weights = torch.from_numpy(masks.weights)[:, None]
    total = weights.sum()
    if len(values) == 0 or total <= 0:
        return Fit(phi, errors, base, torch.ones_like(base))
    fitted = base + _times(masks, phi.t())
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
    root: Tensor
    """Square roots of the weights, [rows, 1]."""
    rows: Tensor
    """[rows, M]; empty if there are fewer rows than players."""
    inverse: Tensor
    """Pseudo-inverse of rows' W rows (or of the rows' own products, if they are fewer)."""
    dual: bool

    @staticmethod
    def of(masks: Masks) -> _Design:
        count, players = masks.rows.shape
        share = torch.from_numpy(masks.rows.sum(1)).double() / max(players, 1)
        root = torch.from_numpy(masks.weights).sqrt()[:, None]
        dual = count < players
        rows = torch.zeros(0, players, dtype=torch.float64)
        if dual:
            gram = torch.zeros(count, count, dtype=torch.float64)
            for part in _blocks(masks):
                some = _centred(masks, share, root, part)
                gram += some @ some.t()
        else:
            rows = _centred(masks, share, root, slice(None))
            gram = rows.t() @ rows
        inverse = _inverse(gram, centred=not dual)
        return _Design(masks, players, share, root, rows, inverse, dual)

    def solve(self, target: Tensor) -> Tensor:
        """The zero-sum part of phi, [outputs, M]."""
        y = target * self.root
        if not self.dual:
            return (self.inverse @ (self.rows.t() @ y)).t()
        inner = self.inverse @ y
        parts = [
            _centred(self.masks, self.share, self.root, part).t() @ inner
            for part in _blocks(self.masks)
        ]
        return torch.cat(parts).t()

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


def _centred(masks: Masks, share: Tensor, root: Tensor, part: slice) -> Tensor:
    return (torch.from_numpy(masks.rows[:, part]).double() - share[:, None]) * root


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
