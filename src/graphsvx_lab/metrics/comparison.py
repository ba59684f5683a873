"""Means over seeds with 95 % intervals, and paired tests between methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

MIN_SEEDS = 4
"""With fewer seeds an estimate shows their values and has no interval."""
SIGNIFICANT, ROUNDING = 0.05, 1e-12
"""Level of the tests; half widths below are rounding errors of equal figures."""
Statistic = Callable[[Sequence[float]], float]


@dataclass(frozen=True)
class Estimate:
    """The figures of independent seeds: their mean, and Student's 95 % interval for it.

    Each seed has a graph (or split), a model and explanations of its own; questions of one seed
    share all of these, so the interval is over seeds and says what another seed would give.
    """

    by_seed: tuple[float, ...]

    @property
    def seeds(self) -> int:
        """Number of seeds with a figure."""
        return len(self.by_seed)

    @property
    def mean(self) -> float:
        """Mean over seeds; NaN if there is none."""
        return float(np.mean(self.by_seed)) if self.by_seed else nan

    @property
    def interval(self) -> tuple[float, float] | None:
        """Student's 95 % interval over seeds; None below `MIN_SEEDS`."""
        if self.seeds < MIN_SEEDS:
            return None
        standard_error = float(np.std(self.by_seed, ddof=1)) / self.seeds**0.5
        half_width = float(stats.t.ppf(0.975, self.seeds - 1)) * standard_error
        return self.mean - half_width, self.mean + half_width

    @property
    def band(self) -> tuple[float, float, float]:
        """Mean, low and high end; without an interval the smallest and the largest seed."""
        return (self.mean, *(self.interval or (min(self.by_seed), max(self.by_seed))))

    def text(self, digits: int = 2) -> str:
        """`0.97 ± 0.02`, or the seeds' values where they are too few for an interval."""
        if self.interval is None:
            return ", ".join(number(value, digits) for value in self.by_seed) or "-"
        half_width = (self.interval[1] - self.interval[0]) / 2
        mean = number(self.mean, digits)
        return f"{mean} ± {number(half_width, digits)}" if half_width > ROUNDING else mean


def over_seeds(groups: Iterable[tuple[int, float]]) -> Estimate:
    """An estimate from (seed, figure) of each group: the mean of each seed, without NaN."""
    figures: dict[int, list[float]] = {}
    for seed, figure in groups:
        if not isnan(figure):
            figures.setdefault(seed, []).append(figure)
    return Estimate(tuple(float(np.mean(figures[seed])) for seed in sorted(figures)))


def sample_variance(values: Sequence[float]) -> float:
    """Without bias; NaN of a single value."""
    return float(np.var(values, ddof=1)) if len(values) > 1 else nan


def total_variation(p: Tensor, q: Tensor) -> float:
    """Half the sum of |p - q|; 0 for equal distributions, at most 1."""
    return 0.5 * float((p - q).abs().sum())


Rule = Callable[[Estimate, float], bool]
"""Whether a claim holds, from our estimate and the paper's figure (NaN if it has none)."""


def reaches(ours: Estimate, paper: float) -> bool:
    """The mean, to two digits, is at least the paper's figure."""
    return round(ours.mean, 2) >= paper


def is_close(ours: Estimate, paper: float) -> bool:
    """The mean is within 0.05 of the paper's figure."""
    return abs(ours.mean - paper) <= 0.05


def is_positive(ours: Estimate, _: float) -> bool:
    """The whole interval is above 0."""
    return ours.band[1] > 0


def number(value: float, digits: int) -> str:
    """A figure with `digits` decimals, or as a power of ten if these would show only zeros."""
    small = 1e-16 < abs(value) < 0.5 * 10.0**-digits  # below: a rounding error of 0
    return f"{value:.1e}" if small else f"{value:.{digits}f}"


@dataclass(frozen=True)
class PairedTest:
    """Wilcoxon's signed-rank test of two methods on the same questions.

    difference: mean of first minus second; p: two-sided, corrected by Holm for the number of
    methods compared.
    """

    difference: float
    p: float
    pairs: int
    seeds: int

    @property
    def ahead(self) -> bool:
        """Whether the first method has significantly more."""
        return self.difference > 0 and self.p < SIGNIFICANT

    def text(self, digits: int = 2) -> str:
        """`+0.12 (p = 0.003)`."""
        p = "p < 0.001" if self.p < 0.001 else f"p = {self.p:.3f}"
        return f"{self.difference:+.{digits}f} ({p})" if self.pairs else "-"


def holm(p_values: Sequence[float]) -> NDArray[np.float64]:
    """p-values corrected by Holm for their number, in the same order."""
    p, order = np.asarray(p_values, dtype=float), np.argsort(p_values, kind="stable")
    # The k-th smallest of m times m - k + 1, never below the one before it.
    steps = np.minimum(1.0, p[order] * np.arange(len(p), 0, -1))
    corrected = np.empty(len(p))
    corrected[order] = np.maximum.accumulate(steps)
    return corrected


def paired_tests(differences: Mapping[str, Sequence[Sequence[float]]]) -> dict[str, PairedTest]:
    """Tests by name of the other method, from the differences of each seed, corrected by Holm."""
    pooled = {name: [d for seed in seeds for d in seed] for name, seeds in differences.items()}
    # Zeros say nothing about a direction. Exact for few pairs, else the normal approximation.
    nonzero = {name: [d for d in values if d != 0] for name, values in pooled.items() if values}
    p_values = [float(stats.wilcoxon(d).pvalue) if d else 1.0 for d in nonzero.values()]
    corrected = dict(zip(nonzero, holm(p_values).tolist(), strict=True))
    return {
        name: PairedTest(
            float(np.mean(values or [nan])),
            corrected.get(name, 1.0),
            len(values),
            len(differences[name]),
        )
        for name, values in pooled.items()
    }


def share_significant(samples: Sequence[Sequence[float]]) -> float:
    """The share of samples whose mean differs from 0 (t test), corrected by Holm."""
    return float(np.mean(holm([_p_value(np.array(sample)) for sample in samples]) <= SIGNIFICANT))


def _p_value(sample: NDArray[np.float64]) -> float:
    if len(sample) < 2 or np.ptp(sample) == 0:  # no spread: 0 everywhere, or never 0
        return 1.0 if not sample.any() or len(sample) < 2 else 0.0
    return float(stats.ttest_1samp(sample, 0).pvalue)
