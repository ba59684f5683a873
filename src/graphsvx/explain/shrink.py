"""Least squares with too few rows: pull everybody towards an equal share, by as much as pays.

With about as many players as pairs of coalitions, plain least squares interpolates noise. Ridge
regression of the zero-sum part shrinks it towards 0, that is, credit towards an equal share, and
generalised cross-validation says how far. Its Bayesian reading gives the error bars: what the
pairs leave open of players that differ from each other as much as the values say.
"""

from __future__ import annotations

import numpy as np
import torch

from graphsvx.masks.base import Floats, Masks

_GRID = np.logspace(-6, 1, 29)  # penalties, as multiples of the largest eigenvalue


def scarce(masks: Masks) -> bool:
    """Whether these are drawn pairs, and too few of them for plain least squares."""
    players = masks.rows.shape[1]
    return masks.pair is not None and not masks.exact and len(masks.rows) < 4 * (players - 1)


def shrunk(centred: Floats, target: Floats) -> tuple[Floats, Floats]:
    """The zero-sum part of phi and its standard errors, [outputs, M] each.

    `centred` [pairs, M] are coalitions, one of each pair, and `target` [pairs, outputs] what is
    left to explain once everybody has an equal share; both are weighted.
    """
    rows, y = torch.from_numpy(centred), torch.from_numpy(target)
    players = rows.shape[1]
    count = len(rows)
    eigenvalues, vectors = torch.linalg.eigh(rows @ rows.t())
    eigenvalues = eigenvalues.clamp(min=0)
    along = vectors.t() @ y
    penalties = torch.from_numpy(_GRID) * eigenvalues[-1]
    kept = penalties[:, None] / (eigenvalues + penalties[:, None])
    missed = torch.einsum("pk,ko->po", kept**2, along**2)
    validated = missed / kept.sum(1, keepdim=True).clamp(min=1e-9) ** 2
    penalty = penalties[validated.argmin(0)]
    weights = along / (eigenvalues[:, None] + penalty)
    sides = vectors.t() @ rows
    part = (sides.t() @ weights).t()
    spread = (along * weights).sum(0) / count
    explained = torch.stack([(sides**2 / (eigenvalues + one)[:, None]).sum(0) for one in penalty])
    left = (1 - 1 / players - explained).clamp(min=1e-9)
    return part.numpy(), (spread[:, None] * left).sqrt().numpy()
