"""Player reduction: what the players that are left out would have got, had they played."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import isnan, nan
from typing import Any

import torch

from graphsvx import graph as graphs
from graphsvx import players
from graphsvx.data.base import generator
from graphsvx.explanation import Explanation
from graphsvx.methods import GraphSVX
from graphsvx.studies.chapters import Told
from graphsvx.studies.chosen import NODE_SETS, TITLES
from graphsvx.studies.desk import Desk, query_of
from graphsvx.studies.estimate import Estimate
from graphsvx.studies.motifs import Asked
from graphsvx.studies.page import Beside, Cell, Picture, Table
from graphsvx.zoo import Trained

LAMBDAS = (0.1, 0.25, 0.5, 1.0)
GROUPS = 8
"""Cora has 1,433 features, too many to tell apart within any budget here. Those inside the widest
interval play in groups, this many for each lambda, dealt at random."""
PAPER_FEATURES, PAPER_NODES = "5 %", "8 %"


@dataclass(frozen=True)
class Left:
    """What the players that a rule leaves out get in one explanation where they play."""

    credit: float
    """Their credit, summed."""
    explainable: float
    """prediction - base."""
    absolute: float
    """Their part of all absolute credit, features and nodes together; NaN if it is not known."""
    kept: int
    dropped: int


def left_out(explanation: Explanation, features: Iterable[int], nodes: Iterable[int]) -> Left:
    """Of these features and nodes, in an explanation in which they played."""
    there = explanation.features, explanation.nodes
    gone = [there[0][one] for one in features] + [there[1][one] for one in nodes]
    everything = [*there[0].values(), *there[1].values()]
    size = sum(map(abs, everything))
    return Left(
        credit=sum(gone),
        explainable=explanation.prediction - explanation.base,
        absolute=sum(map(abs, gone)) / size if size else 0.0,
        kept=len(everything) - len(gone),
        dropped=len(gone),
    )


def bands(world: Trained, node: int) -> dict[float, list[int]]:
    """For each lambda the features that it leaves out and the one before it does not."""
    found: dict[float, list[int]] = {}
    seen: set[int] = set()
    for lam in LAMBDAS:
        found[lam] = [one for one in dropped_features(world, node, lam) if one not in seen]
        seen |= set(found[lam])
    return found


def dealt(members: Sequence[int], seed: int) -> list[list[int]]:
    """At most `GROUPS` groups of about the same size, at random."""
    order = torch.randperm(len(members), generator=torch.Generator().manual_seed(seed)).tolist()
    mixed = [members[i] for i in order]
    return [mixed[i::GROUPS] for i in range(min(GROUPS, len(mixed)))]


def everybody(world: Trained, node: int) -> GraphSVX:
    """All features play, those that are left out in groups."""
    groups = tuple(
        (f"{lam:g}/{number}", tuple(sorted(group)))
        for lam, members in bands(world, node).items()
        for number, group in enumerate(dealt(members, node))
    )
    return GraphSVX(features=max(LAMBDAS), feature_groups=groups, samples=2000, r=0.85)


def left_out_groups(explanation: Explanation, lam: float, dropped: int, features: int) -> Left:
    """The same from groups of features: those of `lam` and of all smaller ones are left out.

    Inside a group credit of either sign cancels, so its absolute credit is not known.
    """
    names = explanation.feature_credit.names or ()
    credit = sum(
        float(value)
        for name, value in zip(names, explanation.feature_values, strict=True)
        if "/" in name and float(name.split("/")[0]) <= lam
    )
    playing = features + explanation.node_credit.players
    explainable = explanation.prediction - explanation.base
    return Left(credit, explainable, nan, playing - dropped, dropped)


def share(groups: Sequence[Sequence[Left]]) -> Estimate:
    """Credit of those left out over the explainable part, sums over the nodes of a seed.

    A ratio of sums: the ratio of one node says nothing where its explainable part is nearly 0.
    """
    kept = [group for group in groups if sum(one.explainable for one in group)]
    ratios = [
        [sum(one.credit for one in group) / sum(one.explainable for one in group)] for group in kept
    ]
    return replace(Estimate.of(ratios), count=sum(map(len, kept)))


def dropped_features(world: Trained, node: int, lam: float) -> list[int]:
    """Columns in which the node lies inside mu +- lambda sigma."""
    graph = graphs.check(world.dataset.graph)
    kept = players.choose_features(graph, torch.tensor([node]).numpy(), lam)
    return sorted(set(range(graph.num_features)) - set(kept.tolist()))


def beyond(explanation: Explanation, hops: int) -> list[int]:
    """Nodes that play from further away than `hops`."""
    area = explanation.neighbourhood
    away = dict(zip(area.ids.tolist(), area.hops.tolist(), strict=True))
    return [node for node in explanation.node_ids.tolist() if away[node] > hops]


def drawn_test_nodes(world: Trained, count: int) -> list[int]:
    """Some of the test nodes; the seed of the data fixes which."""
    test = world.dataset.split.test
    order = torch.randperm(len(test), generator=generator(world.dataset.seed, "ablation"))
    return sorted(test[order[:count]].tolist())


def measure(desk: Desk, seeds: Sequence[int]) -> Told:
    """The table, a picture and what they say."""
    features = _features(desk, seeds)
    by_hops = _nodes(desk, seeds)
    rows = [*_feature_rows(features), *_node_rows(by_hops)]
    table = Table(
        "Player reduction: what players that are left out would have had",
        ("left out", "data", "playing", "left out (number)", "part of the explainable part",
         "part of the absolute credit", "explanations"),
        tuple(rows),
        note='The players that a rule leaves out play for once: features = "all", hops = as far as '
        "the model looks. *Part of the explainable part*: their credit, summed over the nodes of a "
        "seed, over the sum of prediction - base; negative where it speaks against the prediction. "
        "*Part of the absolute credit*: sums of magnitudes, so nothing cancels; mean over nodes. "
        "Cora's features that are left out play in groups, dealt at random, so that their sum is "
        "known well and their magnitudes are not. In brackets the paper's figures. Beyond the "
        "depth of the model credit is 0, so nodes are left out of a radius below it.",
    )  # fmt: skip
    titles = dict.fromkeys(title for title, _ in by_hops)
    shown = {
        title: _by_distance({hops: over for (one, hops), over in by_hops.items() if one == title})
        for title in titles
    }
    picture = Picture(
        "hops", "Absolute credit by distance from the explained node (mean over seeds)",
        lambda: _draw(shown),
    )  # fmt: skip
    return Told((table, picture), _sentence(features, by_hops), _brief(features, by_hops))


def _features(desk: Desk, seeds: Sequence[int]) -> dict[tuple[str, float], list[list[Left]]]:
    found: dict[tuple[str, float], list[list[Left]]] = {}
    for seed in seeds:
        world = desk.world("ba-community", seed)
        nodes = Asked.of(world, desk.pick(20, 3)).strict
        some = desk.explanations(world, GraphSVX(features="all"), nodes, label="all features")
        for lam in LAMBDAS:
            found.setdefault(("BA-Community", lam), []).append(
                [left_out(one, dropped_features(world, query_of(one), lam), ()) for one in some]
            )
    if desk.quick or desk.missing("cora") is not None:
        return found
    for model in ("gcn", "gat"):
        for seed in seeds:
            world = desk.world("cora", seed, model)
            for node in drawn_test_nodes(world, 10):
                # Each node leaves other features out, so each has groups of its own.
                one = desk.explanations(
                    world, everybody(world, node), [node], label="all features, in groups"
                )
                for lam in LAMBDAS:
                    group = found.setdefault((f"Cora, {model.upper()}", lam), [])
                    group += [[] for _ in range(len(group), seeds.index(seed) + 1)]
                    dropped = len(dropped_features(world, node, lam))
                    group[-1] += [
                        left_out_groups(each, lam, dropped, world.dataset.features) for each in one
                    ]
    return found


def _nodes(desk: Desk, seeds: Sequence[int]) -> dict[tuple[str, int], list[list[Left]]]:
    sets: list[tuple[str, str, str | None]] = [
        (TITLES[name], name, None) for name in desk.pick(NODE_SETS, ("tree-cycles",))
    ]
    if not desk.quick and desk.missing("cora") is None:
        sets.append(("Cora, GCN", "cora", "gcn"))
    found: dict[tuple[str, int], list[list[Left]]] = {}
    for title, name, model in sets:
        for seed in seeds:
            world = desk.world(name, seed, model)
            nodes = (
                drawn_test_nodes(world, 20) if name == "cora"
                else Asked.of(world, desk.pick(20, 3)).strict
            )  # fmt: skip
            some = desk.explanations(world, GraphSVX(), nodes, label="default")
            for hops in range(world.card.settings.layers):
                found.setdefault((title, hops), []).append(
                    [left_out(one, (), beyond(one, hops)) for one in some]
                )
    return found


def _counts(over: list[list[Left]]) -> tuple[Estimate, Estimate]:
    return (
        Estimate.of([[one.kept for one in group] for group in over]),
        Estimate.of([[one.dropped for one in group] for group in over]),
    )


def _percent(found: Estimate) -> str:
    reach = "" if isnan(found.reach) else f" ± {100 * found.reach:.1f}"
    return f"{100 * found.mean:.1f}{reach} %"


def _row(what: str, title: str, over: list[list[Left]], paper: str | None) -> tuple[Cell, ...]:
    kept, dropped = _counts(over)
    part = share(over)
    absolute = Estimate.of([[one.absolute for one in group] for group in over])
    return (
        what, title, f"{kept.mean:.1f}", f"{dropped.mean:.1f}",
        Beside(part, paper) if paper else part, absolute, part.count,
    )  # fmt: skip


def _feature_rows(features: dict[tuple[str, float], list[list[Left]]]) -> list[tuple[Cell, ...]]:
    return [
        _row(f"features inside mu ± {lam:g} sigma", title, over,
             PAPER_FEATURES if lam == 0.25 and title.startswith("Cora") else None)
        for (title, lam), over in features.items()
    ]  # fmt: skip


def _node_rows(by_hops: dict[tuple[str, int], list[list[Left]]]) -> list[tuple[Cell, ...]]:
    return [
        _row(f"nodes beyond {hops} {'hop' if hops == 1 else 'hops'}", title, over,
             PAPER_NODES if hops == 2 else None)
        for (title, hops), over in by_hops.items()
        if hops
    ]  # fmt: skip


def _brief(
    features: dict[tuple[str, float], list[list[Left]]],
    by_hops: dict[tuple[str, int], list[list[Left]]],
) -> str:
    def between(over: Iterable[list[list[Left]]]) -> str:
        means = [100 * share(one).mean for one in over]
        return f"{min(means):.0f} to {max(means):.0f} %"

    near = between(over for (_, lam), over in features.items() if lam == 0.25)
    far = between(over for (_, hops), over in by_hops.items() if hops == 2)
    return (
        f"features that are left out would have had {near} of the explainable part (paper: "
        f"{PAPER_FEATURES}), nodes beyond 2 of 3 hops {far} ({PAPER_NODES})"
    )


def _sentence(
    features: dict[tuple[str, float], list[list[Left]]],
    by_hops: dict[tuple[str, int], list[list[Left]]],
) -> str:
    parts = []
    asked = {t: share(over) for (t, lam), over in features.items() if lam == 0.25}
    said = ", ".join(f"{_percent(part)} on {title}" for title, part in asked.items())
    parts.append(
        f"Features that are left out (lambda = 0.25) would have had {said} of the explainable "
        f"part (paper: {PAPER_FEATURES})"
    )
    asked = {t: share(over) for (t, hops), over in by_hops.items() if hops == 2}
    said = ", ".join(f"{_percent(part)} on {title}" for title, part in asked.items())
    parts.append(f"nodes beyond 2 of 3 hops {said} (paper: {PAPER_NODES})")
    return "; ".join(parts) + "."


def _by_distance(over: dict[int, list[list[Left]]]) -> dict[str, float]:
    """Parts of the absolute credit: the node's own features, 1 hop, 2 hops, ..."""
    further = [
        Estimate.of([[one.absolute for one in group] for group in over[hops]]).mean
        for hops in sorted(over)
    ]
    parts = {"own features": 1 - further[0]}
    for hops, (near, far) in enumerate(zip(further, [*further[1:], 0.0], strict=True), 1):
        parts[f"{hops} hop{'s' if hops > 1 else ''}"] = near - far
    return parts


def _draw(parts: dict[str, dict[str, float]]) -> Any:
    from graphsvx.studies import bars  # noqa: PLC0415  (needs matplotlib, an extra)

    return bars.stacked(parts, "part of the absolute credit", first_is_rest=True)
