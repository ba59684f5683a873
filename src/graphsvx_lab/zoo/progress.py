"""A transient progress bar on standard error; disabled if that is not a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from graphsvx.utils.console import stderr_console
from graphsvx_lab.zoo.training import Progress, Step


@contextmanager
def training_bar(title: str) -> Iterator[Progress]:
    """A progress callback for `train` that shows epochs and loss."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]}"),
        TimeRemainingColumn(),
    )
    console = stderr_console()
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=None, loss="-")

        def show(step: Step) -> None:
            bar.update(task, completed=step.epoch, total=step.epochs, loss=f"{step.loss:.3f}")

        yield show
