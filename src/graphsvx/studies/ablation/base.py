"""The base value against the mean prediction and the class balance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphsvx.explain.regression import WLS
from graphsvx.methods import GraphSVX
from graphsvx.studies.ablation.reduction import drawn_test_nodes
from graphsvx.studies.chapters import Told
from graphsvx.studies.chosen import NODE_SETS, TITLES
from graphsvx.studies.desk import Desk
from graphsvx.studies.estimate import Estimate
from graphsvx.studies.page import Beside, Cell, Part, Picture, Table
from graphsvx.zoo import Trained

PAPER_BASE = (0.12, 0.10, 0.15, 0.27, 0.15, 0.12, 0.08)
PAPER_BALANCE = (0.13, 0.09, 0.15, 0.29, 0.15, 0.11, 0.07)
"""Cora's classes in the order of its files, which is that of the paper's list."""
# The base value is the score of the empty coalition: it needs no more rows than that.
METHOD = GraphSVX(samples=50, regression=WLS())
AT_MEAN = GraphSVX(samples=50, features="all", regression=WLS())
ROWS = (
    "class balance",
    "mean prediction",
    "base value",
    "base value, all features at their mean",
)


def distance(p: Tensor, q: Tensor) -> float:
    """Total variation: half the sum of |p - q|; 0 for equal distributions, at most 1."""
    return 0.5 * float((p - q).abs().sum())


@dataclass(frozen=True, eq=False)
class Levels:
    """Four distributions over the classes of one world."""

    by_row: dict[str, Tensor]
    explanations: int

    @classmethod
    def of(cls, desk: Desk, world: Trained, nodes: Sequence[int]) -> Levels:
        """Measured on the given nodes; the class balance is that of all nodes."""
        data = world.dataset
        with torch.no_grad():
            scores = world.model(data.graph.x, data.graph.edge_index)[list(nodes)].softmax(-1)
        some = desk.explanations(world, METHOD, nodes, label="base values", targets="all")
        # With every feature at its mean an isolated node is the same wherever it was.
        one = desk.explanations(world, AT_MEAN, nodes[:1], label="base, all", targets="all")
        counts = torch.bincount(data.labels, minlength=data.classes).double()
        return cls(
            {
                ROWS[0]: counts / counts.sum(),
                ROWS[1]: scores.double().mean(0),
                ROWS[2]: torch.stack([each.bases for each in some]).mean(0),
                ROWS[3]: one[0].bases,
            },
            len(some),
        )


def measure(desk: Desk, seeds: Sequence[int]) -> Told:
    """Class by class on Cora, and as one distance on the other sets."""
    sets: list[tuple[str, str, str | None]] = []
    if not desk.quick and desk.missing("cora") is None:
        sets += [("Cora, GCN", "cora", "gcn"), ("Cora, GAT", "cora", "gat")]
    names = desk.pick(NODE_SETS, ("tree-cycles",))
    sets += [(TITLES[name], name, None) for name in names]
    found: dict[str, list[Levels]] = {}
    for title, name, model in sets:
        for seed in seeds:
            world = desk.world(name, seed, model)
            nodes = drawn_test_nodes(world, desk.pick(40, 5))
            found.setdefault(title, []).append(Levels.of(desk, world, nodes))
    parts: list[Part] = []
    if "Cora, GCN" in found:
        parts += [_classes(title, found[title]) for title in ("Cora, GCN", "Cora, GAT")]
        shown = _shown(found["Cora, GCN"])
        parts.append(
            Picture("base", "Cora, GCN: base value and class balance", lambda: _draw(shown))
        )
    parts.append(_distances(found))
    return Told(tuple(parts), _sentence(found), _brief(found))


def _classes(title: str, over: list[Levels]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for row in ROWS:
        cells = _estimates(over, row)
        paper = {ROWS[0]: PAPER_BALANCE, ROWS[2]: PAPER_BASE}.get(row)
        shown: list[Cell] = [
            Beside(cell, paper[i]) if paper else cell for i, cell in enumerate(cells)
        ]
        rows.append((row, *shown))
    count = sum(one.explanations for one in over)
    return Table(
        f"{title}: base value of each class",
        ("", *(f"class {i}" for i in range(len(PAPER_BASE)))),
        tuple(rows),
        note=f"{count} explanations of test nodes. Base value: the score of the isolated node with "
        f"its features (those that stand out) at their mean. In brackets the paper's figures; its "
        f"classes are in the order of Cora's files.",
    )


def _estimates(over: list[Levels], row: str) -> list[Estimate]:
    table = torch.stack([one.by_row[row] for one in over])
    return [Estimate.of([[value] for value in column]) for column in table.t().tolist()]


def _distances(found: dict[str, list[Levels]]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for title, over in found.items():
        uniform = torch.full_like(over[0].by_row[ROWS[0]], 1 / len(over[0].by_row[ROWS[0]]))
        rows.append(
            (
                title,
                _over(over, lambda one: distance(one.by_row[ROWS[2]], one.by_row[ROWS[1]])),
                _over(over, lambda one: distance(one.by_row[ROWS[2]], one.by_row[ROWS[0]])),
                _over(over, lambda one: distance(one.by_row[ROWS[3]], one.by_row[ROWS[0]])),
                _over(over, lambda one, flat=uniform: distance(flat, one.by_row[ROWS[0]])),
                sum(one.explanations for one in over),
            )
        )
    return Table(
        "Is the base value the mean prediction? Distance between distributions over classes",
        ("data", "base value, mean prediction", "base value, class balance",
         "base value with all features at the mean, class balance",
         "equal classes, class balance", "explanations"),
        tuple(rows),
        note="Total variation: half the sum of the absolute differences, 0 for equal "
        "distributions, 1 for disjoint ones. The paper's own two lists are "
        f"{distance(torch.tensor(PAPER_BASE), torch.tensor(PAPER_BALANCE)):.2f} apart. *Equal "
        "classes*: what saying 1 / classes everywhere gives.",
    )  # fmt: skip


def _over(over: list[Levels], value: Any) -> Estimate:
    return Estimate.of([[value(one)] for one in over])


def _shown(over: list[Levels]) -> dict[str, dict[str, Estimate]]:
    return {
        f"class {i}": {row: _estimates(over, row)[i] for row in ROWS}
        for i in range(len(over[0].by_row[ROWS[0]]))
    }


def _brief(found: dict[str, list[Levels]]) -> str:
    title = next(iter(found))
    away = _over(found[title], lambda one: distance(one.by_row[ROWS[2]], one.by_row[ROWS[0]]))
    paper = distance(torch.tensor(PAPER_BASE), torch.tensor(PAPER_BALANCE))
    return (
        f"base value and class balance are {away.mean:.2f} apart on {title} (total variation; "
        f"paper: {paper:.2f} on Cora)"
    )


def _sentence(found: dict[str, list[Levels]]) -> str:
    said = []
    for title, over in found.items():
        away = _over(over, lambda one: distance(one.by_row[ROWS[2]], one.by_row[ROWS[1]]))
        said.append(f"{away.mean:.2f} on {title}")
    paper = distance(torch.tensor(PAPER_BASE), torch.tensor(PAPER_BALANCE))
    return (
        f"The base value is {', '.join(said)} away from the mean prediction (total variation; the "
        f"paper's two lists for Cora are {paper:.2f} apart)."
    )


def _draw(shown: dict[str, dict[str, Estimate]]) -> Any:
    from graphsvx.studies import bars  # noqa: PLC0415  (needs matplotlib, an extra)

    return bars.grouped(shown, "share or probability")
