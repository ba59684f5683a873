"""`graphsvx train`: train one model, or all of the paper's."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphsvx.cli import app
from graphsvx.cli.stopping import stopped_at_once
from graphsvx.errors import DataError, InputError
from graphsvx.utils.console import message, simple_table, stdout_console
from graphsvx.utils.printable import one_line
from graphsvx_lab import datasets
from graphsvx_lab.datasets.catalogue import checked_name

if TYPE_CHECKING:
    from graphsvx_lab.zoo import paper


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
        Path | None,
        typer.Option(metavar="FILE", help="With --all: also write the table as Markdown."),
    ] = None,
) -> None:
    """Train a model and keep it: weights as safetensors, and a JSON card beside them."""
    if everything:
        if dataset is not None or model is not None:
            raise InputError("--all trains every model of the paper; leave out DATASET and --model")
        _train_all(range(seed, seed + seeds), table)
        return
    if dataset is None:
        raise InputError(
            f"name a data set, or give --all; data sets: {', '.join(datasets.names())}"
        )
    if table is not None:
        raise InputError("--table goes with --all only")
    checked_name(dataset)
    with stopped_at_once():
        from graphsvx_lab import zoo

    row = _trained(dataset, model, range(seed, seed + seeds))
    _show([row])
    path = zoo.checkpoint_path(dataset, model, seed)
    others = f" and {seeds - 1} more beside it" if seeds > 1 else ""
    stdout_console().print(one_line(f"kept as {path}{others}"), soft_wrap=True, markup=False)


def _train_all(seeds: range, table: Path | None) -> None:
    with stopped_at_once():
        from graphsvx.utils.files import atomic_write
        from graphsvx_lab.zoo import paper
        from graphsvx_lab.zoo.paper import ACCURACY

    rows = []
    for dataset, model in ACCURACY:
        try:
            rows.append(_trained(dataset, model, seeds))
        except DataError as error:
            if dataset.split("-")[0] not in {"cora", "pubmed", "mutag"}:
                raise
            # Raw files that are not there: the others can still be trained.
            message(f"left out {dataset} {model}: {error}", style="yellow")
            rows.append(paper.AccuracyRow(dataset, model, missing="files missing"))
    _show(rows)
    if table is not None:
        command = f"graphsvx train --all --seed {seeds.start} --seeds {len(seeds)}"
        with atomic_write(table) as part:
            part.write_text(paper.markdown(rows, command), encoding="utf-8")


def _trained(dataset: str, model: str | None, seeds: range) -> paper.AccuracyRow:
    from graphsvx_lab import zoo
    from graphsvx_lab.zoo import paper
    from graphsvx_lab.zoo.training import training_bar

    model_name = zoo.settings_for(dataset, model).model
    cards, start = [], time.monotonic()
    for seed in seeds:
        loaded = datasets.load(dataset, seed)
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
