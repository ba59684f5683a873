"""Study `noisy-nodes`: how many nodes that mean nothing are among the most important ones?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphsvx.data.noise import NODES_SUFFIX
from graphsvx.explanation import Explanation
from graphsvx.studies.desk import Desk
from graphsvx.studies.estimate import Estimate
from graphsvx.studies.noise import TITLES, TOP, By, outcome, top_k
from graphsvx.studies.noise_figures import (
    MISSING,
    PAPER,
    Place,
    curves,
    kde,
    lower,
    percent,
    place_title,
    places,
    share_table,
    span,
    why,
    wins,
    with_attention,
)
from graphsvx.studies.noisy_nodes_measured import (
    BASELINES,
    METHODS,
    QUICK,
    Found,
    Size,
    measure,
)
from graphsvx.studies.page import Beside, Cell, Page, Part, Picture, Table
from graphsvx.studies.study import Study
from graphsvx.zoo.paper import ACCURACY

CLAIM = "nearly none"
PAPER_ATTENTION = {"noisy": 0.11, "normal": 0.15}
LITTLE = 0.02
"""A share of noise below this counts as nearly none."""
FIELD, NEAR = "nodes that the model sees", "direct neighbours"

RULES = f"""
## How it is measured

20 % more nodes that mean nothing are added: features drawn at random, ties to existing nodes at
random, no class, in no part of the split. Then a model is trained; each seed has noise, split and
weights of its own. Test nodes with at least one neighbour are drawn at random, whatever the model
says about them, and their predicted class is explained as a probability.

- **Candidates** are the same for all methods: all nodes that the model sees from the explained one
  (two hops), without itself; in a second table its direct neighbours. GNNExplainer scores edges; a
  node has the score of largest magnitude among its edges.
- **k** is {TOP}, or 20 % of the candidates where there are fewer than 100 (rounded, at least 1).
- **Ranking** is by signed value (what speaks for the class); by absolute value beside it.
- **Ties**: a candidate without credit has 0; where candidates tie for the last places, the expected
  number of noisy ones counts.
- **Chance** is the share of noisy nodes among the candidates.

k is the paper's and methods have the defaults of this package; tables were laid out on seed 100,
which is not among those scored. Intervals are over seeds.
"""


def make(desk: Desk) -> Page:
    """Measure, then write it down."""
    found = measure(desk, desk.pick(Size(), QUICK))
    here = [
        place
        for place in places(found.size.datasets, found.size.models)
        if found.everywhere.methods(*place)
    ]
    title = "Noisy nodes among the most important ones"
    settings = {
        "seeds": found.size.seeds,
        "nodes for each model and seed": dict(found.size.nodes),
        "explained score": "probability of the predicted class",
    }
    if not here:
        return Page(title, (RULES,), "Not measured: the raw files are missing.", settings)
    parts = (*_counted(found, here), *_attention(found), *_reasons(found, here))
    return Page(title, (RULES, *parts), _headline(found, here), settings)


def _headline(found: Found, here: Sequence[Place]) -> str:
    shares = [found.everywhere.share(*place, PAPER).mean for place in here]
    chance = [found.everywhere.base(*place, PAPER).mean for place in here]
    absolute = [found.everywhere.share(*place, PAPER, by="absolute").mean for place in here]
    won, games = wins(found.everywhere, here, PAPER, BASELINES)
    trained = [p for p in here if found.everywhere.groups(*p, "GNNExplainer")]
    learned = [found.everywhere.share(*place, "GNNExplainer").mean for place in trained]
    against = [
        _of(found.effects[place], lambda one: one.harming(noisy=True)).mean for place in here
    ]
    sizes = _sizes(found, here)
    nearly = "holds" if max(shares) < LITTLE else "does not hold"
    below = "holds" if won == games else "does not hold everywhere"
    looked = {loops: found.attention[here[0][0], loops] for loops in (False, True)}
    told = [
        f"{_of(looked[loops], lambda a: a.noisy).mean:.2f} against "
        f"{_of(looked[loops], lambda a: a.normal).mean:.2f} {'with' if loops else 'without'} loops"
        for loops in (False, True)
    ]
    return (
        f"Of the top nodes of GraphSVX as in the paper, by value, {span(shares)} are noise "
        f'({span(chance)} of the candidates are): "nearly no noisy nodes" {nearly}, "below all '
        f'baselines" {below} ({won} of {games} comparisons). GNNExplainer, almost as good in the '
        f"paper, has {span(learned)}. By absolute value GraphSVX has {span(absolute)}: deleting "
        f"single nodes shows that {span(against)} of the noisy ones speak against the class, with "
        f"{min(sizes):.2f} to {max(sizes):.2f} times the effect of other nodes. The GAT's "
        f"attention on noisy against normal nodes ({TITLES[here[0][0]]}) is {told[0]}, "
        f"{told[1]} (paper: 0.11 against 0.15)."
    )


def _counted(found: Found, here: Sequence[Place]) -> list[Part]:
    where = places(found.size.datasets, found.size.models)
    kinds = ((found.everywhere, FIELD), (found.near, NEAR))
    parts: list[Part] = [
        "## Noise among the top",
        share_table(
            f"Number of noisy nodes among the top k, by value; candidates: {FIELD}",
            found.everywhere, where, METHODS, by="value", numbers=True, claim=CLAIM,
            note=lower(found.everywhere, here, "value", BASELINES),
        ),
        Picture(
            "kde",
            "Noisy nodes among the top k, by value: densities over all explained nodes",
            lambda: kde(found.everywhere, here, METHODS, "nodes"),
        ),
    ]  # fmt: skip
    rankings: tuple[tuple[By, str], ...] = (
        ("value", "by value"), ("absolute", "by absolute value"),
    )  # fmt: skip
    for by, words in rankings:
        parts += [
            share_table(
                f"Share of noise among the top k, {words}; candidates: {name}",
                tally, where, METHODS, by=by,
                claim=CLAIM if by == "value" and tally is found.everywhere else None,
                note=lower(tally, here, by, BASELINES),
            )
            for tally, name in kinds
        ]  # fmt: skip
    place = with_attention(here)
    parts.append(
        Picture(
            "curves",
            "Share of noise among the top k, by value, for k as a share of all candidates; "
            "dotted: chance",
            lambda: curves(
                {f"Candidates: {name}": tally for tally, name in kinds}, place, METHODS, "nodes"
            ),
        )
    )
    return parts


def _attention(found: Found) -> list[Part]:
    rows: list[tuple[Cell, ...]] = []
    words = []
    for dataset in found.size.datasets:
        for loops in (False, True):
            title = f"{place_title((dataset, 'gat'))}, {'with' if loops else 'without'} loops"
            looked = found.attention.get((dataset, loops))
            if not looked:
                rows.append((title, *[MISSING] * 6))
                continue
            noisy, normal = (_of(looked, lambda a: a.noisy), _of(looked, lambda a: a.normal))
            paper = dataset == "cora"
            to_even = (
                _of(looked, lambda a: a.noisy / a.even_noisy),
                _of(looked, lambda a: a.normal / a.even_normal),
            )
            rows.append(
                (
                    title,
                    Beside(noisy, PAPER_ATTENTION["noisy"]) if paper else noisy,
                    Beside(normal, PAPER_ATTENTION["normal"]) if paper else normal,
                    _of(looked, lambda a: a.even_noisy),
                    _of(looked, lambda a: a.even_normal),
                    *to_even,
                )
            )
            words.append(f"{title}: {to_even[0].mean:.2f} and {to_even[1].mean:.2f}")
    return [
        "## Do the models use the noise? Attention\n\nThe paper checks its assumption by the "
        "GAT's attention. Here: the attention that v pays to u (an edge from u to v) is averaged "
        "over the heads of a layer, then over the two layers, then over all edges from u (with or "
        "without u's attention to itself, its loop), then over noisy and over normal nodes u. "
        "Attention to all neighbours of v and itself adds up to 1, so a node with neighbours of "
        "low degree gets more, whatever the model has learnt. Even attention, the same for all "
        "neighbours, shows that part.",
        Table(
            "Mean attention on noisy and on normal nodes",
            ("model", "noisy", "normal", "noisy, if even", "normal, if even",
             "noisy / even", "normal / even"),
            tuple(rows),
            "What the model has learnt is the ratio to even attention, for noisy and normal nodes: "
            f"{'; '.join(words)}.",
        ),
    ]  # fmt: skip


def _of(items: Sequence[Any], read: Callable[[Any], float]) -> Estimate:
    return Estimate.of([[read(one)] for one in items])


def _reasons(found: Found, here: Sequence[Place]) -> list[Part]:
    def use_row(place: Place) -> tuple[Cell, ...]:
        if place not in found.use:
            return (place_title(place), *[MISSING] * 4)
        use = found.use[place]
        accuracy = _of(use, lambda one: one.accuracy)
        paper = ACCURACY.get((place[0] + NODES_SUFFIX, place[1]))
        return (
            place_title(place),
            Beside(accuracy, paper[2]) if paper else accuracy,
            _of(use, lambda one: one.without),
            _of(use, lambda one: one.flipped),
            _of(use, lambda one: one.moved),
        )

    def effect_row(place: Place) -> tuple[Cell, ...]:
        effects = found.effects[place]
        return (
            place_title(place),
            _of(effects, lambda one: one.size(noisy=True)),
            _of(effects, lambda one: one.size(noisy=False)),
            _of(effects, lambda one: one.harming(noisy=True)),
            _of(effects, lambda one: one.harming(noisy=False)),
            _of(effects, lambda one: one.correlation(noisy=True)),
            _of(effects, lambda one: one.correlation(noisy=False)),
            _of(effects, lambda one: one.raising(noisy=True)),
        )

    moved = [_of(found.use[place], lambda one: one.moved).mean for place in here]
    sizes = _sizes(found, here)
    raising = [_of(found.effects[p], lambda one: one.raising(noisy=True)).mean for p in here]
    parts: list[Part] = [
        "## Do the models use the noise? Predictions",
        Table(
            "Test nodes with and without all noisy nodes",
            ("model", "test accuracy", "without noisy nodes", "classes that change",
             "change of probability"),
            tuple(use_row(place) for place in places(found.size.datasets, found.size.models)),
            f"Without the noisy nodes, the probability of the predicted class moves by "
            f"{span(moved)} on average.",
            digits=3,
        ),
        Table(
            "Deleting a single node, and its credit",
            ("model", "mean absolute effect, noise", "others", "noise that speaks against",
             "others", "correlation of credit and effect, noise", "others",
             "top noise that raises the probability"),
            tuple(effect_row(place) for place in here),
            "GraphSVX (our default); all other nodes stay. The effect of deleting a noisy node is "
            f"{min(sizes):.2f} to {max(sizes):.2f} times as large as that of another one; of the "
            f"noisy nodes among the top k, {span(raising)} do raise the probability when they are "
            "there. Noise that speaks against the class is low in a ranking by value and high in "
            "one by absolute value.",
            digits=3,
        ),
    ]  # fmt: skip
    shown = _example(found)
    if shown is not None:
        example, noise, count = shown
        place = with_attention(here)
        parts.append(
            Picture(
                "why",
                f"Left: the explained node of {place_title(place)} with the most noise among its "
                f"top k by value ({count:.0f} of {top_k(example.node_credit.players)}, "
                f"{percent(_share(example, noise))} of its candidates are noise). Right: credit of "
                f"all candidates of the first seed against the probability lost without them",
                lambda: why(example, found.effects[place][0], "nodes", noise, "node"),
            )
        )
    return parts


def _sizes(found: Found, here: Sequence[Place]) -> list[float]:
    """Effect of deleting a noisy node over that of deleting another one, by place."""
    return [
        _of(found.effects[place], lambda one: one.size(noisy=True)).mean
        / _of(found.effects[place], lambda one: one.size(noisy=False)).mean
        for place in here
    ]


def _share(example: Explanation, noise: set[int]) -> float:
    return outcome(example.nodes, example.node_ids.tolist(), noise).base


def _example(found: Found) -> tuple[Explanation, set[int], float] | None:
    """The explanation with the most noise among its top k; the first of several."""
    best: tuple[Explanation, set[int], float] | None = None
    for one, noise in found.examples:
        count = outcome(one.nodes, one.node_ids.tolist(), noise).value
        if best is None or count > best[2]:
            best = (one, noise, count)
    return best


STUDY = Study(
    "noisy-nodes",
    f"how many meaningless nodes are among the top {TOP} (or 20 %); the GAT's attention on them",
    make,
)
