"""What log-odds say of the probabilities of coalitions that were not evaluated.

Few probabilities that are all close to 0 or 1 look alike although their log-odds may differ by
tens, so that another coalition's may well have the other sign. If log-odds are normal, with the
mean and variance of those that were seen, another one has Student's t distribution. Few log-odds
do not tell whether they are: where most coalitions have about the same, and a rare one far lower,
their tail is heavier. So the distribution has fewer degrees of freedom than there are log-odds.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit, logit, stdtrit

from graphsvx.core.arrays import Floats

_QUANTILES = (np.arange(256) + 0.5) / 256
_FREEDOM = 16  # log-odds for one degree of freedom,
_LEAST_FREEDOM = 2  # and not fewer than these
_ROUNDING = 1e-16  # probabilities closer to 1 are 1 in double precision


def expected_square(probabilities: Floats) -> Floats:
    """Mean square of half the difference of two other coalitions' values, [outputs].

    `probabilities` [coalitions, outputs]; values that several coalitions have count once.
    """
    return np.array([_variance(np.unique(column)) / 2 for column in probabilities.T])


def _variance(probabilities: Floats) -> float:
    """Predictive variance of another probability; 0 if all are the same."""
    count = len(probabilities)
    if count < 2:
        return 0.0
    log_odds = logit(probabilities.clip(_ROUNDING, 1 - _ROUNDING))
    spread = log_odds.std(ddof=1) * np.sqrt(1 + 1 / count)
    freedom = min(count - 1, max(_LEAST_FREEDOM, count / _FREEDOM))
    return float(expit(log_odds.mean() + spread * stdtrit(freedom, _QUANTILES)).var())
