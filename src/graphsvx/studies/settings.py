"""Study `settings`: how GraphSVX and the others are asked, chosen on seeds that no study scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan

from graphsvx.baselines import GNNExplainer, PGExplainer, PGMExplainer
from graphsvx.explanation import Ranking
from graphsvx.methods import GraphSVX, Method
from graphsvx.model import Scale
from graphsvx.studies import chosen, rivals
from graphsvx.studies.chosen import GRAPH_SETS, TITLES, TRUTH_SETS, Choice, Kind
from graphsvx.studies.desk import Desk
from graphsvx.studies.estimate import Estimate
from graphsvx.studies.motifs import Asked, Measure, over_seeds
from graphsvx.studies.page import Cell, Page, Part, Table
from graphsvx.studies.rivals import KINDS
from graphsvx.studies.study import Study

SEEDS = (100, 101)
MUTAG_SEEDS = (100,)
"""MUTAG takes a minute and a half to train."""
STRICT, PAPER = 15, 10
"""Nodes or graphs a seed for GraphSVX: drawn for `strict`, the first ones of `paper`."""
RIVAL_SEEDS = (100,)
RIVAL_SETS = ("ba-shapes", "ba-community", "tree-cycles")
"""Where other settings of the others are tried; elsewhere they have their usual ones."""
RIVAL_STRICT, RIVAL_PAPER = 8, 4
"""The same for the others, which take longer."""
CLOSE = 0.01
"""A plainer setting is taken if it is no further than this from the best."""
HOPS = (None, 2)
BYS: tuple[Ranking, Ranking] = ("value", "absolute")

Samples = Mapping[Measure, Sequence[Sequence[float]]]
"""By measure, the samples of each seed."""


@dataclass(frozen=True)
class Candidate:
    """A setting of GraphSVX without its ranking."""

    method: GraphSVX
    scale: Scale = "probability"


def candidates(dataset: str, kind: Kind) -> list[Candidate]:
    """What is tried for one row of GraphSVX; the chosen setting is always among it."""
    whole = dataset in GRAPH_SETS
    if kind == "edges":
        methods = [GraphSVX(players="edges", hops=hops) for hops in ((None,) if whole else HOPS)]
    elif whole:
        usual = GraphSVX() if kind == "default" else GraphSVX.paper(dataset)
        methods = [replace(usual, erase=erase) for erase in (False, True)]
    elif kind == "default":
        methods = [GraphSVX(hops=hops) for hops in HOPS]
    else:
        methods = [
            GraphSVX.paper(dataset, indirect=indirect, hops=hops)
            for indirect in ("mean", "target", False)
            for hops in HOPS
        ]
    plain = [method for method in methods if not method.indirect]
    taken = chosen.choice(dataset, kind)
    found = [
        *(Candidate(method) for method in methods),
        *(Candidate(method, "log_odds") for method in plain),
        Candidate(taken.method, taken.scale),
    ]
    return list(dict.fromkeys(found))


def rival_candidates(dataset: str) -> dict[str, list[GNNExplainer | PGMExplainer | PGExplainer]]:
    """What is tried for the other explainers, by name."""
    return {
        "GNNExplainer": _with(chosen.gnnexplainer(dataset), [
            GNNExplainer(), GNNExplainer(lr=0.1),
        ]),
        "PGM-Explainer": _with(chosen.pgm(dataset), [
            PGMExplainer(by="zero"), PGMExplainer(by="mean"),
        ]),
        "PGExplainer": _with(chosen.pgexplainer(dataset), [
            PGExplainer(), PGExplainer(size=0.005),
        ]),
    }  # fmt: skip


def _with(
    taken: GNNExplainer | PGMExplainer | PGExplainer,
    tried: list[GNNExplainer | PGMExplainer | PGExplainer],
) -> list[GNNExplainer | PGMExplainer | PGExplainer]:
    return tried if taken in tried else [*tried, taken]


@dataclass(frozen=True)
class Line:
    """One row of a table: a setting with its figures."""

    words: str
    samples: Samples
    taken: Ranking | None
    """The ranking with which this setting is the chosen one."""

    def figure(self, what: str, by: Ranking) -> Estimate:
        """One figure over seeds."""
        measure = next(m for m in self.samples if (m.what, m.by) == (what, by))
        return over_seeds(self.samples[measure])

    def worth(self, by: Ranking) -> float:
        """What is maximised: the mean of the accuracies under both protocols."""
        both = [self.figure(what, by).mean for what in ("paper", "strict")]
        known = [one for one in both if not isnan(one)]
        return sum(known) / len(known) if known else 0.0


MEASURES = tuple(Measure(what, by) for what in ("paper", "strict", "auroc") for by in BYS)


def make(desk: Desk) -> Page:
    """Measure all candidates."""
    ours: dict[tuple[str, Kind], list[Line]] = {}
    others: dict[tuple[str, str], list[Line]] = {}
    absent: dict[str, str] = {}
    names = []
    for name in desk.pick(TRUTH_SETS, ("tree-cycles",)):
        reason = desk.missing(name)
        if reason is None:
            names.append(name)
        else:
            absent[name] = reason
    for name in names:
        for kind in KINDS.values():
            ours[name, kind] = gauged(desk, name, kind)
    for name in (one for one in names if one in RIVAL_SETS):
        for rival, methods in rival_candidates(name).items():
            taken = chosen.rival(rival, name)
            others[name, rival] = [
                rival_line(desk, name, rival, method, taken) for method in methods
            ]
    return page(ours, others, absent)


def gauged(desk: Desk, name: str, kind: Kind) -> list[Line]:
    """All candidates of one data set."""
    taken = chosen.choice(name, kind)
    lines = []
    seeds = desk.pick(MUTAG_SEEDS if name == "mutag" else SEEDS, (100,))
    tried = candidates(name, kind)
    few = dict.fromkeys([tried[0], Candidate(taken.method, taken.scale)])
    for one in desk.pick(tried, few):
        samples: dict[Measure, list[list[float]]] = {measure: [] for measure in MEASURES}
        for seed in seeds:
            world = desk.world(name, seed)
            asked = Asked.of(world, desk.pick(STRICT, 2), desk.pick(PAPER, 1))
            found = desk.explanations(
                world, one.method, asked.all, label=f"setting {kind}", scale=one.scale
            )
            for measure in MEASURES:
                samples[measure].append(list(measure.samples(world, found, asked).values()))
        mine = (one.method, one.scale) == (taken.method, taken.scale)
        words = chosen.words(Choice(one.method, one.scale)).removesuffix(", signed")
        lines.append(Line(words, samples, taken.by if mine else None))
    return lines


def rival_line(
    desk: Desk,
    name: str,
    rival: str,
    method: GNNExplainer | PGMExplainer | PGExplainer,
    taken: Method,
) -> Line:
    """One setting of another explainer."""
    samples: dict[Measure, list[list[float]]] = {measure: [] for measure in MEASURES}
    for seed in desk.pick(MUTAG_SEEDS if name == "mutag" else RIVAL_SEEDS, (100,)):
        world = desk.world(name, seed)
        asked = Asked.of(world, desk.pick(RIVAL_STRICT, 1), desk.pick(RIVAL_PAPER, 1))
        ready: Method = method
        if isinstance(method, PGMExplainer):
            ready = replace(method, samples=desk.pick(method.samples, 60))
        elif isinstance(method, GNNExplainer):
            ready = replace(method, epochs=desk.pick(method.epochs, 2))
        else:
            blank = replace(method, epochs=desk.pick(method.epochs, 1))
            ready = rivals.trained(desk, world, blank, asked.all)
        found = desk.explanations(world, ready, asked.all, label=f"setting {rival}")
        for measure in MEASURES:
            samples[measure].append(list(measure.samples(world, found, asked).values()))
    by = chosen.rival_ranking(rival, name) if method == taken else None
    return Line(chosen.rival_setting(method), samples, by)


# --- the page -----------------------------------------------------------------------------


def page(
    ours: Mapping[tuple[str, Kind], list[Line]],
    others: Mapping[tuple[str, str], list[Line]],
    absent: Mapping[str, str],
) -> Page:
    """One table a data set and kind, with the chosen line marked."""
    notes = {key: verdict(lines, BYS) for key, lines in ours.items()}
    rival_notes = {key: verdict(lines, BYS) for key, lines in others.items()}
    parts: list[Part] = [
        "All figures are from validation seeds, with graphs, splits and models of their own; no "
        "study scores these seeds. A setting is judged by the mean of its accuracies under the "
        "two protocols ([protocols.md](protocols.md)), with the better ranking; differences below "
        f"{CLOSE} do not decide, then the plainer setting or the one of the paper is taken. The "
        "chosen line is marked with its ranking.",
    ]
    names = {kind: name for name, kind in KINDS.items()}
    for key, lines in ours.items():
        title = f"{TITLES[key[0]]}: {names[key[1]]}"
        parts.append(grid(title, lines, notes[key]))
    parts.append(
        f"## Other explainers\n\n{RIVAL_STRICT} nodes or graphs of `strict` and {RIVAL_PAPER} of "
        f"`paper`, on seed {RIVAL_SEEDS[0]} only: they take longer. On sets without a table "
        "here no other settings were tried."
    )
    for name in dict.fromkeys(dataset for dataset, _ in others):
        lines = [
            replace(line, words=f"{rival}: {line.words}")
            for (dataset, rival), found in others.items()
            if dataset == name
            for line in found
        ]
        said = " ".join(
            f"{k[1]}: {note}" for k, note in rival_notes.items() if k[0] == name and note
        )
        parts.append(grid(f"{TITLES[name]}: others", lines, said))
    parts += [f"**{TITLES[name]} is missing:** {text}" for name, text in absent.items()]
    off = [note for note in [*notes.values(), *rival_notes.values()] if note]
    return Page(
        "Settings, chosen on validation seeds",
        tuple(parts),
        headline=(
            f"Settings were chosen on seeds that no study scores; of {len(notes)} choices for "
            f"GraphSVX and {len(rival_notes)} for other explainers, "
            f"{len(notes) + len(rival_notes) - len(off)} are within {CLOSE} of the best candidate."
        ),
        settings={
            "seeds": SEEDS,
            "nodes or graphs a seed": f"{STRICT} of `strict`, the first {PAPER} of `paper`",
        },
    )


def verdict(lines: Sequence[Line], rankings: Sequence[Ranking]) -> str:
    """Empty if the chosen setting is (nearly) the best; else what would have been better."""
    top, by = max(
        ((line, by) for line in lines for by in rankings), key=lambda pair: pair[0].worth(pair[1])
    )
    mine = next((line for line in lines if line.taken is not None), None)
    if mine is None or mine.taken is None:
        return "The chosen setting is not in this table."
    gap = top.worth(by) - mine.worth(mine.taken)
    if gap <= CLOSE:
        return ""
    ranking = "signed" if by == "value" else "absolute"
    return f"The chosen setting is {gap:.3f} below the best: {top.words}, {ranking}."


def grid(title: str, lines: Sequence[Line], note: str) -> Table:
    """Figures of all candidates."""
    columns = [(what, by) for what in ("paper", "strict", "auroc") for by in BYS]
    shown = {"value": "signed", "absolute": "absolute"}

    def row(line: Line) -> tuple[Cell, ...]:
        mark = "" if line.taken is None else f"chosen, {shown[line.taken]}"
        figures = [line.figure(what, by) for what, by in columns]
        return (line.words, *figures, max(line.worth(by) for by in BYS), mark)

    return Table(
        title,
        ("setting", *(f"{what}, {shown[by]}" for what, by in columns), "mean of both", "chosen"),
        tuple(row(line) for line in lines),
        note=note,
        digits=3,
    )


STUDY = Study("settings", "how the explainers are asked, chosen on validation seeds", make)
