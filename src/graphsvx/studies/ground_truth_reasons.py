"""Why GraphSVX does not find every motif: what the models see and use, measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from graphsvx.studies import why
from graphsvx.studies.chosen import TITLES
from graphsvx.studies.estimate import Estimate
from graphsvx.studies.ground_truth_figures import (
    STRICT_BY,
    One,
    Results,
    best,
    figure,
    ranked,
    short_of_the_paper,
)
from graphsvx.studies.ground_truth_pictures import panels
from graphsvx.studies.motifs import over_seeds
from graphsvx.studies.page import Cell, Part, Picture, Table
from graphsvx.studies.rivals import DEFAULT, KINDS, NAMES, OURS


def reasons(results: Results) -> list[Part]:
    """The facts about every set, in tables; and a paragraph and a picture for what is short."""
    parts: list[Part] = [fall_table(results), use_table(results), role_table(results)]
    disturbed = disturbed_table(results)
    if disturbed.rows:
        parts.append(disturbed)
    short = short_of_the_paper(results)
    for name, ones in results.items():
        lines = []
        if name in short:
            ours, paper = short[name]
            lines.append(f"{ours:.2f} under `paper`, where the paper has {paper:.2f}.")
        first = best(results, name)
        if first not in KINDS:
            leader, mine = (
                figure(ones, one, ranked(name, one, STRICT_BY)).mean for one in (first, OURS)
            )
            lines.append(f"Under `strict` {first} is first: {leader:.2f} against {mine:.2f}.")
        if lines:
            lines.append(account(name, ones))
            parts.append(f"**{TITLES[name]}.** " + " ".join(lines))
    worst = [min((one.worst for one in ones), key=lambda e: e.score) for ones in results.values()]
    parts.append(
        Picture(
            "short",
            "The worst explanation of each set under `strict` (GraphSVX, the paper's "
            "method), drawn as above.",
            partial(panels, worst),
        )
    )
    return parts


def account(name: str, ones: list[One]) -> str:
    """What was measured about the reasons, in sentences."""

    def mean(of: Callable[[One], Iterable[float]]) -> float:
        return over_seeds(of(one) for one in ones).mean

    seen = mean(lambda one: one.reach.values())
    idle = mean(lambda one: [u.idle for u in one.use.values()])
    against = mean(lambda one: [u.against for u in one.use.values()])
    strangers = mean(lambda one: [u.strangers for u in one.use.values()])
    alone = mean(lambda one: [u.alone for u in one.use.values()])
    exact = mean(lambda one: [one.exact[DEFAULT]])
    default = figure(ones, DEFAULT, ranked(name, DEFAULT, STRICT_BY)).mean
    return (
        f"{seen:.0%} of the motif's nodes are among the players. Cut off one by one, {idle:.0%} of "
        f"them change the score by less than {why.MATTERS} and {against:.0%} raise it, while "
        f"{strangers:.0%} of the other nodes change it by at least that much. Alone, the explained "
        f"prediction still has a score of {alone:.2f} on average. Our estimator, {exact:.0%} of "
        f"whose explanations are exact Shapley values, has {default:.2f}."
    )


def fall_table(results: Results) -> Table:
    """Whether what an explainer points at is what the model needs."""

    def row(words: str, explainer: str) -> tuple[Cell, ...]:
        found = (over_seeds(one.falls[explainer].values() for one in ones)
                 for ones in results.values())  # fmt: skip
        return (words, *found)

    return Table(
        "How much the score falls without the k best-ranked nodes (fidelity+)",
        ("explainer", *(TITLES[name] for name in results)),
        (*(row(name, name) for name in NAMES), row("the motif itself", "")),
        note="Probability of the predicted class, all k cut off together; k is the size of the "
        "motif, and nodes with value 0 are left. An explainer with a higher accuracy but a smaller "
        "fall finds nodes that the model can do without.",
    )


def use_table(results: Results) -> Table:
    """What the model sees and uses of the motifs."""

    def row(name: str, ones: list[One]) -> tuple[Cell, ...]:
        def spread(of: Callable[[why.Use], float]) -> Estimate:
            return over_seeds([of(u) for u in one.use.values()] for one in ones)

        return (
            TITLES[name],
            over_seeds(one.reach.values() for one in ones),
            spread(lambda u: u.whole),
            spread(lambda u: u.alone),
            over_seeds([fall for u in one.use.values() for fall in u.motif] for one in ones),
            over_seeds([fall for u in one.use.values() for fall in u.others] for one in ones),
            spread(lambda u: u.idle),
            spread(lambda u: u.against),
            spread(lambda u: u.strangers),
        )

    return Table(
        "What the models see and use of the motifs (nodes and graphs of `strict`)",
        ("data set", "motif nodes among the players", "score", "score alone",
         "fall without a motif node", "fall without another node",
         f"motif nodes that change it by < {why.MATTERS}", "motif nodes that lower the score",
         f"other nodes that change it by >= {why.MATTERS}"),
        tuple(row(name, ones) for name, ones in results.items()),
        note="Score: probability of the predicted class. A node is cut off from everything; "
        f"up to {why.OTHERS} other players are drawn for each explanation. The first column is "
        "the most that any ranking of GraphSVX's players could find.",
    )  # fmt: skip


def role_table(results: Results) -> Table:
    """Accuracy by the place of the explained node in its motif."""
    rows: list[tuple[Cell, ...]] = []
    for name, ones in results.items():
        for role in sorted({role for one in ones for role in one.roles.values()}):
            cells = [_where(name, ones, explainer, role) for explainer in NAMES]
            bound = over_seeds(
                [reach for query, reach in one.reach.items() if one.roles[query] == role]
                for one in ones
            )
            rows.append((TITLES[name], role, bound.count, bound, *cells))
    return Table(
        "Accuracy by place in the motif, protocol `strict`",
        ("data set", "explained", "count", "within reach", *NAMES),
        tuple(rows),
        note='"tied": the node with the edge to the base graph, the only one that `paper` scores.',
    )


def _where(name: str, ones: list[One], explainer: str, role: str) -> Estimate:
    measure = ranked(name, explainer, STRICT_BY)
    return over_seeds(
        [s for query, s in one.samples[explainer, measure].items() if one.roles.get(query) == role]
        for one in ones
    )


def disturbed_table(results: Results) -> Table:
    """Accuracy where a random edge touches the motif, and where none does."""
    rows: list[tuple[Cell, ...]] = []
    for name, ones in results.items():
        if name == "mutag":
            continue  # nothing random there
        for state, label in ((False, "no"), (True, "yes")):
            cells = []
            for explainer in NAMES:
                measure = ranked(name, explainer, STRICT_BY)
                cells.append(
                    over_seeds(
                        [s for q, s in one.samples[explainer, measure].items()
                         if one.disturbed.get(q) is state]
                        for one in ones
                    )
                )  # fmt: skip
            if cells[0].count:
                rows.append((TITLES[name], label, cells[0].count, *cells))
    return Table(
        "Motifs that a random edge touches, protocol `strict`",
        ("data set", "random edge", "count", *NAMES),
        tuple(rows),
    )
