"""Cholesky factors of positive definite matrices, and what is done with them."""

from __future__ import annotations

import numpy as np
import torch
from scipy.linalg import lapack

from graphsvx.masks.base import Floats


def diagonal(matrix: Floats) -> Floats:
    """The diagonal, to be written to."""
    return np.einsum("ii->i", matrix)


def factored(gram: Floats) -> Floats:
    """The lower factor, in the place of `gram`; above its diagonal is anything.

    Only the upper half of `gram` is looked at: LAPACK, which works on columns, finds it where it
    looks for the lower one.
    """
    factor, failed = lapack.dpotrf(gram.T, lower=1, clean=0, overwrite_a=1)
    if failed:
        raise np.linalg.LinAlgError("not positive definite")
    return factor


def forward(factor: Floats, right: Floats) -> Floats:
    """factor^-1 right, by torch, which takes a third of the time that scipy takes."""
    found = torch.linalg.solve_triangular(
        torch.from_numpy(factor), torch.from_numpy(right), upper=False
    )
    return found.numpy()


def inverse(factor: Floats) -> Floats:
    """Of the factored matrix."""
    # Symmetric, so its transpose, which is in the order of the other matrices, is the same.
    return torch.cholesky_inverse(torch.from_numpy(factor)).numpy().T
