"""Cholesky factorisation, triangular solves and inverses, by LAPACK and torch."""

from __future__ import annotations

import numpy as np
import torch
from scipy.linalg import lapack

from graphsvx.core.arrays import Floats


def diagonal(matrix: Floats) -> Floats:
    """Writable view of the diagonal."""
    return np.einsum("ii->i", matrix)


def cholesky(gram: Floats) -> Floats:
    """Lower Cholesky factor, overwriting `gram`; entries above the diagonal are undefined.

    Only the upper half of `gram` is read: LAPACK is column-major, where it is the lower one.
    """
    factor, failed = lapack.dpotrf(gram.T, lower=1, clean=0, overwrite_a=1)
    if failed:
        raise np.linalg.LinAlgError("not positive definite")
    return factor


def solve_lower(factor: Floats, right: Floats) -> Floats:
    """factor^-1 right; torch takes a third of scipy's time."""
    solution = torch.linalg.solve_triangular(
        torch.from_numpy(factor), torch.from_numpy(right), upper=False
    )
    return solution.numpy()


def inverse_from_cholesky(factor: Floats) -> Floats:
    """Inverse of the factorised matrix."""
    # Symmetric, so its transpose, which is in the order of the other matrices, is the same.
    return torch.cholesky_inverse(torch.from_numpy(factor)).numpy().T
