"""`graphsvx run`: thousands of explanations, kept in a folder; `graphsvx report`: read them."""

from __future__ import annotations

import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from graphsvx.cli import app, options
from graphsvx.cli.options import MethodChoice, ModelChoice, parse_nodes, types_of_nodes
from graphsvx.cli.stopping import stopped_at_once, stopped_by_signals
from graphsvx.errors import DataError, InputError
from graphsvx.utils.console import message, simple_table, stdout_console
from graphsvx.utils.printable import one_line
from graphsvx_lab.datasets.catalogue import CATALOGUE

if TYPE_CHECKING:
    from torch import Tensor

    from graphsvx import runs
    from graphsvx.cli.loading import Graphs
    from graphsvx.results import summary

EXAMPLES = """
Examples:

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
    edges: Annotated[
        str | None,
        typer.Option(
            metavar="PAIRS",
            help='Links: pairs such as "3,7; 8,9", a file with a pair a line, or all.',
        ),
    ] = None,
    relation: Annotated[
        str | None,
        typer.Option(help="The relation of all links by number or name, for relational models."),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            help='Groups of nodes, each for its mean score: "3,7,10-20; 8,9", or a file with '
            "a group a line.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where results go.")] = None,
    model: options.Model = None,
    weights: options.Weights = None,
    checkpoint: options.Checkpoint = None,
    method: options.MethodName = "graphsvx",
    samples: options.Samples = None,
    hops: options.Hops = None,
    order: options.Order = None,
    sufficient: options.Sufficient = None,
    flip: options.Flip = False,
    few: options.Few = None,
    setting: options.Setting = None,
    target: options.Target = None,
    output: options.ModelOutput = "raw",
    scale: options.Scale = "probability",
    seed: options.Seed = 0,
    model_seed: options.ModelSeed = 0,
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
    status: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Only say how far a run is.")
    ] = None,
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
    model_choice = ModelChoice(model, weights, checkpoint, model_seed)
    method_choice = MethodChoice(method, samples, hops, few, tuple(setting or ()), order=order)
    model_choice.check(dataset)
    method_choice.check(model_choice)
    options.check_extra("pyarrow", "data")

    with stopped_at_once():
        from graphsvx import runs
        from graphsvx.cli import loading

    chosen_backend = _backend(backend, workers, address)
    loaded = loading.load(dataset, model_choice, as_graphs=graphs is not None)
    explainer = method_choice.build()
    selectors = {"nodes": nodes, "graphs": graphs, "edges": edges, "groups": groups}
    queries = _queries(dataset, model_seed, loaded.graphs, selectors)
    if relation is not None:
        if edges is None:
            raise InputError("--relation is that of links; name the links with --edges")
        queries["relation"] = options.parse_relation(relation)
    command = shlex.join(["graphsvx", *sys.argv[1:]])
    with stopped_by_signals():
        try:
            done = runs.start(
                loaded.model,
                list(loaded.graphs) if isinstance(loaded.graphs, tuple) else loaded.graphs,
                **queries,
                out=out,
                method=explainer,
                backend=chosen_backend,
                seed=seed,
                retry_failed=retry_failed,
                sufficient=sufficient,
                flip=flip,
                part=part,
                command=command,
                target=options.parse_class(target),
                **loaded.reading(output, scale),
                class_names=None if edges is not None else loaded.class_names,
                feature_names=loaded.feature_names,
            )
        except KeyboardInterrupt:
            message(f"stopped; what is done is kept in {out}. To go on:")
            message(command)
            raise typer.Exit(130) from None
    _show_status(done, out)


def _queries(
    dataset: str, seed: int, about: Graphs, selectors: dict[str, str | None]
) -> dict[str, Any]:
    """The argument of `runs.start` that names the queries."""
    named = [name for name, text in selectors.items() if text is not None]
    if len(named) > 1:
        raise InputError(f"one kind of query at a time, got {' and '.join(named)}")
    many = isinstance(about, tuple)
    kind = named[0] if named else "graphs" if many else "nodes"
    if (kind == "graphs") != many:
        right = "--graphs" if many else "--nodes, --edges or --groups"
        raise InputError(f"{dataset} is explained by {right}, not by --{kind}")
    text = selectors[kind] or "all"
    if isinstance(about, tuple) or kind == "nodes":
        return {kind: _selected_ids(text, dataset, seed, about)}
    if kind == "edges" and text == "all" and not types_of_nodes(about):
        return {kind: [[u, v] for u, v in about.edge_index.t().tolist() if u != v]}
    if types_of_nodes(about) or "edge_type" in about:
        return {kind: [parse_nodes(about, line, f"--{kind}") for line in _lines(text)]}
    return {kind: [_numbers(line, about.num_nodes) for line in _lines(text)]}


def _lines(text: str) -> list[str]:
    """Lines of a file, or parts of a text between semicolons; empty ones are left out."""
    with suppress(OSError):  # of a text that is no name of a file
        if (path := Path(text)).is_file():
            return [line for line in _text_of(path).splitlines() if line.strip()]
    return [line for line in text.split(";") if line.strip()]


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{str(path)!r} cannot be read: {error}") from error


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


def _selected_ids(words: str, dataset: str, seed: int, about: Graphs) -> Any:
    """Which nodes or graphs: a part of the split, a class, or numbers."""
    from graphsvx_lab import datasets

    types = types_of_nodes(about)
    if words == "all" and not types:
        return None
    if words in ("train", "val", "test"):
        if dataset not in CATALOGUE:
            raise InputError(f"{dataset} is a file without a split; name nodes by number, or all")
        return datasets.load(dataset, seed).split.parts()[words]
    kind, _, rest = words.partition(":")
    if kind in types:
        return _of_type(kind, rest or "all", dataset, seed, about)
    if kind == "class":
        return _of_class(_number(rest), dataset, seed, about)
    if types:
        raise InputError(f"say which type of nodes: {types[0]}:test, {types[0]}:3,7; got {words}")
    return _numbers(words, len(about) if isinstance(about, tuple) else about.num_nodes)


def _of_type(node_type: str, words: str, dataset: str, seed: int, about: Any) -> tuple[str, Any]:
    """Nodes of one type of a typed graph: paper:test, author:3,7."""
    from graphsvx_lab import datasets

    if words == "all":
        return node_type, range(about[node_type].num_nodes)
    if words in ("train", "val", "test") or words.startswith("class:"):
        if dataset in CATALOGUE and datasets.load(dataset, seed).node_type != node_type:
            raise InputError(f"{dataset} has no classes of {node_type!r}; name them by number")
        return node_type, _selected_ids(words, dataset, seed, about)
    return node_type, _numbers(words, about[node_type].num_nodes)


def _numbers(words: str, count: int) -> list[int]:
    """Numbers and ranges such as 3,7,10-20, each below `count`."""
    ids: list[int] = []
    for part in words.split(","):
        first, dash, last = part.strip().partition("-")
        numbers = range(_number(first), _number(last if dash else first) + 1)
        if numbers and numbers[-1] >= count:  # before a list of them is made
            raise InputError(f"numbers go from 0 to {count - 1}, got {part.strip()}")
        ids += numbers
    return ids


def _of_class(label: int, dataset: str, seed: int, about: Graphs) -> Tensor:
    from torch import Tensor

    from graphsvx_lab import datasets

    stored = None if isinstance(about, tuple) else about.get("y")
    labels = datasets.load(dataset, seed).labels if dataset in CATALOGUE else stored
    if not isinstance(labels, Tensor):
        raise InputError(f"{dataset} has no classes to choose by")
    ids = (labels == label).nonzero()[:, 0]
    if not len(ids):
        raise InputError(f"{dataset} has nothing of class {label}")
    return ids


def _number(word: str) -> int:
    from graphsvx.utils.constraints import shown

    if not word.strip().isdecimal() or len(word) > 18:
        raise InputError(
            "choose by all, train, val, test, class:2 or numbers such as 3,7,10-20; "
            f"got {shown(word)}"
        )
    return int(word)


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
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page that opens offline.")
    ] = None,
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
        failed = opened.failures()
        answered = set(opened.table(["query"])["query"].to_pylist())
        selected = [q for q in opened.queries.tolist() if q in answered and q not in failed][:500]
    else:
        selected = _numbers(queries, int(opened.queries[-1]) + 1)
    report.write([opened[query] for query in selected], html)
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
