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
from sklearn.linear_model import lars_path_gram
from torch import Tensor

from graphsvx.errors import InputError
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
            return _fit(masks, values, empty, phi, torch.zeros_like(phi))
        design = _Design.of(masks)
        gain = full - empty
        target = values - empty - design.share[:, None] * gain
        part = design.solve(target)
        phi = gain[:, None] / max(design.players, 1) + part
        return _fit(masks, values, empty, phi, design.errors(target, part))


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
        weights = torch.from_numpy(np.concatenate([[masks.weights.max(initial=1.0)], masks.weights]))
        lost = full - torch.cat([empty[None], values])
        root = weights.sqrt()[:, None]
        phi = torch.linalg.lstsq(off * root, lost * root, driver="gelsd").solution.t()
        unknown = torch.full_like(phi, torch.nan)
        base = full - phi.sum(1)
        return _fit(masks, values, base, phi, torch.zeros_like(phi) if players <= 1 else unknown)


@dataclass(frozen=True)
class Lasso:
    """Selective: weighted Lasso chooses at most `k` players, WLS refits them.

    The path stops at `k` players (None: at the penalty that a 5-fold validation over rows
    likes best). Efficiency is kept by the refit: the chosen ones carry the whole prediction.
    """

    k: int | None = None

    def __post_init__(self) -> None:
        if self.k is not None and self.k < 1:
            raise InputError(f"k must be at least 1 player, got {self.k}")

    def __call__(self, masks: Masks, values: Tensor, empty: Tensor, full: Tensor) -> Fit:
        """Choose, then refit on the chosen."""
        exact = WLS()(masks, values, empty, full)
        fits = [self._one(masks, values[:, i], empty[i], full[i]) for i in range(values.shape[1])]
        phi = torch.stack(fits) if fits else exact.values
        return _fit(masks, values, empty, phi, torch.full_like(phi, torch.nan))

    def _one(self, masks: Masks, values: Tensor, empty: Tensor, full: Tensor) -> Tensor:
        players = masks.rows.shape[1]
        if players <= 1 or len(masks.rows) == 0:
            return (full - empty).expand(players).clone()
        z, y, w = _float(masks).numpy(), (values - empty).numpy(), masks.weights
        keep = self.k if self.k is not None else _validated_size(z, y, w)
        chosen = _chosen(z, y, w, keep)
        phi = torch.zeros(players, dtype=torch.float64)
        phi[chosen] = _refit(z[:, chosen], y, w, float(full - empty))
        return phi


def _path(z: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    root = np.sqrt(w / w.sum())[:, None]
    a, b = z * root, y * root[:, 0]
    _, _, coefficients = lars_path_gram(a.T @ b, a.T @ a, n_samples=len(b), method="lasso")
    return coefficients


def _chosen(z: np.ndarray, y: np.ndarray, w: np.ndarray, keep: int) -> list[int]:
    """The support of the last point of the path with at most `keep` players."""
    path = _path(z, y, w)
    sizes = (path != 0).sum(0)
    fits = np.flatnonzero((sizes <= keep) & (sizes > 0))
    if len(fits):
        return np.flatnonzero(path[:, fits[-1]]).tolist()
    strongest = np.abs((z * w[:, None]).T @ y).argmax()
    return [int(strongest)]


def _validated_size(z: np.ndarray, y: np.ndarray, w: np.ndarray, folds: int = 5) -> int:
    """How many players predict held-out rows best; the smallest within one standard error."""
    most = min(z.shape[1], max(1, len(y) // 2))
    fold = np.arange(len(y)) % folds
    losses = np.full((folds, most), np.inf)
    for i in range(folds):
        train, test = fold != i, fold == i
        if not test.any() or train.sum() < 2:
            continue
        for size in range(1, most + 1):
            chosen = _chosen(z[train], y[train], w[train], size)
            root = np.sqrt(w[train])[:, None]
            phi = np.linalg.lstsq(z[train][:, chosen] * root, y[train] * root[:, 0], rcond=None)[0]
            losses[i, size - 1] = np.average((z[test][:, chosen] @ phi - y[test]) ** 2, weights=w[test])
    mean, error = losses.mean(0), losses.std(0) / np.sqrt(folds)
    best = int(mean.argmin())
    return int(np.flatnonzero(mean <= mean[best] + error[best])[0]) + 1


def _refit(z: np.ndarray, y: np.ndarray, w: np.ndarray, gain: float) -> Tensor:
    count = z.shape[1]
    share = z.sum(1) / count
    centred = z - share[:, None]
    root = np.sqrt(w)[:, None]
    part = np.linalg.lstsq(centred * root, (y - share * gain) * root[:, 0], rcond=None)[0]
    return torch.from_numpy(gain / count + part)


def _float(masks: Masks) -> Tensor:
    return torch.from_numpy(masks.rows).double()


def _fit(masks: Masks, values: Tensor, base: Tensor, phi: Tensor, errors: Tensor) -> Fit:
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
        inverse = torch.linalg.pinv(gram, hermitian=True, rtol=1e-11) if gram.numel() else gram
        return _Design(masks, players, share, rows, inverse, dual)

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
