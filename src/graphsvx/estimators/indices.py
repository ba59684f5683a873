"""Interaction indices: how the effect of a set of players on a game becomes one number.

With f(q) the multilinear extension of a game where every player is there with probability q, and
d_T f its mixed derivative by the players of T, each index here is I(T) = int g(q) d_T f(q) dq. An
index is its density g, through W(x, y) = int g(q) q^x (1 - q)^y dq, or through a quadrature rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Annotated, ClassVar, NamedTuple, Protocol

import numpy as np
from scipy.special import betaln, roots_legendre

from graphsvx.core.arrays import Floats, Ids
from graphsvx.estimators.covariance import NODES
from graphsvx.utils.constraints import Block, Checked


class Index(Protocol):
    """An interaction index."""

    @property
    def name(self) -> str:
        """Its name in the literature, as shapiq spells it."""
        ...

    def __call__(self, size: int, order: int, inside: Ids, outside: Ids) -> Floats:
        """W(inside, outside) of sets of `size` players where sets have up to `order`."""
        ...

    def quadrature(self, size: int, order: int) -> Quadrature:
        """int g(q) f(q) dq as a weighted sum; needed where a game is not played exactly."""
        ...


class Quadrature(NamedTuple):
    """int g(q) f(q) dq = sum of weights * f(nodes)."""

    nodes: Floats
    weights: Floats


IndexSetting = Annotated[
    Index, Block("an interaction index, such as KSII() or STII()", 4, ("name",))
]
"""An index as a field of settings."""


def _beta(x: Ids, y: Ids | int) -> Floats:
    """int q^x (1 - q)^y dq."""
    integral: Floats = np.exp(betaln(x + 1.0, y + 1.0))
    return integral


def _legendre() -> Quadrature:
    """g = 1. Exact up to rounding for products of up to 64 factors that are linear in q."""
    nodes, weights = roots_legendre(NODES)
    return Quadrature((nodes + 1) / 2, weights / 2)


def _at(*masses: tuple[float, float]) -> Quadrature:
    """Point masses: nodes and their weights."""
    nodes, weights = np.array(masses, dtype=np.float64).T
    return Quadrature(nodes, weights)


def _change_of_slope(factor: float) -> Quadrature:
    """factor (f'(1) - f'(0)). Exact up to rounding for products as those of `_legendre`."""
    degrees = np.arange(2 * NODES + 1)  # as many as the quadrature integrates
    nodes = np.cos(np.pi * degrees / degrees[-1])
    # On [-1, 1] the Chebyshev polynomial of degree k has the slopes k^2 and -(-1)^k k^2.
    slopes = degrees**2 * (1 + (-1.0) ** degrees)
    weights = np.linalg.solve(np.polynomial.chebyshev.chebvander(nodes, degrees[-1]).T, slopes)
    return Quadrature((1 + nodes) / 2, 2 * factor * weights)


@dataclass(frozen=True)
class SII(Checked):
    """Shapley interaction index: g = 1. Sets of one player have their Shapley values."""

    name: ClassVar[str] = "SII"

    def __call__(self, size: int, order: int, inside: Ids, outside: Ids) -> Floats:  # noqa: ARG002  (an index's arguments)
        """x! y! / (x + y + 1)!."""
        return _beta(inside, outside)

    def quadrature(self, size: int, order: int) -> Quadrature:  # noqa: ARG002  (an index's arguments)
        """g = 1."""
        return _legendre()


@dataclass(frozen=True)
class KSII(SII):
    """k-Shapley values: Shapley interactions, aggregated so that they sum to the prediction.

    The sum over all sets of up to `order` players is prediction - base.
    """

    name: ClassVar[str] = "k-SII"

    def __call__(self, size: int, order: int, inside: Ids, outside: Ids) -> Floats:
        """SII's weights and those of what larger sets add, by the ends: see `quadrature`."""
        weights, none, full = (
            super().__call__(size, order, inside, outside),
            inside == 0,
            outside == 0,
        )
        if order > size:
            weights += (none * 1.0 - full) / 2
        if order > size + 1:
            at_full = full * inside - (outside == 1)
            weights += (at_full + none * outside - (inside == 1)) / 12
        return weights

    def quadrature(self, size: int, order: int) -> Quadrature:
        """SII and what larger sets add, by the ends: sums over them are derivatives in q.

        The sum of SII(S + T) over all T of t players is int (d/dq)^t d_S f dq / t!.
        """
        rules = [super().quadrature(size, order)]
        if order > size:
            rules.append(_at((0.0, 0.5), (1.0, -0.5)))
        if order > size + 1:
            rules.append(_change_of_slope(1 / 12))
        return Quadrature(*(np.concatenate(parts) for parts in zip(*rules, strict=True)))


@dataclass(frozen=True)
class BII(Checked):
    """Banzhaf interaction index: g is a point mass at 1/2."""

    name: ClassVar[str] = "BII"

    def __call__(self, size: int, order: int, inside: Ids, outside: Ids) -> Floats:  # noqa: ARG002  (an index's arguments)
        """2^-(x + y)."""
        return np.exp2(-(np.asarray(inside, dtype=np.float64) + outside))

    def quadrature(self, size: int, order: int) -> Quadrature:  # noqa: ARG002  (an index's arguments)
        """A point mass at 1/2."""
        return _at((0.5, 1.0))


@dataclass(frozen=True)
class STII(Checked):
    """Shapley-Taylor interaction index: smaller sets at the empty coalition, the rest on top."""

    name: ClassVar[str] = "STII"

    def __call__(self, size: int, order: int, inside: Ids, outside: Ids) -> Floats:
        """k x! (y + k - 1)! / (x + y + k)! for sets of k = `order`; 1 where x = 0 for others."""
        if size < order:
            return (inside == 0).astype(np.float64)
        return order * _beta(inside, outside + order - 1)

    def quadrature(self, size: int, order: int) -> Quadrature:
        """k (1 - q)^(k - 1) for sets of k = `order`; a point mass at 0 for others."""
        if size < order:
            return _at((0.0, 1.0))
        nodes, weights = _legendre()
        return Quadrature(nodes, weights * order * (1 - nodes) ** (order - 1))


@dataclass(frozen=True)
class FSII(Checked):
    """Faithful Shapley interaction index: the best fit of the game by sets of up to `order`."""

    name: ClassVar[str] = "FSII"

    def __call__(self, size: int, order: int, inside: Ids, outside: Ids) -> Floats:
        """g = (q (1 - q))^(size - 1) p(q), p of degree order - size."""
        low, weights = size - 1, np.zeros(np.broadcast(inside, outside).shape)
        for power, factor in enumerate(_faithful(size, order)):
            weights += factor * _beta(inside + low + power, outside + low)
        return weights

    def quadrature(self, size: int, order: int) -> Quadrature:
        """g at the nodes."""
        nodes, weights = _legendre()
        polynomial = np.polynomial.Polynomial(_faithful(size, order))(nodes)
        return Quadrature(nodes, weights * (nodes * (1 - nodes)) ** (size - 1) * polynomial)


@cache
def _faithful(size: int, order: int) -> tuple[float, ...]:
    """Coefficients of p: the moments of g are 1, 0, ..., 0 (the index is exact on small sets)."""
    powers: Ids = np.arange(order - size + 1, dtype=np.int64)
    moments = _beta(powers[:, None] + powers + size - 1, size - 1)
    return tuple(np.linalg.solve(moments, (powers == 0).astype(np.float64)))
