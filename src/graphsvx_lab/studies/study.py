"""What a study is: a declared grid of measurements, and a page that is made from them alone."""

from __future__ import annotations

import hashlib
import os
import platform
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, redirect_stderr
from dataclasses import dataclass, field, replace
from functools import cache
from io import StringIO
from itertools import product
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from graphsvx.results.explanation import Explanation
from graphsvx.runs import identity
from graphsvx.runs.backends import cores
from graphsvx.utils.console import message
from graphsvx.utils.constraints import as_call
from graphsvx.utils.exclusive import single_thread
from graphsvx.utils.processes import WorkerDied, can_fork, imap_unordered
from graphsvx_lab.datasets.base import DataSet
from graphsvx_lab.datasets.catalogue import data_title
from graphsvx_lab.metrics.measurements import Measurements, Row, Value
from graphsvx_lab.studies.context import MakeModel, Setting, StudyContext, why_missing
from graphsvx_lab.studies.page import SECONDS, Page
from graphsvx_lab.zoo import Trained

SEEDS, TEN_SEEDS = tuple(range(5)), tuple(range(10))
QUICK_SET, QUICK_QUESTIONS = "tree-cycles", 2
NO_FILES = "its raw files were not there when this was measured"
Questions = Mapping[str, tuple[int, ...]]
"""Nodes (or graphs, by position) to explain, by the protocol that scores them."""
Cell = tuple[int, Row]
"""The place of a grid in its study, and the data set, model and seed."""

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")


def with_options(function: Callable[Concatenate[A, P], R]) -> Callable[P, Callable[[A], R]]:
    """`f(x, options)` as `f(options)(x)`: for what is declared with options and called later."""
    return lambda *args, **kwargs: lambda first: function(first, *args, **kwargs)


@dataclass(frozen=True, eq=False)
class Case:
    """One data set, model and seed, with explanations by method and question."""

    context: StudyContext
    trained: Trained
    seed: int
    questions: Questions
    settings: Mapping[str, Setting]
    explanations: Mapping[str, Mapping[int, Explanation]]


@dataclass(frozen=True, eq=False)
class Answer:
    """One explanation, and the case that it belongs to."""

    case: Case
    trained: Trained
    setting: Setting
    method: str
    question: int
    explanation: Explanation

    @property
    def data(self) -> DataSet:
        """The data of the explained model."""
        return self.trained.dataset

    @property
    def true_nodes(self) -> set[int]:
        """The known explanation of the question."""
        return self.data.true_nodes(self.question)

    def scored_by(self, protocol: str) -> bool:
        """Whether a protocol scores this question."""
        return self.question in self.case.questions.get(protocol, ())

    def of(self, method: str) -> Explanation | None:
        """Another method's explanation of the same question, None if there is none."""
        return self.case.explanations.get(method, {}).get(self.question)


Measure = Callable[[Answer], Mapping[str, float]]
"""Values of one explanation by name; NaN (or nothing) where a measure does not apply."""
CaseMeasure = Callable[[Case], Iterable[Value]]
"""Values that need several explanations, or none."""


def zoo_model(name: str | None = None, cut_edges: bool = False) -> MakeModel:
    """A model of the zoo; without `cut_edges`, which was chosen by looking at explanations."""
    return lambda context, data, seed: context.trained_model(data, seed, name, cut_edges=cut_edges)


CITATION_MODELS = {"gcn": zoo_model("gcn"), "gat": zoo_model("gat")}


@dataclass(frozen=True, eq=False)
class Grid:
    """Data sets x models x seeds x methods x questions, and what is measured on each.

    methods: by data set, the settings of each method by its name in tables.
    questions: of a trained model, what is explained.
    measures: of each explanation.
    case_measures: of each data set, model and seed.
    models: by name; "" is the usual one.
    quick: the data sets of a quick version; if left out, Tree-Cycles, or else the first one.
    other_seeds: whether its measures use models of other seeds, too.
    """

    datasets: tuple[str, ...]
    methods: Callable[[str], Mapping[str, Setting]]
    questions: Callable[[Trained], Questions]
    measures: tuple[Measure, ...] = ()
    case_measures: tuple[CaseMeasure, ...] = ()
    models: Mapping[str, MakeModel] = field(default_factory=lambda: {"": zoo_model()})
    seeds: tuple[int, ...] = SEEDS
    quick: tuple[str, ...] | None = None
    other_seeds: bool = False

    def reduced(self) -> Grid:
        """The quick version: few data sets, one seed, few questions, little effort."""
        usual = (QUICK_SET,) if QUICK_SET in self.datasets else self.datasets[:1]
        return replace(
            self,
            datasets=usual if self.quick is None else self.quick,
            methods=lambda data: {k: setting.quick() for k, setting in self.methods(data).items()},
            questions=lambda trained: {
                k: ids[:QUICK_QUESTIONS] for k, ids in self.questions(trained).items()
            },
            seeds=self.seeds[:1],
        )

    def measured(
        self, context: StudyContext, dataset: str, trained: Trained, seed: int
    ) -> Iterator[Value]:
        """Explain everything of one data set, model and seed, and measure it."""
        questions, settings = self.questions(trained), self.methods(dataset)
        queries = sorted({query for ids in questions.values() for query in ids})
        explained = {
            name: setting.explanations(context, trained, queries)
            for name, setting in settings.items()
        }
        case = Case(context, trained, seed, questions, settings, explained)
        for method, by_question in explained.items():
            for question, explanation in by_question.items():
                answer = Answer(case, trained, settings[method], method, question, explanation)
                for measure in self.measures:
                    yield from ((method, question, k, v) for k, v in measure(answer).items())
        for case_measure in self.case_measures:
            yield from case_measure(case)


@dataclass(frozen=True, eq=False)
class Study:
    """An experiment: what is measured, and how its page is made from the measurements.

    name: on the command line, and of its files.
    about: what it shows, in a line.
    page: claims, figure and tables; a function of the measurements alone.
    takes_times: whether nothing else may run at the same time.
    """

    name: str
    about: str
    grids: tuple[Grid, ...]
    page: Callable[[Measurements], Page]
    takes_times: bool = False

    def run(
        self, context: StudyContext, measured: Mapping[Cell, Measurements] | None = None
    ) -> list[Path]:
        """Measure, and write table, page and pictures; returns the files.

        measured: what `measure_in_processes` has done already, with other studies.
        """
        start = time.monotonic()
        message(f"{self.name}: {self.about}")
        if measured is None:
            measured = measure_in_processes({self: context}).get(self.name, {})
        table = self.measure(context, measured).write(context.out / f"{self.name}.parquet")
        written = [table, *self.write_page(context.out)]
        message(f"{self.name}: done in {time.monotonic() - start:.0f} s")
        return written

    def read(self, folder: Path) -> Measurements:
        """The measurements that a run left in a folder."""
        return Measurements.read(folder / f"{self.name}.parquet", self.name)

    def write_page(self, folder: Path) -> list[Path]:
        """Make the page from the measurements that are there."""
        results = self.read(folder)
        return self.page(results).write(results, folder)

    def used_grids(self, context: StudyContext) -> list[Grid]:
        """Those of the study, or of its quick version."""
        return [grid.reduced() if context.quick else grid for grid in self.grids]

    def cells(self, context: StudyContext) -> list[Cell]:
        """Everything that is measured on its own, seed by seed; without data that are missing."""
        cells = [
            (place, Row(dataset, model, seed, "", 0, ""))
            for place, grid in enumerate(self.used_grids(context))
            for seed, dataset, model in product(grid.seeds, grid.datasets, grid.models)
        ]
        absent = self.missing(context)
        return [(place, row) for place, row in cells if row.dataset not in absent]

    def missing(self, context: StudyContext) -> dict[str, str]:
        """Data sets whose files are not there, and why; it may try to download them, once each."""
        names = dict.fromkeys(n for grid in self.used_grids(context) for n in grid.datasets)
        return {name: reason for name in names if (reason := why_missing(name))}

    def measure(
        self, context: StudyContext, measured: Mapping[Cell, Measurements] | None = None
    ) -> Measurements:
        """All measurements, seed by seed; the table in `context.out` grows with each cell.

        What was measured before a stop is read, not measured again. As long as cells are left,
        the facts of the table name them as missing.
        """
        seconds = 0.0
        results = Measurements(
            self.name,
            facts={
                "command": context.command,
                "quick": context.quick,
                "versions": ", ".join(f"{k} {v}" for k, v in identity.package_versions().items()),
                "code": hash_of_code()[:12],
                "machine": f"{platform.system()}, {platform.machine()}, {os.cpu_count()} cores",
                "settings": {},
                "failures": {},
            },
        )
        cells, absent = self.cells(context), self.missing(context)
        for reason in absent.values():  # it names folders of this machine, which no page should
            message(reason)
        no_files = dict.fromkeys(map(data_title, absent), NO_FILES)
        results.facts["missing"] = no_files
        for number, (place, row) in enumerate(cells, start=1):
            stored = (measured or {}).get((place, row))
            cell = self.measure_cell(context, (place, row)) if stored is None else stored
            for key, value in cell.values.items():
                results.add(key, value)
            for name, by_title in cell.facts["settings"].items():
                results.facts["settings"].setdefault(name, {}).update(by_title)
            results.facts["failures"] |= cell.facts["failures"]
            seconds += cell.facts.get(SECONDS, 0.0)
            results.facts[SECONDS] = round(seconds, 1)
            advice = f"not measured yet; `{context.command}` goes on there"
            left = _seeds_left(row for _, row in cells[number:])
            results.facts["missing"] = no_files | dict.fromkeys(left, advice)
            if stored is None or number == len(cells):
                results.write(context.out / f"{self.name}.parquet")
        return results

    @single_thread()  # so that models do not depend on the number of cores
    def measure_cell(self, context: StudyContext, cell: Cell) -> Measurements:
        """One data set, model and seed of a grid, kept in a file of its own once it is whole."""
        (place, row), start = cell, sum(os.times()[:4])
        grid = self.used_grids(context)[place]
        trained = grid.models[row.model](context, row.dataset, row.seed)
        methods = grid.methods(row.dataset)
        measures = [_named(measure) for measure in (*grid.measures, *grid.case_measures)]
        key = (place, row.model, context.quick, hash_of_code(), methods, measures)
        folder = context.folder(trained, self.name, *key, grid.questions(trained))
        path = folder.with_suffix(".parquet")
        if path.exists():
            return Measurements.read(path, self.name)
        context, title = replace(context, failures={}), data_title(row.dataset, row.model)
        words = {name: {title: setting.words()} for name, setting in methods.items()}
        words["models"] = {title: f"`{as_call(trained.card.settings)}`"}
        results = Measurements(self.name, facts={"settings": words, "failures": context.failures})
        measured = grid.measured(context, row.dataset, trained, row.seed)
        for method, question, measure, value in measured:
            results.add(row._replace(method=method, question=question, measure=measure), value)
        results.facts[SECONDS] = sum(os.times()[:4]) - start  # also of processes that it made
        if not context.failures:  # what failed is tried again the next time
            results.write(path)
        return results


def study_of(
    *grids: Grid, takes_times: bool = False
) -> Callable[[Callable[[Measurements], Page]], Study]:
    """Declare a function that makes a page as a study: its docstring says what it is about.

    Args:
        grids: what is measured.
        takes_times: whether nothing else may run at the same time.

    Returns:
        A decorator of a function of the measurements; the study has the function's name.

    """

    def declared(page: Callable[[Measurements], Page]) -> Study:
        name, about = page.__name__.replace("_", "-"), page.__doc__ or ""
        return Study(name, about, grids, page, takes_times)

    return declared


@cache
def hash_of_code() -> str:
    """SHA-256 of all code of the library and of the experiments, and of their tables."""
    root, code = Path(__file__).parents[2], hashlib.sha256()
    patterns = ("graphsvx/**/*.py", "graphsvx_lab/**/*.py", "graphsvx_lab/**/*.csv")
    for file in sorted(file for pattern in patterns for file in root.glob(pattern)):
        code.update(f"{file.relative_to(root)};".encode() + file.read_bytes())
    return code.hexdigest()


def measure_in_processes(
    contexts: Mapping[Study, StudyContext],
) -> dict[str, dict[Cell, Measurements]]:
    """Cells of studies, measured in several processes if there are to be: by study and cell.

    Cells that share a data set and seed are measured by one process: it has the data and models,
    and no two processes train the same one. What could not be measured is left out, whatever the
    reason, so that hours of other work go on; `Study.measure` tries it again and tells.
    """
    groups: dict[tuple[str, int | None], list[tuple[Study, StudyContext, Cell]]] = {}
    parallel = {study: c for study, c in contexts.items() if c.workers != 1 and can_fork()}
    joined = {
        name
        for study, c in parallel.items()
        for grid in study.used_grids(c)
        for name in grid.datasets
        if grid.other_seeds
    }
    for study, context in parallel.items():
        for cell in () if study.takes_times else study.cells(context):
            key = cell[1].dataset, None if cell[1].dataset in joined else cell[1].seed
            groups.setdefault(key, []).append((study, replace(context, workers=1), cell))
    workers = max((c.workers or cores() for c in parallel.values()), default=1)
    if workers == 1 or len(groups) == 1:
        return {}
    done: dict[str, dict[Cell, Measurements]] = {study.name: {} for study in contexts}
    keys = deque(sorted(groups, key=lambda key: -_effort(groups[key])))  # long ones first
    hash_of_code()  # read before the processes are made: all of them work for one code

    def work(key: tuple[str, int | None]) -> list[tuple[str, Cell, Measurements]]:
        results = []
        for study, context, cell in groups[key]:
            try:
                with redirect_stderr(StringIO()):  # progress of several processes would be mixed up
                    results.append((study.name, cell, study.measure_cell(context, cell)))
            except Exception as error:  # of one cell: hours of other cells go on without it
                message(f"{study.name}, {key[0]}: {type(error).__name__}: {error}")
        return results

    answers = imap_unordered(work, lambda: keys.popleft() if keys else None, workers)
    with closing(answers):  # type: ignore[type-var]  # generators
        for number, (key, measured) in enumerate(answers, start=1):
            seed = "all seeds" if key[1] is None else f"seed {key[1]}"
            for name, cell, results in () if isinstance(measured, WorkerDied) else measured:
                done[name][cell] = results
            message(f"{key[0]}, {seed}: measured ({number} of {len(groups)})")
    return done


def _effort(cells: Iterable[tuple[Study, StudyContext, Cell]]) -> int:
    """What cells take, roughly: the number of explainers that are asked, and one for a model."""
    return sum(
        1 + len(study.used_grids(context)[place].methods(row.dataset))
        for study, context, (place, row) in cells
    )


def _named(function: Any) -> Any:
    """A measure as part of a key: one of this package by its name and what it closes over.

    The hash of all code covers what it does, and other globals that it uses, such as caches,
    change while it works.
    """
    name, module = (getattr(function, f"__{k}__", None) or "" for k in ("qualname", "module"))
    if not name or not module.startswith(f"{__package__}."):
        return function
    cells = getattr(function, "__closure__", None) or ()
    return f"{module}.{name}", [_named(cell.cell_contents) for cell in cells]


def _seeds_left(rows: Iterable[Row]) -> list[str]:
    """Data sets and models with the seeds that are to come: `Cora, GAT (seeds 3, 4)`."""
    seeds: dict[str, list[int]] = {}
    for row in rows:
        seeds.setdefault(data_title(row.dataset, row.model), []).append(row.seed)
    return [
        f"{title} (seed{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))})"
        for title, numbers in seeds.items()
    ]
