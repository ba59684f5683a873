"""What the motif carries of the explainable part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from graphsvx.explain.direct import as_nodes
from graphsvx.explanation import Explanation
from graphsvx.studies.chapters import Told
from graphsvx.studies.chosen import NODE_SETS, TITLES
from graphsvx.studies.desk import Desk, query_of
from graphsvx.studies.estimate import Estimate
from graphsvx.studies.motifs import true_nodes
from graphsvx.studies.page import Beside, Cell, Picture, Table
from graphsvx.studies.properties.asked import questions
from graphsvx.studies.properties.surrogate import EXPLAINERS, explained
from graphsvx.zoo import Trained

PAPER = {"tree-cycles": 0.85, "tree-grid": 0.85, "ba-community": 0.20}
PARTS = ("own motif", "other motifs", "base graph", "own features")

Split = dict[str, float]
"""Credit of each of `PARTS`, and "all": what they are parts of."""


def split(world: Trained, explanation: Explanation) -> Split:
    """Credit by where it goes; "all" is prediction - base, or the sum of a mask's entries."""
    mine = true_nodes(world, query_of(explanation))
    planted = world.dataset.node_truth.motif_of >= 0
    found = dict.fromkeys(PARTS, 0.0)
    shown = as_nodes(explanation)
    for node, credit in shown.nodes.items():
        where = 0 if node in mine else 1 if bool(planted[node]) else 2
        found[PARTS[where]] += credit
    if explanation.edge_credit.players:
        # A mask over edges and features: only its nodes say where credit goes.
        found["all"] = sum(shown.nodes.values())
        return found
    found["own features"] = float(explanation.feature_values.sum())
    shapley = explanation.certificate.games and explanation.certificate.games[0].r2 is not None
    total = sum(shown.nodes.values()) + found["own features"]
    found["all"] = explanation.prediction - explanation.base if shapley else total
    return found


def share(groups: Sequence[Sequence[Split]], part: str) -> Estimate:
    """Sum of a part over sum of the whole, for each seed."""
    ratios = [
        [sum(one[part] for one in group) / sum(one["all"] for one in group)]
        for group in groups
        if sum(one["all"] for one in group)
    ]
    return replace(Estimate.of(ratios), count=sum(map(len, groups)))


def measure(desk: Desk, seeds: Sequence[int]) -> Told:
    """The table, a picture and what they say."""
    sets = desk.pick(NODE_SETS, ("tree-cycles",))
    found: dict[tuple[str, str], list[list[Split]]] = {}
    for name in sets:
        for seed in seeds:
            world = desk.world(name, seed)
            for explainer in EXPLAINERS:
                some = explained(desk, world, explainer, questions(desk, world))
                found.setdefault((explainer, name), []).append([split(world, one) for one in some])
    rows: list[tuple[Cell, ...]] = []
    for explainer in EXPLAINERS:
        for name in sets:
            over = found[explainer, name]
            own = share(over, PARTS[0])
            beside = explainer.startswith("GraphSVX") and name in PAPER
            rows.append(
                (
                    explainer,
                    TITLES[name],
                    Beside(own, PAPER[name]) if beside else own,
                    *(share(over, part) for part in PARTS[1:]),
                    own.count,
                )
            )
    table = Table(
        "Where the explainable part goes",
        ("explainer", "data", *PARTS, "explanations"),
        tuple(rows),
        note="Credit summed over the nodes of a seed, over the sum of prediction - base. Motif "
        "nodes that the model classifies right; the explained node has no credit of its own. "
        "GNNExplainer (its edges as nodes) and Random have no explainable part: the shares are "
        "of the sum of their masks, and say only how the masks are spread.",
    )
    shown = {
        TITLES[name]: {part: share(found[EXPLAINERS[0], name], part).mean for part in PARTS}
        for name in sets
    }
    picture = Picture(
        "shares", "Where the explainable part goes: GraphSVX, our default (mean over seeds)",
        lambda: _draw(shown),
    )  # fmt: skip
    sentence = _sentence(found, sets)
    whole = sentence + _besides(found, sets)
    return Told((table, picture), whole, f"{sentence[:1].lower()}{sentence[1:-1]}")


def _sentence(found: dict[tuple[str, str], list[list[Split]]], sets: Sequence[str]) -> str:
    said = []
    for name in sets:
        own = share(found[EXPLAINERS[0], name], PARTS[0])
        paper = f" (paper: {100 * PAPER[name]:.0f} %)" if name in PAPER else ""
        said.append(f"{100 * own.mean:.0f} % on {TITLES[name]}{paper}")
    return f"The motif carries {', '.join(said)} of the explainable part."


def _besides(found: dict[tuple[str, str], list[list[Split]]], sets: Sequence[str]) -> str:
    """Where the paper sees the rest: features, and motifs of the other community."""
    if "ba-community" not in sets:
        return ""
    over = found[EXPLAINERS[0], "ba-community"]
    rest = [f"{part} {100 * share(over, part).mean:.0f} %" for part in PARTS[1:]]
    return (
        f" On BA-Community the paper names features and other motifs as what else matters; here "
        f"they have: {', '.join(rest)}."
    )


def _draw(shown: dict[str, dict[str, float]]) -> Any:
    from graphsvx.studies import bars  # noqa: PLC0415  (needs matplotlib, an extra)

    return bars.stacked(shown, "part of prediction - base")
