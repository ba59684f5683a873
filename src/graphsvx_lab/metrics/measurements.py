"""The tidy table of measurements, as Parquet: one row for each value that was measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import isnan
from operator import sub
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from graphsvx.errors import DataError, InputError
from graphsvx.utils.files import atomic_write
from graphsvx_lab.datasets.catalogue import data_title
from graphsvx_lab.metrics.comparison import (
    Estimate,
    PairedTest,
    Statistic,
    over_seeds,
    paired_tests,
)

NO_QUESTION = -1
"""The question of a measurement that is about a model and not about one prediction."""
MEDIANS = frozenset({"error", "own error", "residual", "calls", "seconds"})
"""Measures of which a few values are huge: a seed's figure is their median, not their mean."""
_TEXT = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema([
    ("study", _TEXT), ("dataset", _TEXT), ("model", _TEXT), ("seed", pa.int32()),
    ("method", _TEXT), ("question", pa.int64()), ("measure", _TEXT), ("value", pa.float64()),
])  # fmt: skip
Where = str | Sequence[str]
Value = tuple[str, int, str, float]
"""Method, question, measure and what was measured."""
BySeed = dict[int, dict[int, float]]
"""Values by seed, then by question."""


def of_model(values: Mapping[str, float]) -> list[Value]:
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
        rows = [(self.study, *row, value) for row, value in self.values.items()]
        columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
        schema = SCHEMA.with_metadata({"graphsvx": json.dumps(self.facts)})
        with atomic_write(path) as part:
            pq.write_table(pa.table(arrays, schema), part, compression="zstd")
        return path

    @classmethod
    def read(cls, path: Path, study: str) -> Measurements:
        """Read a table that `write` wrote.

        Raises:
            DataError: the file is missing or is no table of measurements.

        """
        advice = f"measure first: graphsvx study {study}"
        try:
            table = pq.read_table(path)
            facts = json.loads((table.schema.metadata or {})[b"graphsvx"])
            columns = [table.column(name).to_pylist() for name in SCHEMA.names]
        except FileNotFoundError:
            raise DataError(f"there is no {path}; {advice}") from None
        except (pa.ArrowException, KeyError, ValueError) as error:
            raise DataError(f"{path} is no table of measurements ({error}); {advice}") from error
        return cls(study, dict(zip(map(Row, *columns[1:-1]), columns[-1], strict=True)), facts)
