"""The tidy table of measurements, one row for each value; means over seeds and paired tests of it.

A table is a Parquet file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import isnan, nan
from operator import sub
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from graphsvx.errors import DataError, InputError
from graphsvx.utils.files import atomic_write
from graphsvx_lab.datasets.catalogue import data_title

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
    paper: float | None = None
    """The paper's figure, where it is to be shown beside."""

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
        """`0.97 ± 0.02 (0.99)`, or the seeds' values where they are too few for an interval."""
        low, high = self.interval or (0.0, 0.0)
        ours = ", ".join(number(value, digits) for value in self.by_seed) or "-"
        if self.interval is not None:
            spread = f" ± {number((high - low) / 2, digits)}"
            ours = number(self.mean, digits) + spread * ((high - low) / 2 > ROUNDING)
        return ours if self.paper is None else f"{ours} ({number(self.paper, digits)})"


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
    """Paired tests against other methods, corrected by Holm.

    Args:
        differences: by name of the other method, for each seed those of all questions.

    Returns:
        Tests by name of the other method.

    """
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


# --- the table -------------------------------------------------------------------------------

NO_QUESTION = -1
"""The question of a measurement that is about a model and not about one prediction."""
MEDIANS = frozenset({"error", "own error", "residual", "calls", "seconds"})
"""Measures of which a few values are huge: a seed's figure is their median, not their mean."""
COLUMNS = {"study": str, "dataset": str, "model": str, "seed": "int32", "method": str,
           "question": "int64", "measure": str, "value": "float64"}  # fmt: skip
"""Of the file, with their types."""
Where = str | Sequence[str]
Value = tuple[str, int, str, float]
"""Method, question, measure and what was measured."""
BySeed = dict[int, dict[int, float]]
"""Values by seed, then by question."""


def model_values(values: Mapping[str, float]) -> list[Value]:
    """Values about a model as a whole."""
    return [("", NO_QUESTION, measure, value) for measure, value in values.items()]


class Row(NamedTuple):
    """What a value was measured on; `method` is "" where it is about a model alone."""

    dataset: str
    model: str
    seed: int
    method: str
    question: int
    measure: str

    def entry(self, column: str) -> str:
        """One of the fields, or "data": the title of data set and model."""
        return data_title(*self[:2]) if column == "data" else str(getattr(self, column))


@dataclass(frozen=True, eq=False)
class Measurements:
    """All measurements of a study, and the facts that its page needs besides.

    facts: plain values (command, versions, failures, settings, ...), in the metadata of the file.
    """

    study: str
    values: dict[Row, float] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def add(self, row: Row, value: float) -> None:
        """Put a value in; NaN is left out, and a second value for the same row is an error.

        Raises:
            InputError: the row is there already.

        """
        if row in self.values:
            raise InputError(f"{self.study} measures {row} twice; rename one of the measures")
        if not isnan(value):
            self.values[row] = float(value)

    @cached_property
    def series(self) -> dict[Row, BySeed]:
        """Values by a row without its seed and question, then by these."""
        series: dict[Row, BySeed] = {}
        for row, value in self.values.items():
            key = row._replace(seed=0, question=NO_QUESTION)
            series.setdefault(key, {}).setdefault(row.seed, {})[row.question] = value
        return series

    def keys(self, **selection: Where) -> list[Row]:
        """Series with these entries: dataset, model, method, measure, or data (the title)."""
        entries = {k: {v} if isinstance(v, str) else set(v) for k, v in selection.items()}
        return [
            key
            for key in self.series
            if all(key.entry(name) in values for name, values in entries.items())
        ]

    def names(self, column: str, prefix: str = "", **selection: Any) -> list[str]:
        """Different entries of a column of the series that `estimate` would select, in order."""
        selected = {k: v for k, v in selection.items() if k not in ("over", "statistic")}
        entries = dict.fromkeys(key.entry(column) for key in self.keys(**selected))
        return [entry for entry in entries if entry.startswith(prefix)]

    def estimate(
        self,
        measure: Where,
        *,
        over: str = "",
        statistic: Statistic | None = None,
        **selection: Where,
    ) -> Estimate:
        """A measure over seeds: summed up over the questions of a series, then over series.

        over: the measure that this one is a share of; sums over questions are divided.
        statistic: sums up; the mean if left out, or the median of one of `MEDIANS`.
        """
        summed = statistic or (np.median if measure in MEDIANS else np.mean)
        groups: list[tuple[int, float]] = []
        for key in self.keys(measure=measure, **selection):
            totals = self.series.get(key._replace(measure=over), {})
            for seed, by_question in self.series[key].items():
                values, total = list(by_question.values()), sum(totals.get(seed, {}).values())
                if total or not over:
                    groups.append((seed, sum(values) / total if over else float(summed(values))))
        return over_seeds(groups)

    def by(self, column: str, measure: Where, **selection: Any) -> dict[str, Estimate]:
        """`estimate` for each entry of a column that has the measure: of "data", each data set."""
        return {
            entry: self.estimate(measure, **{**selection, column: entry})
            for entry in self.names(column, measure=measure, **selection)
        }

    def paired(
        self,
        first: tuple[str, str],
        second: tuple[str, str],
        *,
        combine: Callable[[float, float], float] = sub,
        statistic: Statistic = np.mean,
        **selection: Where,
    ) -> Estimate:
        """Two (method, measure), combined question by question: their difference, usually."""
        return over_seeds(
            [
                (seed, float(statistic([combine(*pair) for pair in pairs])))
                for seed, pairs in self.pairs(first, second, **selection)
            ]
        )

    def pairs(
        self, first: tuple[str, str], second: tuple[str, str], **selection: Where
    ) -> Iterator[tuple[int, list[tuple[float, float]]]]:
        """Values of two (method, measure) on the same questions, with the seed of each group."""
        for key in self.keys(method=first[0], measure=first[1], **selection):
            others = self.series.get(key._replace(method=second[0], measure=second[1]), {})
            for seed, values in self.series[key].items():
                other = others.get(seed, {})
                pairs = [(value, other[q]) for q, value in values.items() if q in other]
                if pairs:
                    yield seed, pairs

    def tests(
        self, measure: str, ours: str, others: Iterable[str], sign: int = 1, **selection: Where
    ) -> dict[str, PairedTest]:
        """Is a method ahead of others on the same questions? Wilcoxon's test with Holm's rule.

        sign: -1 where less is better; differences then say by how much ours is less.
        """
        return paired_tests(
            {
                other: [
                    [sign * (a - b) for a, b in pairs]
                    for _, pairs in self.pairs((ours, measure), (other, measure), **selection)
                ]
                for other in others
            }
        )

    def tests_by(
        self, column: str, measure: str, ours: str, others: Iterable[str], **selection: Where
    ) -> dict[str, dict[str, PairedTest]]:
        """`tests` for each entry of a column that has the measure: of "data", for each data set."""
        entries, others = self.names(column, "", measure=measure, **selection), list(others)
        return {
            entry: self.tests(measure, ours, others, 1, **{**selection, column: entry})
            for entry in entries
        }

    def write(self, path: Path) -> Path:
        """Write the table as Parquet, facts in its metadata; a DataError if that is impossible."""
        import pyarrow as pa  # noqa: PLC0415  (an extra)
        import pyarrow.parquet as pq  # noqa: PLC0415  (an extra)

        text = pa.dictionary(pa.int32(), pa.string())
        schema = pa.schema(
            [(name, text if kind is str else kind) for name, kind in COLUMNS.items()],
            {"graphsvx": json.dumps(self.facts)},
        )
        rows = [(self.study, *row, value) for row, value in self.values.items()]
        columns = list(zip(*rows, strict=True)) or [()] * len(schema)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
        with atomic_write(path) as part:
            pq.write_table(pa.table(arrays, schema), part, compression="zstd")
        return path

    @classmethod
    def read(cls, path: Path, study: str) -> Measurements:
        """Read a table that `write` wrote.

        Raises:
            DataError: the file is missing or is no table of measurements.

        """
        import pyarrow as pa  # noqa: PLC0415  (an extra)
        import pyarrow.parquet as pq  # noqa: PLC0415  (an extra)

        advice = f"measure first: graphsvx study {study}"
        try:
            table = pq.read_table(path)
            facts = json.loads((table.schema.metadata or {})[b"graphsvx"])
            columns = [table.column(name).to_pylist() for name in COLUMNS]
        except FileNotFoundError:
            raise DataError(f"there is no {path}; {advice}") from None
        except (pa.ArrowException, KeyError, ValueError) as error:
            raise DataError(f"{path} is no table of measurements ({error}); {advice}") from error
        return cls(study, dict(zip(map(Row, *columns[1:-1]), columns[-1], strict=True)), facts)
