"""The node's own features against those of its subgraph, on BA-Community."""

from __future__ import annotations

from collections.abc import Sequence

from graphsvx import metrics, summary
from graphsvx.baselines import Random
from graphsvx.explanation import Explanation, Ranking
from graphsvx.methods import GraphSVX, Method
from graphsvx.studies.chapters import Told
from graphsvx.studies.desk import Desk, query_of
from graphsvx.studies.estimate import Estimate
from graphsvx.studies.motifs import Asked, without_credit
from graphsvx.studies.page import Beside, Cell, Table
from graphsvx.zoo import Trained

OWN, AROUND = "the node's own", "of the subgraph"
PAPER = {OWN: 0.65, AROUND: 1.0}
METHODS: dict[str, Method] = {
    OWN: GraphSVX(),
    f"{OWN}, all of them play": GraphSVX(features="all"),
    AROUND: GraphSVX(features_of="subgraph"),
    "Random": Random(players="features", features="all"),
}


def found_features(world: Trained, one: Explanation, by: Ranking) -> float:
    """Share of the informative columns among as many features with the most credit."""
    wanted = world.dataset.node_truth.informative_features
    return metrics.accuracy(one, set(wanted or ()), by=by, level="features")


def playing(world: Trained, one: Explanation) -> float:
    """Share of the informative columns that play at all: no explanation can name the others."""
    wanted = set(world.dataset.node_truth.informative_features or ())
    return len(wanted & set(one.features)) / len(wanted)


def on_the_whole(world: Trained, some: Sequence[Explanation]) -> float:
    """The same for the mean absolute credit over all explanations."""
    wanted = set(world.dataset.node_truth.informative_features or ())
    first = summary.features(some).top(len(wanted), by="absolute")
    return sum(line.key in wanted for line in first) / len(wanted)


def measure(desk: Desk, seeds: Sequence[int]) -> Told:
    """The table and what it says."""
    cells: dict[tuple[str, str], list[list[float]]] = {}
    for seed in seeds:
        world = desk.world("ba-community", seed)
        asked = Asked.of(world, desk.pick(30, 4), desk.pick(None, 3))
        for name, method in METHODS.items():
            some = desk.explanations(world, method, asked.all, label=f"features {name}")
            if name == "Random":
                some = [without_credit(one) for one in some]
            for nodes in ("paper", "strict"):
                mine = [one for one in some if query_of(one) in getattr(asked, nodes)]
                for by in ("value", "absolute"):
                    samples = [found_features(world, one, by) for one in mine]
                    cells.setdefault((name, f"{nodes} {by}"), []).append(samples)
                samples = [playing(world, one) for one in mine]
                cells.setdefault((name, f"{nodes} playing"), []).append(samples)
            if name != "Random":
                whole = [on_the_whole(world, some)]
                cells.setdefault((name, "whole"), []).append(whole)
    table = _table(cells)
    return Told((table,), _sentence(cells), _brief(cells))


def _table(cells: dict[tuple[str, str], list[list[float]]]) -> Table:
    rows = []
    for name in METHODS:
        here: list[Cell] = []
        for column in ("paper value", "paper absolute", "strict value", "strict absolute"):
            found = Estimate.of(cells[name, column])
            here.append(Beside(found, PAPER[name]) if name in PAPER else found)
        here.append(Estimate.of(cells[name, "strict playing"]))
        whole = cells.get((name, "whole"))
        here.append(Estimate.of(whole) if whole else None)
        rows.append((name, *here))
    counts = [sum(map(len, cells[OWN, f"{nodes} value"])) for nodes in ("paper", "strict")]
    return Table(
        "BA-Community: the two informative features among the two with the most credit",
        ("features", "paper's nodes, signed", "paper's nodes, magnitude", "motif nodes, signed",
         "motif nodes, magnitude", "of these playing", "by mean magnitude over all"),
        tuple(rows),
        note=f"{counts[0]} explanations of the paper's nodes and {counts[1]} of motif nodes that "
        f"the model classifies right. *Of these playing*: share of the informative features that "
        f"are outside mu ± 0.25 sigma, so that an explanation can name them at all (motif nodes). "
        f"*By mean magnitude over all*: the same share for one ranking of all explanations of a "
        f"seed together. In brackets the paper's figures.",
    )  # fmt: skip


def _brief(cells: dict[tuple[str, str], list[list[float]]]) -> str:
    own, around = (Estimate.of(cells[name, "paper value"]).mean for name in (OWN, AROUND))
    return (
        f"on BA-Community the subgraph's features name {100 * around:.0f} % of the informative "
        f"ones (paper: 100 %), the node's own {100 * own:.0f} % (65 %)"
    )


def _sentence(cells: dict[tuple[str, str], list[list[float]]]) -> str:
    own, around = (Estimate.of(cells[name, "paper value"]) for name in (OWN, AROUND))
    magnitude = Estimate.of(cells[AROUND, "strict absolute"])
    return (
        f"On BA-Community the subgraph's features name {100 * around.mean:.0f} % of the "
        f"informative ones, the node's own {100 * own.mean:.0f} % (paper: 100 and 65 %; its "
        f"nodes, signed credit); ranked by magnitude, the subgraph's name "
        f"{100 * magnitude.mean:.0f} % on motif nodes."
    )
