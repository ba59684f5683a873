"""`graphsvx datasets`: list the data sets with the paper's statistics."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from graphsvx import datasets as data
from graphsvx.cli import app
from graphsvx.errors import DataError
from graphsvx.utils.files import atomic_write

SIZES = ("graphs", "classes", "nodes", "features", "edges")


@app.command()
def datasets(
    seed: Annotated[int, typer.Option(help="Seed of the synthetic sets.")] = 0,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write them as JSON.")
    ] = None,
) -> None:
    """List the data sets with their sizes; the paper's in brackets where they differ."""
    rows = [_row(name, seed) for name in data.names()]
    if json_file is not None:
        _write(json_file, rows)
    title = f"Data sets (seed {seed}); the paper's figures in brackets if others"
    table = Table(title=title, box=box.SIMPLE, padding=(0, 1, 0, 0))
    for column in ("name", *SIZES, "truth"):
        number = column in SIZES
        table.add_column(column, justify="right" if number else "left", no_wrap=column != "truth")
    for row in rows:
        if row["missing"]:
            table.add_row(row["name"], *["-"] * len(SIZES), "files missing", style="dim")
        else:
            sizes = [_cell(row, size) for size in SIZES]
            table.add_row(row["name"], *sizes, row["truth"] or "-")
    console = Console()
    console.print(table)
    console.print(
        "Edges are counted in both directions; of citation sets the paper counts links once.",
        style="dim",
    )
    for row in rows:
        if row["missing"] and not row["name"].count("-noisy"):
            console.print(row["missing"], style="dim", soft_wrap=True, markup=False)


def _row(name: str, seed: int) -> dict[str, Any]:
    """Sizes of a data set with the paper's, or in `missing` why it cannot be loaded."""
    paper = data.PAPER_STATISTICS.get(name)
    row: dict[str, Any] = {
        "name": name,
        "missing": None,
        "paper": asdict(paper) if paper else None,
    }
    try:
        loaded = data.load(name, seed)
    except DataError as error:
        return {**row, "missing": str(error)}
    return {
        **row,
        **asdict(data.statistics(loaded)),
        "seed": seed,
        "task": loaded.task,
        "truth": loaded.truth.kind if loaded.truth else None,
        "split": {part: index.numel() for part, index in loaded.split.parts().items()},
        "class_names": loaded.class_names,
        "fingerprint": loaded.fingerprint,
    }


def _cell(row: dict[str, Any], size: str) -> str:
    ours, paper = row[size], row["paper"]
    if paper is None or paper[size] == ours:
        return f"{ours:,}"
    return f"{ours:,}\n({paper[size]:,})"


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    with atomic_write(path) as part:
        part.write_text(json.dumps(rows, indent=2) + "\n")
