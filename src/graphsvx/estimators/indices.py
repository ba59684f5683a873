"""Interaction indices: how the effect of a set of players on a game becomes one number.

With f(q) the multilinear extension of a game where every player is there with probability q, and
d_T f its mixed derivative by the players of T, each index here is I(T) = int g(q) d_T f(q) dq: an
index is its density g.
"""

from __future__ import annotations

from dataclasses import dataclass
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

    def __call__(self, size: int, order: int) -> Density:
        """g for sets of `size` players where sets have up to `order`."""
        ...


IndexSetting = Annotated[
    Index, Block("an interaction index, such as KSII() or STII()", 2, ("name",))
]
"""An index as a field of settings."""


class Quadrature(NamedTuple):
    """int g(q) f(q) dq = sum of weights * f(nodes)."""

    nodes: Floats
    weights: Floats


@dataclass(frozen=True)
class Density:
    """g: a polynomial, point masses, and the change of a function's slope from 0 to 1."""

    powers: tuple[tuple[float, int, int], ...] = ()
    """(c, a, b) for each term c q^a (1 - q)^b."""
    points: tuple[tuple[float, float], ...] = ()
    """(q, mass)."""
    slope: float = 0.0
    """Times f'(1) - f'(0)."""

    def of_states(self, inside: Ids, outside: Ids) -> Floats:
        """int g(q) q^inside (1 - q)^outside dq: weights of states in which so many are fixed."""
        weights = np.zeros(np.broadcast(inside, outside).shape)
        for factor, a, b in self.powers:
            weights += factor * _beta(inside + a, outside + b)
        for q, mass in self.points:
            weights += mass * q**inside * (1 - q) ** outside
        at_full = np.where(outside == 0, inside, 0) - (outside == 1)
        at_empty = (inside == 1) - np.where(inside == 0, outside, 0)
        weights += self.slope * (at_full - at_empty)
        return weights

    def quadrature(self) -> Quadrature:
        """Exact up to rounding for products of up to 64 factors that are linear in q."""
        x, w = roots_legendre(NODES)
        q = (x + 1) / 2
        density = sum((c * q**a * (1 - q) ** b for c, a, b in self.powers), 0 * q)
        rules = [(q, density * w / 2), np.array(self.points).reshape(-1, 2).T]
        degrees = np.arange(2 * NODES + 1)  # as many as the quadrature integrates
        nodes = np.cos(np.pi * degrees / degrees[-1])
        # On [-1, 1] the Chebyshev polynomial of degree k has the slopes k^2 and -(-1)^k k^2.
        slopes = 2 * self.slope * degrees**2 * (1 + (-1.0) ** degrees)
        chebyshev = np.polynomial.chebyshev.chebvander(nodes, degrees[-1])
        rules.append(((1 + nodes) / 2, np.linalg.solve(chebyshev.T, slopes)))
        nodes, weights = (np.concatenate(parts) for parts in zip(*rules, strict=True))
        return Quadrature(nodes[weights != 0], weights[weights != 0])


def _beta(x: Ids, y: Ids | int) -> Floats:
    """int q^x (1 - q)^y dq."""
    integral: Floats = np.exp(betaln(x + 1.0, y + 1.0))
    return integral


@dataclass(frozen=True)
class SII(Checked):
    """Shapley interaction index: g = 1. Sets of one player have their Shapley values."""

    name: ClassVar[str] = "SII"

    def __call__(self, size: int, order: int) -> Density:  # noqa: ARG002  (an index's arguments)
        """g = 1."""
        return Density(powers=((1, 0, 0),))


@dataclass(frozen=True)
class KSII(Checked):
    """k-Shapley values: Shapley interactions, aggregated so that they sum to the prediction.

    The sum over all sets of up to `order` players is prediction - base.
    """

    name: ClassVar[str] = "k-SII"

    def __call__(self, size: int, order: int) -> Density:
        """SII and what larger sets add, by the ends: sums over them are derivatives in q.

        The sum of SII(S + T) over all T of t players is int (d/dq)^t d_S f dq / t!.
        """
        ends = ((0.0, 0.5), (1.0, -0.5)) if order > size else ()
        return Density(((1, 0, 0),), ends, 1 / 12 if order > size + 1 else 0.0)


@dataclass(frozen=True)
class BII(Checked):
    """Banzhaf interaction index: g is a point mass at 1/2."""

    name: ClassVar[str] = "BII"

    def __call__(self, size: int, order: int) -> Density:  # noqa: ARG002  (an index's arguments)
        """A point mass at 1/2."""
        return Density(points=((0.5, 1.0),))


@dataclass(frozen=True)
class STII(Checked):
    """Shapley-Taylor interaction index: smaller sets at the empty coalition, the rest on top."""

    name: ClassVar[str] = "STII"

    def __call__(self, size: int, order: int) -> Density:
        """k (1 - q)^(k - 1) for sets of k = `order`; a point mass at 0 for others."""
        if size < order:
            return Density(points=((0.0, 1.0),))
        return Density(powers=((order, 0, order - 1),))


@dataclass(frozen=True)
class FSII(Checked):
    """Faithful Shapley interaction index: the best fit of the game by sets of up to `order`."""

    name: ClassVar[str] = "FSII"

    def __call__(self, size: int, order: int) -> Density:
        """g = (q (1 - q))^(size - 1) p(q), p of degree order - size.

        Its moments are 1, 0, ..., 0: the index is exact on small sets.
        """
        powers, low = np.arange(order - size + 1, dtype=np.int64), size - 1
        moments = _beta(powers[:, None] + powers + low, low)
        factors = np.linalg.solve(moments, (powers == 0).astype(np.float64))
        return Density(tuple((c, low + k, low) for k, c in enumerate(factors.tolist())))
