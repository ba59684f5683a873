"""`graphsvx datasets`, `train` and `study`: the paper's data sets, models and experiments."""

from __future__ import annotations

import json
import shlex
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markdown import Markdown

from graphsvx.cli import app, options
from graphsvx.cli.options import BASELINES, check_extra, examples
from graphsvx.cli.stopping import resumable, stopped_at_once
from graphsvx.errors import DataError, InputError
from graphsvx.utils.console import message, simple_table, stdout_console
from graphsvx.utils.printable import one_line
from graphsvx_lab.datasets import catalogue
from graphsvx_lab.datasets.catalogue import CATALOGUE, PAPER_STATISTICS, data_dir

if TYPE_CHECKING:
    from graphsvx_lab.studies import Study, StudyContext
    from graphsvx_lab.zoo import paper

SIZES = ("graphs", "classes", "nodes", "features", "edges")


@app.command()
def datasets(
    seed: Annotated[int, typer.Option(help="Seed of the synthetic sets.")] = 0,
    json_file: Annotated[Path | None, options.a_file("Also write them as JSON.", "--json")] = None,
) -> None:
    """List the data sets with their sizes; the paper's in brackets where they differ."""
    listed = seed == 0 and json_file is None
    rows = [_listed(name) if listed else _loaded(name, seed) for name in CATALOGUE]
    if json_file is not None:
        from graphsvx.utils.files import atomic_write

        with atomic_write(json_file) as part:
            part.write_text(json.dumps(rows, indent=2) + "\n")
    table = simple_table(f"Data sets (seed {seed}); the paper's figures in brackets if others")
    for column in ("name", *SIZES, "truth"):
        justify: Any = "right" if column in SIZES else "left"
        table.add_column(column, justify=justify, no_wrap=column != "truth", min_width=7)
    for row in rows:
        last = "files missing" if row["missing"] else row["truth"] or "-"
        style = "dim" if row["missing"] else None
        table.add_row(row["name"], *(_cell(row, size) for size in SIZES), last, style=style)
    console = stdout_console()
    console.print(table)
    console.print(
        "Edges are counted in both directions; of citation sets the paper counts links once.",
        style="dim",
    )
    for row in rows:
        if row["missing"] and not row["name"].count("-noisy"):
            console.print(row["missing"], style="dim", soft_wrap=True, markup=False)


def _listed(name: str) -> dict[str, Any]:
    """Sizes of a data set at seed 0 from the catalogue; `missing` says which files it needs."""
    entry, paper, origin = CATALOGUE[name], PAPER_STATISTICS.get(name), catalogue.origin_of(name)
    absent = [file for file in catalogue.data_files(name) if not (data_dir() / file).is_file()]
    missing = None
    if origin and absent:
        missing = (
            f"{name}: downloaded at first use from {origin.url} (licence: {origin.licence}), or "
            f"put {', '.join(absent)} into {data_dir()}"
        )
    return {
        "name": name,
        "missing": missing,
        "paper": asdict(paper) if paper else None,
        "origin": origin.url if origin else None,
        "licence": origin.licence if origin else None,
        "truth": entry.truth,
        **(asdict(entry.sizes) if entry.sizes else {}),
    }


def _loaded(name: str, seed: int) -> dict[str, Any]:
    """Sizes of a data set with the paper's, or in `missing` why it cannot be loaded.

    A list downloads nothing. Molecules take seconds to read, and their sizes do not depend on the
    seed.
    """
    row = _listed(name)
    if row["missing"] or CATALOGUE[name].extra:
        return row
    with stopped_at_once():
        from graphsvx_lab.datasets import base as _base  # noqa: F401  (torch, for the loaders)

    try:
        loaded = catalogue.load(name, seed)
    except DataError as error:
        return {**row, "missing": str(error)}
    return {
        **row,
        **asdict(catalogue.statistics(loaded)),
        "seed": seed,
        "task": loaded.task,
        "truth": loaded.truth.kind if loaded.truth else None,
        "split": {part: index.numel() for part, index in loaded.split.parts().items()},
        "class_names": loaded.class_names,
        "fingerprint": loaded.fingerprint,
    }


def _cell(row: dict[str, Any], size: str) -> str:
    ours, paper = row.get(size), row["paper"]
    if ours is None:
        return "-"
    if paper is None or paper[size] == ours:
        return f"{ours:,}"
    return f"{ours:,}\n({paper[size]:,})"


# --- train -------------------------------------------------------------------------------------


@app.command()
def train(
    dataset: Annotated[
        str | None, typer.Argument(help="A data set: see `graphsvx datasets`.", show_default=False)
    ] = None,
    *,
    model: Annotated[
        str | None,
        typer.Option(
            help="graphconv, gcn, gin, sage, gat or released; gcn or gat for citation sets."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the data, the split and the weights.")] = 0,
    everything: Annotated[
        bool, typer.Option("--all", help="All models of the paper, beside its accuracies.")
    ] = False,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds, from --seed on.")] = 1,
    table: Annotated[
        Path | None, options.a_file("With --all: also write the table as Markdown.")
    ] = None,
) -> None:
    """Train a model and keep it: weights as safetensors, and a JSON card beside them."""
    if everything:
        if dataset is not None or model is not None:
            raise InputError("--all trains every model of the paper; leave out DATASET and --model")
    elif dataset is None:
        raise InputError(
            f"name a data set, or give --all; data sets: {', '.join(catalogue.names())}"
        )
    elif table is not None:
        raise InputError("--table goes with --all only")
    else:
        catalogue.checked_name(dataset)
    with stopped_at_once():
        from graphsvx.utils.files import atomic_write
        from graphsvx_lab import zoo
        from graphsvx_lab.zoo import paper

    rows = []
    for name, architecture in paper.ACCURACY if everything else [(str(dataset), model)]:
        try:
            rows.append(_trained(name, architecture, range(seed, seed + seeds)))
        except DataError as error:
            if not everything or CATALOGUE[name].folder is None:
                raise
            # Raw files that are not there: the others can still be trained.
            message(f"left out {name} {architecture}: {error}", style="yellow")
            rows.append(paper.AccuracyRow(name, str(architecture), missing="files missing"))
    _show(rows)
    if table is not None:
        command = f"graphsvx train --all --seed {seed} --seeds {seeds}"
        with atomic_write(table) as part:
            part.write_text(paper.markdown(rows, command), encoding="utf-8")
    if not everything:
        path = zoo.checkpoint_path(str(dataset), model, seed)
        others = f" and {seeds - 1} more beside it" if seeds > 1 else ""
        stdout_console().print(one_line(f"kept as {path}{others}"), soft_wrap=True, markup=False)


def _trained(dataset: str, model: str | None, seeds: range) -> paper.AccuracyRow:
    from graphsvx_lab import zoo
    from graphsvx_lab.zoo import paper
    from graphsvx_lab.zoo.training import training_bar

    model_name = zoo.settings_for(dataset, model).model
    cards, start = [], time.monotonic()
    for seed in seeds:
        loaded = catalogue.load(dataset, seed)
        with training_bar(f"{dataset} {model_name} seed {seed}") as progress:
            trained = zoo.train(loaded, model_name, seed, progress)
        zoo.save(trained)
        cards.append(trained.card)
    seconds = (time.monotonic() - start) / len(seeds)
    return paper.AccuracyRow(dataset, model_name, tuple(cards), seconds)


def _show(rows: list[paper.AccuracyRow]) -> None:
    from graphsvx_lab.zoo import paper

    table = simple_table("Accuracy; the paper's in brackets")
    for column in paper.COLUMNS:
        name = column in {"data set", "model"}
        table.add_column(column, justify="left" if name else "right", no_wrap=name)
    for row in rows:
        table.add_row(*row.cells())
    stdout_console().print(table)


# --- study -------------------------------------------------------------------------------------

STUDIES = examples("""
    graphsvx study
    graphsvx study ground-truth
    graphsvx study masks --quick
    graphsvx study noisy-features --out results --workers 1
    graphsvx study --all
    graphsvx study masks --pages

An interrupted study resumes where it stopped: its explanations are stored in --runs.
""")


@app.command(epilog=STUDIES)
def study(
    name: Annotated[
        str | None, typer.Argument(help="Which study; see `graphsvx study`.", show_default=False)
    ] = None,
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="All of them, one after the other.")
    ] = False,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="A small version that shows that everything works."),
    ] = False,
    pages: Annotated[
        bool,
        typer.Option("--pages", help="Make the page from the measurements that are there."),
    ] = False,
    out: Annotated[
        Path | None,
        options.a_folder("Where tables and pages go: docs/results, or out/studies with --quick."),
    ] = None,
    runs: Annotated[
        Path | None,
        options.a_folder(
            "Where explanations are kept: runs/studies, or runs/studies-quick with --quick."
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes; by default one for each core.")
    ] = None,
) -> None:
    """Reproduce an experiment of the paper: tables with its figures and ours, plots, a page."""
    check_extra("pyarrow", "data")
    with stopped_at_once():
        from graphsvx_lab import studies

    listed = [studies.get(study_name) for study_name in studies.names()]
    if name is None and not everything:
        _list(listed)
        return
    check_extra("matplotlib", "plot")
    if name is not None and everything:
        raise InputError("--all makes every study; leave out the name")
    selected = listed if everything else [studies.get(str(name))]
    folder = out or Path("out/studies" if quick else "docs/results")
    runs_folder = runs or Path("runs/studies-quick" if quick else "runs/studies")
    # Starting processes takes longer than the few explanations of a quick version.
    workers = workers or (1 if quick else None)
    contexts = {
        entry: studies.StudyContext(
            folder,
            runs_folder,
            quick,
            workers,
            f"graphsvx study {entry.name}" + (" --quick" if quick else ""),
        )
        for entry in selected
    }
    written: list[Path] = []
    left_out: dict[str, str] = {}
    with resumable(runs_folder, shlex.join(["graphsvx", *sys.argv[1:]])):
        if not pages:
            _check_packages(contexts)
        # Cells of all studies at once: those that share data and models are measured together.
        measured = {} if pages else studies.study.measure_in_processes(contexts)
        for entry, context in contexts.items():
            cells = measured.get(entry.name, {})
            try:
                written += entry.write_page(folder) if pages else entry.run(context, cells)
            except Exception as error:
                if not everything:
                    raise
                # Missing files, or an error in one study: hours of other work go on.
                expected = isinstance(error, DataError)
                left_out[entry.name] = str(error) if expected else traceback.format_exc()
    # Written from all stored measurements, so that it agrees with the pages.
    written.append(studies.write_summary(folder, listed))
    if not everything:
        _show_page(folder / f"{selected[0].name}.md")
    for file in written:
        message(f"wrote {file}")
    for study_name, reason in left_out.items():
        message(f"left out {study_name}: {reason}")
    if left_out:
        raise typer.Exit(2)


def _show_page(page: Path) -> None:
    """The page in the terminal, without images, whose captions follow as text."""
    lines = [line for line in page.read_text("utf-8").splitlines() if not line.startswith("![")]
    stdout_console().print(Markdown("\n".join(lines).replace("<br>", "; ")))


def _check_packages(contexts: dict[Study, StudyContext]) -> None:
    """Raise for an extra that a method of these studies needs, before hours of work."""
    from graphsvx.methods import registry

    methods = {
        type(setting.method)
        for entry, context in contexts.items()
        for grid in entry.used_grids(context)
        for dataset in grid.datasets
        for setting in grid.methods(dataset).values()
    }
    for name, package in BASELINES.items():
        if registry.find("method", name) in methods:
            check_extra(package, "baselines")


def _list(listed: list[Study]) -> None:
    table = simple_table()
    table.add_column("study", no_wrap=True)
    table.add_column("what it shows")
    for entry in listed:
        table.add_row(entry.name, entry.about)
    stdout_console().print(table)
    stdout_console().print("graphsvx study NAME, or graphsvx study --all")
