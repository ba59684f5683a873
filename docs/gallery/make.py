"""Makes the gallery, and what the README and the start page show below their code.

Run `scripts/gallery`. The first run trains the six models (some minutes on one core) and keeps
them; MUTAG needs files that are downloaded. Every number on the page is computed here.
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console

import graphsvx
from graphsvx.results.credit import Ranking
from graphsvx.results.explanation import Explanation
from graphsvx.utils.files import atomic_write
from graphsvx.views import html, plot
from graphsvx_lab import zoo
from graphsvx_lab.datasets.catalogue import TRUTH_TITLES as TITLES
from graphsvx_lab.zoo import Trained

HERE = Path(__file__).parent
PAGE = HERE.parent / "gallery.md"
WITH_OUTPUT = {"hero": HERE.parents[1] / "README.md", "start": HERE.parent / "start.md"}
"""Pages whose code is followed by what it prints, by the name of the picture of `explanation`."""
SNIPPET = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n.*?^```\n)?", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Example:
    """One explanation of the gallery with what is known to be right."""

    name: str
    trained: Trained
    explanation: Explanation
    truth: frozenset[int]
    options: dict[str, Any]
    """For `plot.graph`: the important part is as large as the truth."""

    def hits(self, by: Ranking) -> int:
        """How many nodes of the truth are among as many nodes with the most credit."""
        best = self.explanation.top_nodes(len(self.truth), by)
        return len({player.id for player in best} & self.truth)


def examples() -> Iterator[Example]:
    """The six of the paper's Table 1."""
    for name in TITLES:
        trained = zoo.ensure(name)
        yield (
            node_example(name, trained)
            if trained.dataset.task == "node"
            else graph_example(name, trained)
        )


def node_example(name: str, trained: Trained) -> Example:
    """The first motif node of the test part that the model classifies right.

    In the houses of BA-Shapes it is the first roof: the model says "bottom" for an isolated node,
    so only the other roles need the neighbourhood.
    """
    graph, truth = trained.dataset.graph, trained.dataset.node_truth
    with torch.no_grad():
        said = trained.model(graph.x, graph.edge_index).argmax(1)
    node = next(
        v
        for v in trained.dataset.split.test.tolist()
        if truth.motif_of[v] >= 0
        and said[v] == graph.y[v]
        and (name != "ba-shapes" or truth.role[v] == 1)
    )
    explanation = graphsvx.explain(
        trained.model, graph, node=node, targets="all", class_names=trained.dataset.class_names
    )
    motif = truth.motif(node) - {node}
    return Example(name, trained, explanation, motif, {"top": len(motif)})


def graph_example(name: str, trained: Trained) -> Example:
    """The first graph of the test part with a known motif that the model classifies right."""
    dataset = trained.dataset
    known = set(dataset.graph_truth.graphs())
    for index in dataset.split.test.tolist():
        graph = dataset.graphs[index]
        batch = torch.zeros(graph.num_nodes, dtype=torch.long)
        with torch.no_grad():
            said = int(trained.model(graph.x, graph.edge_index, batch=batch).argmax())
        if index in known and said == int(graph.y):
            break
    explanation = graphsvx.explain(
        trained.model, graph, graph=True, targets="all", class_names=dataset.class_names
    )
    motif = frozenset(dataset.graph_truth.graph_nodes(index).nonzero().flatten().tolist())
    options: dict[str, Any] = {"top": len(motif)}
    if name == "mutag" and dataset.feature_names is not None:
        options["atoms"] = [dataset.feature_names[i] for i in graph.x.argmax(1).tolist()]
        orders = (graph.edge_attr.argmax(1) + 1).tolist()
        pairs = graph.edge_index.t().tolist()
        options["bonds"] = {(u, v): o for (u, v), o in zip(pairs, orders, strict=True)}
    return Example(name, trained, explanation, motif, options)


def figure(width: float, height: float) -> Figure:
    """A figure that belongs to nobody's pyplot state."""
    made = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(made)
    return made


def kept(made: Figure, name: str, dpi: int = 150) -> None:
    """Write a picture, whole or not at all."""
    made.draw_without_rendering()
    with atomic_write(HERE / f"{name}.png") as part:
        made.savefig(part, dpi=dpi, metadata={"Software": None})


def overview(found: list[Example]) -> None:
    """All six in one picture, as in the paper's table."""
    made = figure(9.6, 5.6)
    for ax, example in zip(made.subplots(2, 3).flat, found, strict=True):
        plot.graph(
            example.explanation, ax, title=False, legend=False, colorbar=False, max_nodes=30,
            labels=False, **example.options,
        )  # fmt: skip
        ax.set_title(TITLES[example.name], fontsize=11)
        ax.set_anchor("N")
    kept(made, "table1")


def others(found: list[Example]) -> None:
    """One picture of every other kind, from the same data sets."""
    by_name = {example.name: example for example in found}
    shapes, community = by_name["ba-shapes"], by_name["ba-community"]
    made = figure(5.6, 3.6)
    plot.waterfall(shapes.explanation, made.add_subplot())
    kept(made, "waterfall")
    made = figure(5.4, 3.9)
    plot.bars(community.explanation, made.add_subplot(), top=10)
    kept(made, "bars")
    explanations = motif_explanations(community.trained, 24)
    made = figure(5.6, 3.6)
    inputs = torch.stack([community.trained.dataset.graph.x[e.centres[0]] for e in explanations])
    plot.beeswarm(explanations, made.add_subplot(), top=8, inputs=inputs.numpy())
    kept(made, "beeswarm")
    made = figure(6.4, 3.2)
    plot.heatmap(explanations, made.add_subplot(), top=8)
    kept(made, "heatmap")
    cycles = motif_explanations(by_name["tree-cycles"].trained, 10)
    truth = by_name["tree-cycles"].trained.dataset.node_truth
    made = figure(6.0, 3.6)
    plot.share(cycles, [truth.motif(e.centres[0]) for e in cycles], made.add_subplot())
    kept(made, "share")
    made = figure(5.6, 3.6)
    plot.convergence(budgets(community), made.add_subplot(), players="nodes", top=6)
    kept(made, "convergence")


def motif_explanations(trained: Trained, most: int) -> list[Explanation]:
    """The first motif nodes, explained for their own class."""
    graph, truth = trained.dataset.graph, trained.dataset.node_truth
    return [
        graphsvx.explain(
            trained.model, graph, node=node, target=int(graph.y[node]),
            class_names=trained.dataset.class_names,
        )
        for node in truth.nodes().tolist()[:most]
    ]  # fmt: skip


def budgets(example: Example) -> list[Explanation]:
    """The same prediction with more and more model calls."""
    node = example.explanation.centres[0]
    return [
        graphsvx.explain(
            example.trained.model, example.trained.dataset.graph, node=node,
            target=example.explanation.target, method=graphsvx.GraphSVX(samples=samples),
        )
        for samples in (400, 800, 1600, 3200, 6400)
    ]  # fmt: skip


def page(found: list[Example]) -> str:
    """The page around the pictures."""
    rows = []
    for example in found:
        e, size = example.explanation, len(example.truth)
        rows.append(
            f"| {TITLES[example.name]} | {e.title} | {e.prediction:.3f} | "
            f"{e.node_credit.players} | {'exact' if e.certificate.exact else 'estimated'} | "
            f"{e.certificate.calls} | "
            f"{example.hits('value')} of {size} | {example.hits('absolute')} of {size} |"
        )
    parts = [HEAD, *rows, ""]
    for example in found:
        title = TITLES[example.name]
        parts += [
            f"## {title}", "",
            f"![Explanation of {example.explanation.title} on {title}](gallery/{example.name}.png)",
            "", f"> {example.explanation.describe()}", "",
        ]  # fmt: skip
    return "\n".join([*parts, TAIL])


HEAD = """# Gallery

Made by `scripts/gallery` from the data sets and models of the paper; the script computes every
number on this page. Each explanation is the first one that its data set offers: the first motif
node (in BA-Shapes the first roof), or the first graph with a known motif, of the test part that
the model classifies right. None was picked for its looks. The models were trained on one processor;
on another, training rounds differently, and predictions and credit differ a little.

![The six explanations of the paper's Table 1](gallery/table1.png)

Fill shows a node's class where it has one, ring and size its signed credit: red speaks for the
answer, blue against it. Edges between the nodes with the most absolute credit, as many as the
motif has, are bold. The last two columns count how many of the motif's nodes are among as many
nodes with the most credit, by signed and by absolute value. They show single explanations, good
or bad; how often the motif is found over whole data sets is measured in the results.

| Data set | Explained | Prediction | Nodes that play | Credit | Model calls | By value | Absolute |
|---|---|---|---|---|---|---|---|"""

TAIL = """## Other pictures

Features, nodes and edges can be drawn in other ways, each on the `ax` that you give.

From base to prediction (`plot.waterfall`, BA-Shapes):

![Waterfall](gallery/waterfall.png)

Bars with 95 % intervals (`plot.bars`, BA-Community):

![Bars](gallery/bars.png)

Features of many nodes (`plot.beeswarm`, BA-Community):

![Beeswarm](gallery/beeswarm.png)

The same node by node (`plot.heatmap`; hatched where a feature does not play because it is near its
mean):

![Heat map](gallery/heatmap.png)

Base, motif and the rest (`plot.share`, Tree-Cycles):

![Shares](gallery/share.png)

More model calls, narrower bands (`plot.convergence`, BA-Community):

![Convergence](gallery/convergence.png)

`plot.noise_kde` draws how many noisy features or nodes each method lets in, from the counts of a
noise study: [features](results/noisy-features.md), [nodes](results/noisy-nodes.md).

`explanation.to_html("why.html")` writes all of it into one file that opens offline, with a graph
to zoom, drag and click; [this one](gallery/report.html) is of BA-Shapes:

![The report in a browser](gallery/report.png)

## The explorer

`graphsvx serve digits` shows all of it live; `python docs/gallery/explorer.py` makes the pictures.

Why: credit by distance, by branch and of pairs:

![Why](gallery/explorer-why.png)

What if: the model's own answer without node 1729:

![What if](gallery/explorer-what-if.png)

Compare two methods:

![Compare](gallery/explorer-compare.png)

The overview of a run, and molecules to pick from:

![Overview](gallery/explorer-overview.png)

![Molecules](gallery/explorer-molecules.png)
"""


def run_snippets(page: Path) -> Explanation:
    """Run the code of a page, write what each block prints below it, and return `explanation`."""
    names: dict[str, Any] = {}

    def with_output(block: re.Match[str]) -> str:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(block[1], names)  # noqa: S102  (code of our own pages)
        output = "\n".join(line.rstrip() for line in printed.getvalue().rstrip().split("\n"))
        return f"```python\n{block[1]}```\n" + (f"\n```text\n{output}\n```\n" if output else "")

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        text = SNIPPET.sub(with_output, page.read_text(encoding="utf-8"))
    with atomic_write(page) as part:
        part.write_text(text, encoding="utf-8")
    return names["explanation"]


def photograph(console: Console) -> None:
    """The report as a browser shows it; the old picture stays where there is no Chromium."""
    browser = shutil.which("chromium")
    if browser is None:
        console.print("no chromium: report.png stays as it is")
        return
    with tempfile.TemporaryDirectory() as profile, atomic_write(HERE / "report.png") as part:
        subprocess.run(  # noqa: S603  (our own file in a browser found on the path)
            [
                browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                "--no-first-run", "--disable-background-networking", "--disable-component-update",
                "--disable-sync", f"--user-data-dir={profile}", "--window-size=1180,1290",
                f"--screenshot={part}", (HERE / "report.html").as_uri(),
            ],
            check=True, capture_output=True, timeout=120,
        )  # fmt: skip


def main() -> None:
    """Make everything."""
    console = Console()
    for name, path in WITH_OUTPUT.items():
        plot.save(run_snippets(path), HERE / f"{name}.png", dpi=110)
        console.print(f"{path.name}: outputs and {name}.png")
    found = []
    for example in examples():
        plot.save(example.explanation, HERE / f"{example.name}.png", dpi=110, **example.options)
        console.print(f"{example.name}: {example.explanation.title}", markup=False)
        found.append(example)
    shapes = found[0]
    overview(found)
    others(found)
    html.write(
        shapes.explanation, HERE / "report.html", "Why is this a roof?",
        data=shapes.trained.dataset.graph,
    )  # fmt: skip
    photograph(console)
    with atomic_write(PAGE) as part:
        part.write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    main()
