"""Interaction indices: how the effect of a set of players on a game becomes one number.

With f(q) the multilinear extension of a game where every player is there with probability q, and
d_T f its mixed derivative by the players of T, each index here is I(T) = int g(q) d_T f(q) dq. An
index is its density g, through W(x, y) = int g(q) q^x (1 - q)^y dq.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Annotated, ClassVar, Protocol

import numpy as np
from scipy.special import betaln

from graphsvx.core.arrays import Floats, Ids
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


IndexSetting = Annotated[
    Index, Block("an interaction index, such as KSII() or STII()", 4, ("name",))
]
"""An index as a field of settings."""


def _beta(x: Ids, y: Ids | int) -> Floats:
    """int q^x (1 - q)^y dq."""
    integral: Floats = np.exp(betaln(x + 1.0, y + 1.0))
    return integral


@dataclass(frozen=True)
class SII(Checked):
    """Shapley interaction index: g = 1. Sets of one player have their Shapley values."""

    name: ClassVar[str] = "SII"

    def __call__(self, size: int, order: int, inside: Ids, outside: Ids) -> Floats:  # noqa: ARG002  (an index's arguments)
        """x! y! / (x + y + 1)!."""
        return _beta(inside, outside)


@dataclass(frozen=True)
class KSII(SII):
    """k-Shapley values: Shapley interactions, aggregated so that they sum to the prediction.

    The sum over all sets of up to `order` players is prediction - base.
    """

    name: ClassVar[str] = "k-SII"


@dataclass(frozen=True)
class BII(Checked):
    """Banzhaf interaction index: g is a point mass at 1/2."""

    name: ClassVar[str] = "BII"

    def __call__(self, size: int, order: int, inside: Ids, outside: Ids) -> Floats:  # noqa: ARG002  (an index's arguments)
        """2^-(x + y)."""
        return np.exp2(-(np.asarray(inside, dtype=np.float64) + outside))


@dataclass(frozen=True)
class STII(Checked):
    """Shapley-Taylor interaction index: smaller sets at the empty coalition, the rest on top."""

    name: ClassVar[str] = "STII"

    def __call__(self, size: int, order: int, inside: Ids, outside: Ids) -> Floats:
        """k x! (y + k - 1)! / (x + y + k)! for sets of k = `order`; 1 where x = 0 for others."""
        if size < order:
            return (inside == 0).astype(np.float64)
        return order * _beta(inside, outside + order - 1)


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


@cache
def _faithful(size: int, order: int) -> tuple[float, ...]:
    """Coefficients of p: the moments of g are 1, 0, ..., 0 (the index is exact on small sets)."""
    powers: Ids = np.arange(order - size + 1, dtype=np.int64)
    moments = _beta(powers[:, None] + powers + size - 1, size - 1)
    return tuple(np.linalg.solve(moments, (powers == 0).astype(np.float64)))
