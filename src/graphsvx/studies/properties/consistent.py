"""Consistency: do explanations of two models point at the same features and nodes?"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch

from graphsvx.baselines import GNNExplainer, Random
from graphsvx.data.base import generator
from graphsvx.explanation import Explanation, Ranking
from graphsvx.methods import GraphSVX, Method
from graphsvx.metrics.select import Key, scores, top_positions
from graphsvx.studies.chapters import Told
from graphsvx.studies.desk import Desk, query_of
from graphsvx.studies.estimate import Estimate
from graphsvx.studies.motifs import predicted
from graphsvx.studies.page import Beside, Cell, Picture, Table
from graphsvx.zoo import Trained

PAPER = 0.76
NODES = 12
LEVELS = ("features", "nodes")
ACROSS, SEEDS_OF_GCN, SEEDS_OF_GAT = "GCN and GAT", "GCN, two seeds", "GAT, two seeds"
COLUMNS: dict[str, tuple[float, Ranking, tuple[str, ...]]] = {
    "features, top 20 %": (0.2, "absolute", ("features",)),
    "nodes, top 20 %": (0.2, "absolute", ("nodes",)),
    "both, top 20 %": (0.2, "absolute", LEVELS),
    "both, top 10": (10, "absolute", LEVELS),
    "both, top 20 %, signed": (0.2, "value", LEVELS),
}


def pointed_at(
    explanation: Explanation,
    features: Collection[int],
    top: float,
    by: Ranking,
    levels: Sequence[str] = LEVELS,
) -> set[tuple[str, Key]]:
    """The top features (of those given) and the top nodes."""
    chosen: set[tuple[str, Key]] = set()
    for level in levels:
        keys, values = scores(explanation, level)  # type: ignore[arg-type]  # one of LEVELS
        if level == "features":
            kept = [i for i, key in enumerate(keys) if key in features]
            keys, values = [keys[i] for i in kept], values[kept]
        if keys:
            chosen |= {(level, keys[i]) for i in top_positions(values, top, by).tolist()}
    return chosen


def overlap(first: set[Any], second: set[Any]) -> float:
    """Intersection over union; 1 if both are empty."""
    return len(first & second) / len(first | second) if first | second else 1.0


def agreed(worlds: Sequence[Trained], count: int) -> list[int]:
    """Test nodes of the first world for which all models predict the same class."""
    classes = [predicted(world) for world in worlds]
    data = worlds[0].dataset
    same = [
        node for node in data.split.test.tolist()
        if len({int(found[node]) for found in classes}) == 1
    ]  # fmt: skip
    order = torch.randperm(len(same), generator=generator(data.seed, "consistency"))
    return sorted(same[i] for i in order[:count].tolist())


def measure(desk: Desk, seeds: Sequence[int]) -> Told:
    """The table, a picture and what they say."""
    if not desk.quick and (absent := desk.missing("cora")) is not None:
        return Told((), f"Consistency was not measured: {absent}", "")
    # A quick look needs no files.
    name = desk.pick("cora", "ba-community")
    methods: dict[str, Method] = {
        "GraphSVX": GraphSVX(samples=desk.pick(1000, 200)),
        "GNNExplainer": GNNExplainer(epochs=desk.pick(100, 2)),
        "Random": Random(),
    }
    found: dict[tuple[str, str, str], list[list[float]]] = {}
    for place, seed in enumerate(seeds):
        # With one seed only (a quick look) each model is compared with itself.
        after = seeds[(place + 1) % len(seeds)]
        worlds = {
            ("gcn", 0): desk.world(name, seed, "gcn"),
            ("gat", 0): desk.world(name, seed, "gat"),
            ("gcn", 1): desk.world(name, after, "gcn"),
            ("gat", 1): desk.world(name, after, "gat"),
        }
        nodes = agreed(list(worlds.values()), desk.pick(NODES, 3))
        playing: dict[int, set[int]] = {}
        for label, method in methods.items():
            pairs = _pairs(label)
            asked = {which for pair in pairs.values() for which in pair}
            some = {
                which: {
                    query_of(one): one
                    for one in desk.explanations(
                        # Another seed for another model: random numbers are not to agree.
                        world, method, nodes, label=f"consistency, {label}", seed=number,
                    )
                }
                for number, (which, world) in enumerate(worlds.items())
                if which in asked
            }  # fmt: skip
            if label == "GraphSVX":
                playing = {node: set(one.features) for node, one in some["gcn", 0].items()}
            for pair, (first, second) in pairs.items():
                for column, (top, by, levels) in COLUMNS.items():
                    samples = [
                        overlap(
                            pointed_at(some[first][node], playing[node], top, by, levels),
                            pointed_at(some[second][node], playing[node], top, by, levels),
                        )
                        for node in nodes
                        if node in some[first] and node in some[second] and node in playing
                    ]
                    found.setdefault((label, pair, column), []).append(samples)
    shown = {
        pair: {
            label: Estimate.of(found[label, pair, "both, top 20 %"])
            for label in methods
            if pair in _pairs(label)
        }
        for pair in _PAIRS
    }
    title = "Cora" if name == "cora" else name
    picture = Picture(
        "consistency", f"{title}: overlap of the top 20 % of two models", lambda: _draw(shown)
    )
    return Told((_table(found, tuple(methods), title), picture), *_words(found, title))


_PAIRS = {
    ACROSS: (("gcn", 0), ("gat", 0)),
    SEEDS_OF_GCN: (("gcn", 0), ("gcn", 1)),
    SEEDS_OF_GAT: (("gat", 0), ("gat", 1)),
}


def _pairs(label: str) -> dict[str, tuple[tuple[str, int], tuple[str, int]]]:
    """What is compared; two seeds are the bound for GraphSVX, GNNExplainer takes too long."""
    return {ACROSS: _PAIRS[ACROSS]} if label == "GNNExplainer" else _PAIRS


def _table(
    found: dict[tuple[str, str, str], list[list[float]]], methods: Sequence[str], title: str
) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for pair in _PAIRS:
        for label in methods:
            if pair not in _pairs(label):
                continue
            cells: list[Cell] = []
            for column in COLUMNS:
                value = Estimate.of(found[label, pair, column])
                beside = label == "GraphSVX" and pair == ACROSS and column.startswith("both")
                cells.append(Beside(value, PAPER) if beside else value)
            count = Estimate.of(found[label, pair, "both, top 20 %"]).count
            rows.append((pair, label, *cells, count))
    return Table(
        f"Consistency on {title}: intersection over union of what two models' explanations name",
        ("models", "explainer", *COLUMNS, "pairs"),
        tuple(rows),
        note="Test nodes for which all four models predict the same class, which is explained. The "
        "candidates are the same for all explainers: nodes within two hops, features of the node "
        "outside mu ± 0.25 sigma. Ranked by magnitude if not signed. *Two seeds*: the same kind "
        "of model from another start and another split, so about the most that two explanations "
        "of equally good models can agree.",
    )


def _words(found: dict[tuple[str, str, str], list[list[float]]], title: str) -> tuple[str, str]:
    def value(label: str, pair: str) -> Estimate:
        return Estimate.of(found[label, pair, "both, top 20 %"])

    ours = value("GraphSVX", ACROSS)
    best = Estimate.of(found["GraphSVX", ACROSS, "both, top 10"])
    bound = max(value("GraphSVX", pair).mean for pair in (SEEDS_OF_GCN, SEEDS_OF_GAT))
    brief = (
        f"explanations of a GCN and a GAT on {title} overlap by {ours.mean:.2f} (paper: {PAPER}; "
        f"two seeds of one model at most {bound:.2f}, random {value('Random', ACROSS).mean:.2f})"
    )
    sentence = (
        f"The top 20 % of the explanations of a GCN and a GAT on {title} overlap by "
        f"{ours.text()} (top 10: {best.text()}; paper: {PAPER}); two seeds of one kind of model by "
        f"{bound:.2f} at most, GNNExplainer's by {value('GNNExplainer', ACROSS).text()}, random "
        f"ones by {value('Random', ACROSS).text()}."
    )
    return sentence, brief


def _draw(shown: dict[str, dict[str, Estimate]]) -> Any:
    from graphsvx.studies import bars  # noqa: PLC0415  (needs matplotlib, an extra)

    return bars.grouped(shown, "intersection over union", paper={ACROSS: PAPER}, limits=(0, 1))
