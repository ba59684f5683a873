"""Control variates: sines of weighted sums of players, trained on a game by Adam.

With z = +1 for members and -1 for others, a wave sin(a . z) is odd and a product over players, so
that its Shapley values are integrals of polynomials, in closed form. A sum of waves is a neural
network with one hidden layer: it learns which players matter together, near each other or not,
and with how many others.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
import torch
from numpy.typing import NDArray

from graphsvx.core.arrays import Bools, Floats

Singles = NDArray[np.float32]

WAVES = 64
"""Number of waves."""
_BATCH = 256  # pairs of a step of training
_STEPS = 800  # at most,
_EPOCHS = 12  # and passes through the pairs at most
_RATE = 0.03
_SPREAD, _AMPLITUDE = 0.8, 0.1  # of a . z and of a wave, before training
_MOMENTUM, _SQUARES = 0.9, 0.99  # decay of the moments of Adam
_EVEN = 0.5  # weight of sums beside differences
_BLOCK = 1 << 12  # coalitions whose waves stay in the cache


@dataclass(frozen=True, eq=False)
class Waves:
    """g(S) = sum of c sin(a . z) over waves: an odd game."""

    directions: Singles
    """a: [M, waves]."""
    amplitudes: Singles
    """c: [waves, outputs]."""

    def at(self, members: Bools) -> Floats:
        """g at coalitions, [coalitions, outputs]."""
        values = np.empty((len(members), self.amplitudes.shape[1]))
        for first in range(0, len(members), _BLOCK):
            waves = signs_of(members[first : first + _BLOCK]) @ self.directions
            values[first : first + _BLOCK] = np.sin(waves, out=waves) @ self.amplitudes
        return values

    def at_full(self) -> Floats:
        """g at the full coalition, [outputs]."""
        waves: Floats = np.sin(self.directions.astype(np.float64).sum(0))
        return waves @ self.amplitudes.astype(np.float64)

    def credit(self) -> Floats:
        """Shapley values of g, [outputs, M].

        If each player is on with probability q and t = 2 q - 1, exp(i a_j z_j) has the mean
        cos a_j + i t sin a_j; player j turns exp(-i a_j) into exp(i a_j). The product over the
        others is a polynomial in t of degree M - 1, which Gauss-Legendre nodes integrate exactly;
        -t gives the conjugate.
        """
        angles = self.directions.T.astype(np.float64)
        cosines, sines = np.cos(angles), np.sin(angles)
        players = angles.shape[1]
        nodes, weights = np.polynomial.legendre.leggauss(max(2, (players + 1) // 2))
        total = np.zeros_like(angles)
        for node, weight in zip(nodes, weights, strict=True):
            if node < -1e-12:
                continue
            factors = cosines + 1j * node * sines
            others = np.ones_like(factors)
            others[:, 1:] = np.cumprod(factors[:, :-1], 1)
            others[:, :-1] *= np.cumprod(factors[:, :0:-1], 1)[:, ::-1]
            total += (weight if node < 1e-12 else 2 * weight) * others.real
        credit: Floats = self.amplitudes.T.astype(np.float64) @ (total * sines)
        return credit


def train_waves(signs: Singles, odd: Singles, even: Singles) -> list[Waves]:
    """Waves for each of some sets of pairs, trained together.

    `signs` [sets, pairs, M]; `odd` and `even` [sets, pairs, outputs] are half the differences and
    half the sums of values. Cosines of the same weighted sums are fitted to sums: they have no
    credit, but players that matter together do so in sums and differences, and waves that explain
    both are learnt from fewer pairs. Sizes are drawn by the root of the kernel mass, so that
    squared residuals of all pairs count the same in the variance of credit. Adam, with a rate that
    falls to 0.
    """
    sets, pairs, players = signs.shape
    outputs = odd.shape[2]
    rng = np.random.default_rng(0)
    shape = (sets, players + 2 * outputs, WAVES)
    parameters = rng.standard_normal(shape, dtype=np.float32)
    directions, amplitudes, of_cosines = np.split(parameters, [players, players + outputs], axis=1)
    directions *= _SPREAD / sqrt(players)
    parameters[:, players:] *= _AMPLITUDE
    scale = _root_mean_square(odd)
    odd, even = odd / scale, even / _root_mean_square(even)
    batches = max(1, pairs // _BATCH)
    steps = min(_STEPS, _EPOCHS * batches)
    adam = _Adam.of(parameters)
    gradients = np.split(adam.gradient, [players, players + outputs], axis=1)
    # Arrays are used again: new ones of this size come from the system, page by page.
    angles, sines, cosines, product = np.empty((4, sets, min(_BATCH, pairs), WAVES), np.float32)
    for step in range(steps):
        # Draws are independent: in their order, they need no shuffling.
        first = step % batches * _BATCH
        part = slice(first, first + _BATCH)
        inputs = signs[:, part]
        np.matmul(inputs, directions, out=angles)
        np.sin(angles, out=sines)
        np.cos(angles, out=cosines)
        missed = sines @ amplitudes.transpose(0, 2, 1) - odd[:, part]
        missed_even = cosines @ of_cosines.transpose(0, 2, 1) - even[:, part]
        missed_even *= np.float32(_EVEN)
        np.matmul(missed.transpose(0, 2, 1), sines, out=gradients[1])
        np.matmul(missed_even.transpose(0, 2, 1), cosines, out=gradients[2])
        cosines *= _spread_over_waves(missed, amplitudes, product)
        sines *= _spread_over_waves(missed_even, of_cosines, product)
        cosines -= sines
        np.matmul(inputs.transpose(0, 2, 1), cosines, out=gradients[0])
        adam.move(step, _RATE * (1 - step / steps), missed.shape[1])
    return [
        Waves(directions[i].copy(), np.ascontiguousarray(amplitudes[i].T * scale[i]))
        for i in range(sets)
    ]


def _root_mean_square(values: Singles) -> Singles:
    """Over the pairs of each set."""
    root: Singles = np.sqrt(np.mean(values**2, axis=1, keepdims=True)) + np.float32(1e-30)
    return root


def _spread_over_waves(missed: Singles, amplitudes: Singles, out: Singles) -> Singles:
    """Products of residuals and amplitudes, summed over outputs: [sets, pairs, waves]."""
    if missed.shape[2] > 1:
        return np.matmul(missed, amplitudes, out=out)
    # A product of matrices is slow if there is nothing to sum, and so are short rows in numpy.
    torch.mul(*(torch.from_numpy(part) for part in (missed, amplitudes)), out=torch.from_numpy(out))
    return out


@dataclass(frozen=True, eq=False)
class _Adam:
    """The optimiser, which changes parameters in place."""

    parameters: Singles
    gradient: Singles
    first: Singles
    second: Singles
    """Moments of the gradient."""

    @staticmethod
    def of(parameters: Singles) -> _Adam:
        zeros = [np.zeros_like(parameters) for _ in range(3)]
        return _Adam(parameters, *zeros)

    def move(self, step: int, rate: float, pairs: int) -> None:
        """A step along the gradient, a sum over pairs, which is overwritten."""
        gradient, first, second = self.gradient, self.first, self.second
        gradient *= np.float32(1 / pairs)
        first *= np.float32(_MOMENTUM)
        first += np.float32(1 - _MOMENTUM) * gradient
        second *= np.float32(_SQUARES)
        np.square(gradient, out=gradient)
        gradient *= np.float32(1 - _SQUARES)
        second += gradient
        np.sqrt(second, out=gradient)
        gradient *= np.float32(1 / sqrt(1 - _SQUARES ** (step + 1)))
        gradient += np.float32(1e-8)
        np.divide(first, gradient, out=gradient)
        gradient *= np.float32(rate / (1 - _MOMENTUM ** (step + 1)))
        np.subtract(self.parameters, gradient, out=self.parameters)


def signs_of(members: Bools) -> Singles:
    """z: +1 for members, -1 for others."""
    signs = members.astype(np.float32)
    signs *= 2
    signs -= 1
    return signs
