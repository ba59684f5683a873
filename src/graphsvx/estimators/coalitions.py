"""Coalitions of a game, one of each pair, with what covariances are made of (`kernels`)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import gammaln

from graphsvx.core.arrays import Bools, Floats, Ids
from graphsvx.utils.components import components

_NOISE_POWER = 1.5  # what a mean of k messages leaves unexplained falls about so fast with k


@dataclass(frozen=True, eq=False)
class Coalitions:
    """One coalition of each pair, with what the kernels need of it; the full one may be there."""

    signs: Floats
    """[pairs, M]."""
    inner: Floats
    """1, or 0 for the full coalition, [pairs]."""
    direct: Ids
    """The m players that slopes per size are about."""
    combined: int | None
    """m; None if it is not known that messages are combined."""
    direct_centred: Floats
    """Membership of the direct players less its mean, [pairs, m]."""
    slope: Floats
    """Slopes that fall with the number of direct members, [pairs]."""
    mean_slope: float
    """Mean of `slope` over all numbers: the Shapley value of such a slope."""
    sizes: Floats
    """Odd functions of sizes, [pairs, functions]."""
    alone: Floats
    """Credit of a member (less the mean) for a value 1 at this pair alone, [pairs]."""
    noise: Floats
    """Relative variance of the white part, [pairs]: small coalitions vary more, if messages are
    combined."""
    units: tuple[float, float]
    """What slopes and functions of sizes were divided by."""

    @staticmethod
    def of(
        signs: Floats, direct: Bools | None = None, units: tuple[float, float] | None = None
    ) -> Coalitions:
        """`direct` [M]: players whose messages the explained node combines; None: all of them.

        Without `units`, slopes and functions of sizes are scaled to a mean square of 1.
        """
        players = signs.shape[1]
        size = (signs.sum(1) + players) / 2
        inner = (size > 0) & (size < players)
        combined = np.arange(players)
        if direct is not None and np.count_nonzero(direct) > 1:
            combined = np.flatnonzero(direct)
        direct_signs = signs[:, combined]
        slope, mean_slope = _falling_slopes(direct_signs)
        centred = (direct_signs - direct_signs.mean(1, keepdims=True)) / 2
        sizes = _size_functions(signs, direct_signs, combined)
        if not components().size_functions:
            sizes *= 0.0
        if units is None:
            steep = slope[:, None] * centred
            units = _root_mean_square(steep, slope > 0), _root_mean_square(sizes, inner)
        between = np.where(inner, size * (players - size), 1)
        alone = np.where(inner, 2 * players * np.exp(-_log_count(players, size)) / between, 0)
        count = None if direct is None else len(combined)
        noise = _noise(size, players, count)
        if len(combined) < players:
            # With none or all of the direct players, only the others can make a difference.
            share = size / players
            noise[slope == 0] *= np.minimum(1, 8 * share * (1 - share))[slope == 0]
        return Coalitions(
            signs, inner.astype(np.float64), combined, count, centred, slope / units[0],
            mean_slope / units[0], sizes / units[1], alone, noise, units,
        )  # fmt: skip

    def others(self, signs: Floats) -> Coalitions:
        """Other coalitions of the same players, in the same units."""
        direct = None
        if self.combined is not None:
            direct = np.zeros(self.players, dtype=bool)
            direct[self.direct] = True
        return Coalitions.of(signs, direct, self.units)

    def __len__(self) -> int:
        return len(self.signs)

    @property
    def players(self) -> int:
        """M."""
        return self.signs.shape[1]

    def take(self, index: Ids) -> Coalitions:
        """The coalitions at these positions, in the same units."""
        by_pair = ("signs", "inner", "direct_centred", "slope", "sizes", "alone", "noise")
        return replace(self, **{name: vars(self)[name][index] for name in by_pair})


def _falling_slopes(signs: Floats) -> tuple[Floats, float]:
    """1 / min(k, m - k) for each pair (0 at both ends), and the mean of all k between."""
    players = signs.shape[1]
    size = (signs.sum(1) + players) / 2
    inner = (size > 0) & (size < players)
    slope = inner / np.where(inner, np.minimum(size, players - size), 1)
    sizes = np.arange(1, players)
    return slope, float((1 / np.minimum(sizes, players - sizes)).mean()) if players > 1 else 0.0


def _size_functions(signs: Floats, direct_signs: Floats, combined: Ids) -> Floats:
    """Odd functions of the shares of all, direct and other members that vanish at both ends."""
    shares = [signs.mean(1)]
    functions: list[Floats] = []
    if 0 < len(combined) < signs.shape[1]:
        shares += [direct_signs.mean(1), np.delete(signs, combined, 1).mean(1)]
        # A jump: without any direct member the others have no influence.
        functions.append(shares[1] * (np.abs(shares[1]) < 1))
    for x in shares:
        cube = x * x * x
        functions += [cube - x, cube * x * x - x, cube * cube * x - cube]
    return np.stack(functions, 1)


def _noise(size: Floats, players: int, combined: int | None) -> Floats:
    """Variances of the white part by size: the fewer are combined, the more each matters."""
    if combined is None or not components().noise_by_size:
        return np.ones_like(size)
    smaller = np.minimum(size, players - size) * (combined / players)
    variance: Floats = 2 / (1 + smaller) ** _NOISE_POWER
    return variance


def _root_mean_square(rows: Floats, inner: Bools) -> float:
    mean = float(np.sqrt((rows[inner] ** 2).sum(1).mean())) if inner.any() else 0.0
    return mean or 1.0


def _log_count(players: int, size: Floats) -> Floats:
    """Logarithm of the number of coalitions of a size."""
    log_count: Floats = gammaln(players + 1.0) - gammaln(size + 1) - gammaln(players - size + 1)
    return log_count


def white_prior(players: int, combined: int | None) -> float:
    """Variance of every Shapley value of a white game (at most: its noise depends on more)."""
    size = np.arange(1.0, players // 2 + 1)
    per_size = 4 * np.exp(-_log_count(players, size)) / (size * (players - size))
    if players % 2 == 0:
        per_size[-1] /= 2  # a coalition and its complement have the same size: half as many pairs
    return float((per_size * _noise(size, players, combined)).sum())
