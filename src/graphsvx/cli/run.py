"""`graphsvx run` stores many explanations in a folder; `graphsvx report` summarises them."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor
from torch_geometric.data import Data

from graphsvx import datasets
from graphsvx.cli import app
from graphsvx.cli.explain import chosen_method, model_and_graphs
from graphsvx.cli.stopping import stopped_by_signals
from graphsvx.errors import DataError, InputError
from graphsvx.methods import registry
from graphsvx.results import summary
from graphsvx.utils.constraints import shown
from graphsvx.utils.printable import one_line
from graphsvx.views import html as report

if TYPE_CHECKING:
    from graphsvx import runs

EXAMPLES = """
Examples:

    graphsvx run ba-shapes --nodes 400-459 --out runs/houses

    graphsvx run cora --model gat --nodes test --out runs/cora-gat --workers 2

    graphsvx run ba-2motifs --graphs test --out runs/motifs

    graphsvx run cora --nodes all --out runs/cora --engine ray --address auto

    graphsvx run --status runs/cora-gat
"""


@app.command(epilog=EXAMPLES)
def run(
    dataset: Annotated[
        str | None,
        typer.Argument(help="A data set (see `graphsvx datasets`) or a saved PyG Data (.pt)."),
    ] = None,
    *,
    nodes: Annotated[
        str | None,
        typer.Option(help="all, train, val, test, class:2, or numbers such as 3,7,10-20."),
    ] = None,
    graphs: Annotated[str | None, typer.Option(help="The same, for a set of many graphs.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where results go.")] = None,
    model: Annotated[str | None, typer.Option(help="The zoo's model: gcn, gat, ...")] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A checkpoint of the zoo (.safetensors).")
    ] = None,
    method: Annotated[
        str, typer.Option(help="The explainer: " + ", ".join(registry.names()) + ".")
    ] = "graphsvx",
    samples: Annotated[
        int | None, typer.Option(help="Model calls that the explainer may make.")
    ] = None,
    hops: Annotated[int | None, typer.Option(help="Nodes up to this distance are players.")] = None,
    few: Annotated[
        int | None, typer.Option(metavar="K", help="Selective: credit for at most K players.")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any setting of the explainer."),
    ] = None,
    target: Annotated[
        int | None, typer.Option(help="The class to explain; by default the predicted one.")
    ] = None,
    scale: Annotated[
        str, typer.Option(help="What is explained: probability, logit, log_odds or value.")
    ] = "probability",
    seed: Annotated[int, typer.Option(help="Seed of the explainer.")] = 0,
    model_seed: Annotated[int, typer.Option(help="Seed of the data set and its model.")] = 0,
    engine: Annotated[str, typer.Option(help="Where workers run: local or ray.")] = "local",
    workers: Annotated[
        int | None, typer.Option(min=1, help="How many; by default one for each core.")
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Ray: an existing cluster, such as auto.")
    ] = None,
    part: Annotated[int, typer.Option(min=1, help="Queries in one Parquet file.")] = 256,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Try queries again that failed.")
    ] = False,
    status: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Only print the progress of a run.")
    ] = None,
) -> None:
    """Explain many predictions and store them; the same command resumes an interrupted run."""
    from graphsvx import runs  # noqa: PLC0415  (needs pyarrow, an extra)

    if status is not None:
        if dataset is not None or out is not None:
            raise InputError("--status only looks at a run; leave out the data set and --out")
        _show_status(runs.open(status).status(), status)
        return
    if dataset is None or out is None:
        raise InputError(
            "say what to explain and where to keep it: graphsvx run DATASET --out FOLDER"
        )
    backend = _backend(engine, workers, address)
    explainer = chosen_method(method, samples, hops, few, setting or [])
    net, data, names = model_and_graphs(dataset, model, checkpoint, model_seed)
    graph_level = not isinstance(data, Data)
    if (nodes if graph_level else graphs) is not None:
        right, wrong = ("--graphs", "--nodes") if graph_level else ("--nodes", "--graphs")
        raise InputError(f"{dataset} is explained by {right}, not by {wrong}")
    selection = (graphs if graph_level else nodes) or "all"
    queries = _selected_ids(selection, dataset, model_seed, data)
    command = shlex.join(["graphsvx", *sys.argv[1:]])
    with stopped_by_signals():
        try:
            done = runs.start(
                net,
                list(data) if graph_level else data,
                **{"graphs" if graph_level else "nodes": queries},
                out=out,
                method=explainer,
                backend=backend,
                seed=seed,
                retry_failed=retry_failed,
                part=part,
                command=command,
                target=target,
                scale=scale,
                class_names=names,
            )
        except KeyboardInterrupt:
            _say(f"stopped; what is done is kept in {out}. To go on:")
            _say(command)
            raise typer.Exit(130) from None
    _show_status(done.status(), out)


def _backend(name: str, workers: int | None, address: str | None) -> runs.Backend:
    from graphsvx import runs  # noqa: PLC0415  (needs pyarrow, an extra)

    if name == "ray":
        return runs.Ray(address=address, workers=workers)
    if name != "local":
        raise InputError(f"--engine must be local or ray, got {name!r}")
    if address is not None:
        raise InputError("--address is a Ray cluster's; add --engine ray")
    return runs.Local(workers)


def _selected_ids(selection: str, dataset: str, seed: int, data: Data | tuple[Data, ...]) -> Any:
    """Ids of nodes or graphs: a part of the split, a class, or numbers; None for all."""
    if selection == "all":
        return None
    if selection in ("train", "val", "test"):
        if dataset not in datasets.names():
            raise InputError(f"{dataset} is a file without a split; name nodes by number, or all")
        return datasets.load(dataset, seed).split.parts()[selection]
    kind, _, rest = selection.partition(":")
    if kind == "class":
        return _of_class(_number(rest), dataset, seed, data)
    return _numbers(selection, len(data.x) if isinstance(data, Data) else len(data))


def _numbers(selection: str, count: int) -> list[int]:
    """Numbers and ranges such as 3,7,10-20, each below `count`."""
    ids: list[int] = []
    for word in selection.split(","):
        first, dash, last = word.strip().partition("-")
        numbers = range(_number(first), _number(last if dash else first) + 1)
        if numbers and numbers[-1] >= count:  # before the range is expanded
            raise InputError(f"numbers go from 0 to {count - 1}, got {word.strip()}")
        ids += numbers
    return ids


def _of_class(label: int, dataset: str, seed: int, data: Data | tuple[Data, ...]) -> Tensor:
    """Ids of the nodes or graphs of a class."""
    labels = (
        datasets.load(dataset, seed).labels
        if dataset in datasets.names()
        else getattr(data, "y", None)
    )
    if not isinstance(labels, Tensor):
        raise InputError(f"{dataset} has no classes to choose by")
    ids = (labels == label).nonzero()[:, 0]
    if not len(ids):
        raise InputError(f"{dataset} has nothing of class {label}")
    return ids


def _number(word: str) -> int:
    if not word.strip().isdecimal() or len(word) > 18:
        raise InputError(
            "choose by all, train, val, test, class:2 or numbers such as 3,7,10-20; "
            f"got {shown(word)}"
        )
    return int(word)


def _show_status(progress: runs.Status, folder: Path) -> None:
    console = Console(highlight=False, soft_wrap=True)
    parts = [
        f"{progress.done} of {progress.total} explained",
        f"{progress.failed} failed",
        progress.state,
    ]
    if progress.damaged:
        parts.append(f"{progress.damaged} damaged files, to be made again")
    if progress.rate:
        parts.append(f"{progress.rate:.1f} a second")
    if progress.seconds_left is not None:
        parts.append(f"{_duration(progress.seconds_left)} left")
    console.print(f"{folder}: {', '.join(parts)}", markup=False)
    if progress.command is not None and progress.state != "running":
        if progress.left:
            console.print(f"to go on: {one_line(progress.command)}", markup=False)
        elif progress.failed and "--retry-failed" not in progress.command:
            again = f"{one_line(progress.command)} --retry-failed"
            console.print(f"to try failures again: {again}", markup=False)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _say(text: str) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True).print(text, markup=False)


@app.command("report")
def report_run(
    folder: Annotated[Path, typer.Argument(help="A folder that `graphsvx run` filled.")],
    *,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write an HTML page that works offline.")
    ] = None,
    queries: Annotated[
        str | None,
        typer.Option(help="Which explanations go on the page: 3,7,10-20. By default the first 12."),
    ] = None,
    roles: Annotated[str, typer.Option(help="Sum nodes up by hops or by class.")] = "hops",
    top: Annotated[int, typer.Option(min=1, help="How many players to print.")] = 10,
) -> None:
    """Summarise a run: mean importance of players, and selected explanations as HTML."""
    from graphsvx import runs  # noqa: PLC0415  (needs pyarrow, an extra)

    if roles not in ("hops", "class"):
        raise InputError(f"--roles must be hops or class, got {roles!r}")
    opened = runs.open(folder)
    progress = opened.status()
    if not progress.done:
        raise DataError(f"{folder} has no explanations yet; it has {progress.failed} failures")
    overview = opened.summary(roles)
    _show_status(progress, folder)
    for title, lines in (
        ("Features", overview.features),
        *((f"Features, class {target}", part) for target, part in overview.classes.items()),
        (f"Nodes by {roles}", overview.roles),
    ):
        if lines.keys:
            Console(highlight=False).print(_table(title, lines, top))
    if html is None:
        return
    if queries is None:
        failed = opened.failures()
        stored = set(opened.table(["query"])["query"].to_pylist())
        ids = [q for q in opened.queries.tolist() if q in stored and q not in failed][:12]
    else:
        ids = _numbers(queries, int(opened.queries[-1]) + 1)
    report.write([opened[query] for query in ids], html)
    _say(f"wrote {html}")


def _table(title: str, lines: summary.Summary, top: int) -> Table:
    table = Table(title=f"{title}, {lines.explanations} explanations", box=box.SIMPLE)
    for column in ("player", "importance", "mean credit", "95 % interval", "played"):
        table.add_column(column, justify="left" if column == "player" else "right")
    for line in lines.top(top):
        table.add_row(
            Text(one_line(line.name)), f"{line.mean_absolute:.4f}", f"{line.mean:+.4f}",
            f"{line.low:+.4f} to {line.high:+.4f}", str(line.count),
        )  # fmt: skip
    return table
