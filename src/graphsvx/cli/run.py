"""`graphsvx run`: thousands of explanations, kept in a folder; `graphsvx report`: read them."""

from __future__ import annotations

import shlex
import sys
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from graphsvx.cli import app, options
from graphsvx.cli.options import (
    Asked,
    MethodChoice,
    ModelChoice,
    examples,
    number_or_name,
    parse_nodes,
    parse_numbers,
    types_of_nodes,
    with_records,
)
from graphsvx.cli.stopping import resumable, stopped_at_once
from graphsvx.errors import DataError, InputError
from graphsvx.utils.console import message, simple_table, stdout_console
from graphsvx.utils.printable import one_line

if TYPE_CHECKING:
    from graphsvx import runs
    from graphsvx.cli.loading import Loaded
    from graphsvx.results import summary

PARTS = ("train", "val", "test")
EXAMPLES = examples("""
    graphsvx run ba-shapes --nodes 400-459 --out runs/houses
    graphsvx run cora --model gat --nodes test --out runs/cora-gat --workers 2
    graphsvx run ba-2motifs --graphs test --out runs/motifs
    graphsvx run cora --nodes all --out runs/cora --backend ray --address auto
    graphsvx run ba-shapes --edges "400,401; 402,403" --out runs/links
    graphsvx run acm --nodes paper:test --out runs/papers
    graphsvx run fb15k-237 --edges "6180,2861" --relation 148 --set players=edges --out runs/facts
    graphsvx run ba-shapes --groups houses.txt --out runs/groups
    graphsvx run my-data.pt --model my_module:build --weights w.safetensors --out runs/mine
    graphsvx run --status runs/cora-gat
""")


@app.command(epilog=EXAMPLES)
@with_records
def run(
    dataset: Annotated[str | None, options.DATASET] = None,
    *,
    nodes: Annotated[
        str | None,
        typer.Option(help="all, train, val, test, class:2, or numbers such as 3,7,10-20."),
    ] = None,
    graphs: Annotated[str | None, typer.Option(help="The same, for a set of many graphs.")] = None,
    edges: Annotated[
        str | None,
        typer.Option(
            metavar="PAIRS",
            help='Links: pairs such as "3,7; 8,9", a file with a pair a line, or all.',
        ),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            help='Groups of nodes, each for its mean score: "3,7,10-20; 8,9", or a file with '
            "a group a line.",
        ),
    ] = None,
    out: Annotated[Path | None, options.a_folder("Where results go.")] = None,
    model_choice: ModelChoice,
    explainer: MethodChoice,
    request: Asked,
    backend: Annotated[str, typer.Option(help="Where workers run: local or ray.")] = "local",
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
    status: Annotated[Path | None, options.a_folder("Only say how far a run is.")] = None,
) -> None:
    """Explain many predictions and keep them; the same command goes on where it stopped."""
    if status is not None:
        if dataset is not None or out is not None:
            raise InputError("--status only looks at a run; leave out the data set and --out")

        with stopped_at_once():
            from graphsvx import runs

        _show_status(runs.open(status), status)
        return
    if dataset is None or out is None:
        raise InputError(
            "say what to explain and where to keep it: graphsvx run DATASET --out FOLDER"
        )
    model_choice.check(dataset)
    explainer.check(model_choice)
    request.check("--edges", edges)
    options.check_extra("pyarrow", "data")

    with stopped_at_once():
        from graphsvx import runs
        from graphsvx.cli import loading

    chosen_backend = _backend(backend, workers, address)
    loaded = loading.load(dataset, model_choice, as_graphs=graphs is not None)
    method = explainer.build()
    queries = _queries(loaded, nodes=nodes, graphs=graphs, edges=edges, groups=groups)
    command = shlex.join(["graphsvx", *sys.argv[1:]])
    with resumable(out, command):
        done = runs.start(
            loaded.model,
            loaded.data,
            **queries,
            out=out,
            method=method,
            backend=chosen_backend,
            retry_failed=retry_failed,
            sufficient=request.sufficient,
            flip=request.flip,
            part=part,
            command=command,
            **loaded.options(request, of_links=edges is not None),
        )
    _show_status(done, out)


def _queries(loaded: Loaded, **selectors: str | None) -> dict[str, Any]:
    """The argument of `runs.start` that names the queries."""
    named = [name for name, text in selectors.items() if text is not None]
    if len(named) > 1:
        raise InputError(f"one kind of query at a time, got {' and '.join(named)}")
    kind = named[0] if named else "graphs" if loaded.many else "nodes"
    if (kind == "graphs") != loaded.many:
        right = "--graphs" if loaded.many else "--nodes, --edges or --groups"
        raise InputError(f"{loaded.name} is explained by {right}, not by --{kind}")
    text = selectors[kind] or "all"
    if kind in ("nodes", "graphs"):
        return {kind: _selected_ids(text, loaded)}
    data = loaded.data
    types = types_of_nodes(data)
    if kind == "edges" and text == "all" and not types:
        return {kind: [[u, v] for u, v in data.edge_index.t().tolist() if u != v]}
    if types or "edge_type" in data:
        return {kind: [parse_nodes(data, line, f"--{kind}") for line in _lines(text)]}
    count = data.num_nodes
    return {kind: [parse_numbers(line, f"--{kind}", count) for line in _lines(text)]}


def _lines(text: str) -> list[str]:
    """Lines of a file, or parts of a text between semicolons; empty ones are left out."""
    path = Path(text)
    with suppress(OSError):  # of a text that is no name of a file
        if path.is_file():
            try:
                text = path.read_text(encoding="utf-8").replace("\n", ";")
            except (OSError, UnicodeDecodeError) as error:
                raise DataError(f"{text!r} cannot be read: {error}") from error
    return [line for line in text.split(";") if line.strip()]


def _backend(name: str, workers: int | None, address: str | None) -> runs.Backend:
    from graphsvx import runs

    if name == "ray":
        options.check_extra("ray", "ray")
        return runs.Ray(address=address, workers=workers)
    if name != "local":
        raise InputError(f"--backend must be local or ray, got {name!r}")
    if address is not None:
        raise InputError("--address is a Ray cluster's; add --backend ray")
    return runs.Local(workers)


def _selected_ids(words: str, loaded: Loaded) -> Any:
    """Which graphs, or which nodes (of one type): a part of the split, a class, or numbers."""
    if loaded.many:
        return _ids(words, loaded, len(loaded.graphs))
    types = types_of_nodes(loaded.data)
    if not types:
        return _ids(words, loaded, loaded.data.num_nodes)
    node_type, _, words_of_type = words.partition(":")
    if node_type not in types:
        raise InputError(f"say which type of nodes: {types[0]}:test, {types[0]}:3,7; got {words}")
    selection, dataset = words_of_type or "all", loaded.dataset
    needs_classes = selection in PARTS or selection.startswith("class:")
    if needs_classes and dataset is not None and dataset.node_type != node_type:
        raise InputError(f"{loaded.name} has no classes of {node_type!r}; name them by number")
    return node_type, _ids(selection, loaded, loaded.data[node_type].num_nodes)


def _ids(words: str, loaded: Loaded, count: int) -> Any:
    """Ids or positions below `count`."""
    if words == "all":
        return range(count)
    if words in PARTS:
        if loaded.dataset is None:
            raise InputError(
                f"{loaded.name} is a file without a split; name nodes by number, or all"
            )
        return loaded.dataset.split.parts()[words]
    kind, _, rest = words.partition(":")
    if kind != "class":
        option = "a run, besides all, train, val, test and class:2,"
        return parse_numbers(words, option, count)
    label, labels = number_or_name(rest.strip()), loaded.labels
    if type(label) is not int:
        raise InputError(f"a class is chosen by its number, such as class:2, got {words[:80]!r}")
    if labels is None:
        raise InputError(f"{loaded.name} has no classes to choose by")
    ids = (labels == label).nonzero()[:, 0]
    if not len(ids):
        raise InputError(f"{loaded.name} has nothing of class {label}")
    return ids


def _show_status(run: runs.Run, folder: Path) -> None:
    console, now = stdout_console(), run.status()
    parts = [f"{now.done} of {now.total} explained", f"{now.failed} failed", now.state]
    if now.damaged:
        parts.append(f"{now.damaged} damaged files, to be made again")
    if now.rate:
        parts.append(f"{now.rate:.1f} a second")
    if now.seconds_left is not None:
        parts.append(f"{_duration(now.seconds_left)} left")
    console.print(one_line(f"{folder}: {', '.join(parts)}"), markup=False, soft_wrap=True)
    if now.command is not None and now.state != "running":
        if now.left:
            console.print(f"to go on: {one_line(now.command)}", markup=False, soft_wrap=True)
        elif now.failed and "--retry-failed" not in now.command:
            again = f"{one_line(now.command)} --retry-failed"
            console.print(f"to try failures again: {again}", markup=False, soft_wrap=True)
    if now.failed:
        query, error = next(iter(run.failures().items()))
        text = one_line(f"{query} failed: {error}")
        console.print(text, markup=False, soft_wrap=True)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


@app.command("report")
def report_run(
    folder: Annotated[Path, typer.Argument(help="A folder that `graphsvx run` filled.")],
    *,
    html: Annotated[Path | None, options.a_file("Write a page that opens offline.")] = None,
    queries: Annotated[
        str | None,
        typer.Option(
            help="Which explanations go on the page: 3,7,10-20. By default the first 500."
        ),
    ] = None,
    roles: Annotated[str, typer.Option(help="Sum nodes up by hops or by class.")] = "hops",
    top: Annotated[int, typer.Option(min=1, help="How many players to print.")] = 10,
) -> None:
    """Sum a run up: what matters on the whole, and chosen explanations on one page."""
    if roles not in ("hops", "class"):
        raise InputError(f"--roles must be hops or class, got {roles!r}")

    with stopped_at_once():
        from graphsvx import runs
        from graphsvx.views import html as report

    opened = runs.open(folder)
    now = opened.status()
    if not now.done:
        raise DataError(f"{folder} has no explanations yet; it has {now.failed} failures")
    overview = opened.summary(roles)
    _show_status(opened, folder)
    for title, lines in (
        ("Features", overview.features),
        *((f"Features, class {target}", part) for target, part in overview.classes.items()),
        (f"Nodes by {roles}", overview.roles),
    ):
        if lines.keys:
            stdout_console().print(_table(title, lines, top))
    if html is None:
        return
    if queries is None:
        explanations = list(islice(opened, 500))
    else:
        numbers = parse_numbers(queries, "--queries", int(opened.queries[-1]) + 1)
        explanations = [opened[query] for query in numbers]
    report.write(explanations, html)
    message(f"wrote {html}")


def _table(title: str, lines: summary.Summary, top: int) -> Table:
    table = simple_table(f"{title}, {lines.explanations} explanations")
    for column in ("player", "importance", "mean credit", "95 % interval", "played"):
        table.add_column(column, justify="left" if column == "player" else "right")
    for line in lines.top(top):
        table.add_row(
            Text(one_line(line.name)),
            f"{line.mean_absolute:.4f}",
            f"{line.mean:+.4f}",
            f"{line.low:+.4f} to {line.high:+.4f}",
            str(line.count),
        )
    return table
