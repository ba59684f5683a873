"""`graphsvx datasets`: list the data sets with the paper's statistics."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from graphsvx.cli import app
from graphsvx.cli.stopping import stopped_at_once
from graphsvx.errors import DataError
from graphsvx.utils.console import simple_table, stdout_console
from graphsvx_lab.datasets import catalogue
from graphsvx_lab.datasets.catalogue import CATALOGUE, PAPER_STATISTICS, data_dir

SIZES = ("graphs", "classes", "nodes", "features", "edges")


@app.command()
def datasets(
    seed: Annotated[int, typer.Option(help="Seed of the synthetic sets.")] = 0,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write them as JSON.")
    ] = None,
) -> None:
    """List the data sets with their sizes; the paper's in brackets where they differ."""
    if seed == 0 and json_file is None:
        rows = [_listed(name) for name in CATALOGUE]
    else:
        rows = [_loaded(name, seed) for name in CATALOGUE]
    if json_file is not None:
        _write(json_file, rows)
    title = f"Data sets (seed {seed}); the paper's figures in brackets if others"
    table = simple_table(title)
    for column in ("name", *SIZES, "truth"):
        number = column in SIZES
        table.add_column(
            column, justify="right" if number else "left", no_wrap=column != "truth", min_width=7
        )
    for row in rows:
        sizes = [_cell(row, size) for size in SIZES]
        last = "files missing" if row["missing"] else row["truth"] or "-"
        table.add_row(row["name"], *sizes, last, style="dim" if row["missing"] else None)
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
    entry = CATALOGUE[name]
    row: dict[str, Any] = {**_start(name), "truth": entry.truth}
    if entry.sizes is not None:
        row |= asdict(entry.sizes)
    absent = [file for file in catalogue.data_files(name) if not (data_dir() / file).is_file()]
    if absent:
        row["missing"] = (
            f"{name}: downloaded at first use from {row['origin']} (licence: {row['licence']}), "
            f"or put {', '.join(absent)} into {data_dir()}"
        )
    return row


def _start(name: str) -> dict[str, Any]:
    paper, origin = PAPER_STATISTICS.get(name), catalogue.origin_of(name)
    return {
        "name": name,
        "missing": None,
        "paper": asdict(paper) if paper else None,
        "origin": origin.url if origin else None,
        "licence": origin.licence if origin else None,
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
        import torch  # noqa: F401  (what loaders import)

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


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    from graphsvx.utils.files import atomic_write

    with atomic_write(path) as part:
        part.write_text(json.dumps(rows, indent=2) + "\n")
