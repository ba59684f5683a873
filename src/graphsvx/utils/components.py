"""Components of the default estimator that can be switched off, to measure what each is worth."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class Components:
    """What takes part in an estimate; `bench ablate` switches one off at a time."""

    walk_prior: bool = True
    """Relevance of players by random walks."""
    product: bool = True
    """Interactions in the covariance."""
    size_functions: bool = True
    """Odd functions of the size of coalitions in the covariance."""
    noise_by_size: bool = True
    """More white noise at small coalitions."""
    per_size: bool = True
    """Slopes that fall with the size of coalitions in the covariance."""
    averaging: bool = True
    """Several processes, weighted by their likelihood."""
    residuals: bool = True
    """Correction of a process by the pairs that it has not seen."""
    logits: bool = True
    """A regression of logits beside the process."""
    derivatives: bool = True
    """Credit of far players by derivatives."""
    differences: bool = True
    """Means of marginal contributions."""
    waves: bool = True
    """Sines of sums of players as control variates of look-ups."""


_ALL = Components()
_used: ContextVar[Components] = ContextVar("components", default=_ALL)


def components() -> Components:
    """Those that are switched on."""
    return _used.get()


@contextmanager
def only(parts: Components) -> Iterator[None]:
    """Estimates in this block use these components."""
    token = _used.set(parts)
    try:
        yield
    finally:
        _used.reset(token)
