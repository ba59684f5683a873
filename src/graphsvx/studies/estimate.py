"""Means with 95 % intervals, for figures that come from several seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isnan, nan
from typing import Any

import numpy as np
from scipy.stats import t


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval, and what it rests on.

    With several seeds, each with a graph and a model of its own, the interval is Student's over
    the means of the seeds: it says what another seed would give. With one seed it is over its
    samples, and says nothing about other graphs.
    """

    mean: float
    low: float
    high: float
    count: int
    """Samples: explanations, mostly."""
    seeds: int

    @classmethod
    def of(cls, groups: Sequence[Sequence[float]]) -> Estimate:
        """From the samples of each seed; samples that are NaN do not count."""
        kept = [[one for one in group if not isnan(one)] for group in groups]
        kept = [group for group in kept if group]
        count = sum(map(len, kept))
        if not kept:
            return cls(nan, nan, nan, 0, 0)
        points = [float(np.mean(group)) for group in kept] if len(kept) > 1 else kept[0]
        centre = float(np.mean(points))
        if len(points) < 2:
            return cls(centre, nan, nan, count, len(kept))
        spread = float(np.std(points, ddof=1)) / len(points) ** 0.5
        reach = float(t.ppf(0.975, len(points) - 1)) * spread
        return cls(centre, centre - reach, centre + reach, count, len(kept))

    @property
    def reach(self) -> float:
        """Half the width of the interval; NaN if it is not known."""
        return (self.high - self.low) / 2

    def text(self, digits: int = 2) -> str:
        """`0.97 ± 0.02`."""
        if isnan(self.mean):
            return "-"
        shown = f"{self.mean:.{digits}f}"
        return shown if isnan(self.reach) else f"{shown} ± {self.reach:.{digits}f}"

    def to_json(self) -> dict[str, Any]:
        """As plain values; None for what is not known."""
        return {
            name: None if isinstance(value, float) and isnan(value) else value
            for name, value in asdict(self).items()
        }
