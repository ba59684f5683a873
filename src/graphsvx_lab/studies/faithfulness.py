"""Studies `faithfulness` and `real-graphs`: does the score follow what an explanation names?

characterization   harmonic mean of fidelity+ and 1 - fidelity-, mean over shares of the nodes,
                   which are removed as in Eq. 2: the best-ranked ones, or all others
robust fidelity    F-Fidelity: `PART` of the explanation (or of the rest) is cut, `DRAWS` times
removal, retrain   ROAR: the top nodes of all graphs are cut off, a new model is trained
leave-one-out      the fall of the score without one node, everything else in place
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

import torch

from graphsvx import metrics
from graphsvx.methods import GraphSVX, PGExplainer
from graphsvx.metrics.agreement import rank_agreement
from graphsvx.metrics.select import top_keys
from graphsvx_lab.datasets.base import draw
from graphsvx_lab.metrics.comparison import SIGNIFICANT, PairedTest, is_positive
from graphsvx_lab.metrics.effects import leave_one_out
from graphsvx_lab.metrics.measurements import NO_QUESTION, Measurements, Value
from graphsvx_lab.metrics.retraining import accuracy_of_cut, accuracy_without, robust_fidelity
from graphsvx_lab.metrics.scored import graphs_right
from graphsvx_lab.studies import motifs
from graphsvx_lab.studies.motifs import BOTH, MINUS, PLUS
from graphsvx_lab.studies.page import Claim, Figure, Page, Table, dots, paired_table, pivots
from graphsvx_lab.studies.setting import USUAL, USUAL_WITHOUT_FEATURES, Setting
from graphsvx_lab.studies.study import TEN_SEEDS, Answer, Case, Grid, Questions, Study
from graphsvx_lab.zoo import Trained

OURS, RANDOM, SLOWEST = "GraphSVX", "Random", "PGM-Explainer"
"""The slowest is not asked about all graphs that are learnt again."""
SETS = ("ba-shapes", "tree-cycles", "tree-grid", "ba-2motifs", "benzene", "alkane-carbonyl")
MOLECULES, GOAL = SETS[4:], 4
SHARES = (0.1, 0.2, 0.3, 0.5)
ROBUST, PART, DRAWS, TUNED_FOR, CUT = 0.2, 0.5, 10, 20, 0.5
"""Robust fidelity: share of nodes in the explanation, part that is cut, draws, epochs of further
training, and the largest share of edges cut in these."""
SOFT = "robust characterization"
QUESTIONS = 10
REMOVED, RETRAINED = (0.1, 0.3), "accuracy after retraining without the top "
TOLD = "class told by the number of edges cut, top "
FEW, AGAIN, SPLITS = 100, 100, 3
"""Graphs that are explained, cut and learnt again; epochs; splits, of which the mean counts."""


def methods(dataset: str, samples: int = 1000) -> dict[str, Setting]:
    """GraphSVX, and others with their usual settings."""
    others = USUAL if dataset in MOLECULES else USUAL_WITHOUT_FEATURES
    pg_explainer = {"PGExplainer": Setting(PGExplainer(), edge_rule="mean")}
    return {OURS: Setting(GraphSVX(samples=samples)), **pg_explainer, **others}


def questions(trained: Trained) -> Questions:
    """Test graphs of class 1, or nodes of motifs, that are classified right."""
    data = trained.dataset
    if data.task == "node":
        return {"test": motifs.scoring(QUESTIONS)(trained)["strict"]}
    test = data.split.test[data.labels[data.split.test] == 1][: 4 * QUESTIONS]
    return {"test": tuple(graphs_right(trained, test.tolist())[:QUESTIONS])}


def graphs_of_all_classes(trained: Trained) -> Questions:
    """Drawn by the seed of the data."""
    data = trained.dataset
    graphs = draw(range(len(data.graphs)), FEW, data.seed, "retrain", data.name)
    return {"graphs": tuple(sorted(graphs))}


def robust(answer: Answer) -> dict[str, float]:
    """Fidelity of a model that knows cut graphs, with a random part cut each time."""
    plus, minus = robust_fidelity(
        answer.explanation, answer.trained, answer.question, by=answer.setting.by, top=ROBUST,
        part=PART, draws=DRAWS, steps=TUNED_FOR, cut=CUT)  # fmt: skip
    values = {"robust fidelity+": plus, "robust fidelity-": minus}
    return {**values, SOFT: metrics.characterization(plus, minus)}


def retrained(case: Case) -> Iterator[Value]:
    """Test accuracy of a new model on graphs without the top nodes of each method."""
    graphs = case.questions["graphs"]
    yield "", NO_QUESTION, "graphs learnt again", len(graphs)
    if len(graphs) < FEW:  # a quick version: too few to be split
        return
    settings = replace(case.trained.card.settings, epochs=AGAIN)
    accuracy = partial(accuracy_without, case.trained.dataset, settings=settings, seed=case.seed,
                       splits=SPLITS)  # fmt: skip
    for method, by_question in case.explanations.items():
        by = case.settings[method].by
        for share in REMOVED:
            tops = {q: top_keys(e, share, by, "nodes") for q, e in by_question.items()}
            yield method, NO_QUESTION, f"{RETRAINED}{share:.0%}", accuracy(tops)
            by_cut = accuracy_of_cut(case.trained.dataset, tops, case.seed, SPLITS)
            yield method, NO_QUESTION, f"{TOLD}{share:.0%}", by_cut
    yield "nothing removed", NO_QUESTION, f"{RETRAINED}0%", accuracy(dict.fromkeys(graphs, ()))


GRID = Grid(
    SETS, methods, questions, measures=(motifs.fidelity_curves(SHARES), robust),
    seeds=TEN_SEEDS, quick=("tree-cycles",))  # fmt: skip
RETRAIN = Grid(
    ("ba-2motifs", "benzene"), lambda data: {  # fewer samples: all graphs have to be explained
        name: setting for name, setting in methods(data, 300).items() if name != SLOWEST},
    graphs_of_all_classes, case_measures=(retrained,), quick=("ba-2motifs",))  # fmt: skip


def tests_of(results: Measurements, measure: str) -> dict[str, dict[str, PairedTest]]:
    """GraphSVX against everybody else, by data set."""
    others = [name for name in results.names("method", measure=measure) if name != OURS]
    return results.tests_by("data", measure, OURS, others)


def ahead_of_others(
    results: Measurements, measures: Iterable[str]
) -> tuple[dict[str, list[Claim]], list[Table]]:
    """By measure: the claims to be ahead on each data set; and tables with all differences."""
    tests = {measure: tests_of(results, measure) for measure in measures}
    claims = {measure: [Claim.first(f"GraphSVX is ahead of all others by {measure}", "", by_rival,
                                    title) for title, by_rival in by_title.items()]
              for measure, by_title in tests.items()}  # fmt: skip
    return claims, [paired_table(f"GraphSVX minus another, {measure}", by_title)
                    for measure, by_title in tests.items()]  # fmt: skip


def best(results: Measurements, measure: str, title: str, of: Callable[..., str] = max) -> str:
    """The method with the largest (`of=min`: smallest) mean on a data set."""
    means = {name: e.mean for name, e in results.by("method", measure, data=title).items()}
    return of(means, key=means.__getitem__)


def reasons(results: Measurements) -> Iterator[str]:
    """Why GraphSVX is not first, where something that was measured says so."""
    behind = list[str]()
    for measure in (BOTH, SOFT):
        tests = tests_of(results, measure)
        behind = [title for title in tests if best(results, measure, title) != OURS]
        clearly = [title for title in behind if any(
            t.difference < 0 and t.p < SIGNIFICANT for t in tests[title].values())]  # fmt: skip
        if behind:
            ahead = f"on {', '.join(clearly)} only" if clearly else "on none of them"
            yield (f"**{measure.capitalize()}.** GraphSVX is not first on {', '.join(behind)}; "
                   f"another explainer is significantly ahead of it {ahead}.")  # fmt: skip
    rising = [
        title
        for title in behind
        if max(e.mean for e in results.by("method", "robust fidelity+", data=title).values()) < 0
    ]
    if rising:
        yield (f"On {', '.join(rising)} the score rises when half of the top is cut, whichever "
               "explainer chose it (robust fidelity+ is below 0): nobody is faithful by this "
               "measure, and there is nothing to rank by.")  # fmt: skip
    for title in results.names("data", measure=f"{TOLD}10%"):
        ours, chance = (results.estimate(f"{TOLD}10%", method=name, data=title)
                        for name in (OURS, RANDOM))  # fmt: skip
        yield (f"**Retraining on {title}.** The number of edges that are cut, and nothing else, "
               f"tells the class of {ours.mean:.0%} of the graphs if GraphSVX's top 10% go, and of "
               f"{chance.mean:.0%} if random nodes go. A new model can read the class from the cut "
               "where the first figure is high: then its accuracy says little about what is left. "
               f"It is least accurate without the top 10% of "
               f"{best(results, f'{RETRAINED}10%', title, min)}.")  # fmt: skip


def page(results: Measurements) -> Page:
    """On how many sets ours is first by each measure, and the falls after retraining."""
    ahead, paired = ahead_of_others(results, (BOTH, SOFT))
    claims = []
    for measure, by_set in ahead.items():
        first = [claim for claim in by_set if best(results, measure, claim.on) == OURS]
        clear = [claim for claim in first if claim.holds]
        ours = f"{len(first)} of {len(by_set)}, clear of the next on {len(clear)}"
        statement = f"GraphSVX is first by {measure} on at least {GOAL} of {len(SETS)} sets"
        holds = len(first) >= GOAL if len(by_set) == len(SETS) else None
        claims += [Claim(statement, "", ours, holds=holds), *by_set]
    for measure in (f"{RETRAINED}{share:.0%}" for share in REMOVED):
        claims += [
            Claim.of(f"Without GraphSVX's top {measure.split()[-1]} a new model is less accurate "
                     "than without random nodes, by", "",
                     results.paired((RANDOM, measure), (OURS, measure), data=s), is_positive,
                     on=s)
            for s in results.names("data", measure=measure)]  # fmt: skip
    prefixes = ("fidelity", "robust fidelity", RETRAINED, TOLD)
    others = [name for prefix in prefixes for name in results.names("measure", prefix)]
    tables = pivots(results, [BOTH, SOFT, *others])
    return Page(
        "Faithfulness: fidelity, robust fidelity, removal and retraining", claims,
        dots("characterization", "Characterization, plain and robust; more is better.",
             {BOTH: tables[0], SOFT: tables[1]}),
        {"Where GraphSVX is not first, and why": tuple(reasons(results)),
         "Details": (*tables[:2], *paired, *tables[2:])},
        "Does the score fall without the nodes that an explanation ranks first, and stay without "
        "all others?",
        f"{QUESTIONS} questions a seed. Nodes are removed as in Eq. 2, the top "
        f"{', '.join(f'{s:.0%}' for s in SHARES)} of them. Robust fidelity: the top {ROBUST:.0%}, "
        f"of which (or of the rest) {PART:.0%} are cut off, {DRAWS} draws; the model is trained "
        f"for {TUNED_FOR} more steps with up to {CUT:.0%} of the edges cut. Retraining: {FEW} "
        f"graphs, {AGAIN} epochs, {SPLITS} splits; the less accurate the new model, the better, "
        "but it can also learn from the cut itself. Explainers have their usual settings; where "
        "all nodes have the same features, those that look at features replace them by "
        "0.")  # fmt: skip


STUDY = Study(
    "faithfulness", "fidelity over sparsities, robust fidelity, removal and retraining",
    (GRID, RETRAIN), page)  # fmt: skip


# --- real graphs, which have no known truth ---------------------------------------------------

NODES, REAL_SHARES = 6, (0.05, 0.1, 0.2, 0.4)
"""Explained nodes, a seed; shares of the nodes of the receptive field in the explanation."""
AGREES, TOP = "rank correlation with leave-one-out", 10
SAME_TOP = f"top {TOP} shared with leave-one-out"


def agreement(answer: Answer) -> dict[str, float]:
    """Spearman's correlation with leave-one-out, and how many of its top ten are shared."""
    ours = answer.of(OURS)
    if ours is None:
        return {}
    falls = leave_one_out(ours, answer.trained.model, answer.data.graph)
    ids = ours.node_ids.tolist()
    if len(ids) < 3 or not float(falls.abs().max()):
        return {}
    values = torch.tensor([answer.explanation.nodes.get(node, 0.0) for node in ids]).double()
    return dict(zip((AGREES, SAME_TOP), rank_agreement(values, falls, TOP), strict=True))


REAL_METHODS = {OURS: Setting(GraphSVX(players="nodes")), **USUAL}
REAL_GRID = Grid(
    ("cora", "citeseer", "amazon-photo"), lambda _: REAL_METHODS, motifs.test_nodes(NODES),
    measures=(motifs.fidelity_curves(REAL_SHARES), agreement),
    case_measures=(motifs.model_accuracy,))  # fmt: skip


def real_graphs_page(results: Measurements) -> Page:
    """Whether ours is first by characterization and agreement, and the curves."""
    ahead, paired = ahead_of_others(results, (BOTH, AGREES))
    sets, agrees = results.names("data", measure=AGREES), results.by("data", AGREES, method=OURS)
    tables = pivots(results, {
        **{name: {} for name in (BOTH, AGREES, SAME_TOP, *results.names("measure", "fidelity"))},
        "test accuracy": {"rows": "measure"}})  # fmt: skip
    points = {axis.split(",")[0]: {s: {name: {
        share: e.band for share in REAL_SHARES
        if (e := results.estimate(f"{axis}{share:.0%}", method=name, data=s)).seeds}
        for name in REAL_METHODS} for s in sets} for axis in (PLUS, MINUS)}  # fmt: skip
    return Page(
        "Real graphs: fidelity curves and agreement with leave-one-out",
        [*(claim for by_set in ahead.values() for claim in by_set),
         *Claim.each(f"GraphSVX's {AGREES} is above 0", dict.fromkeys(sets, ""), agrees,
                     is_positive)],
        Figure("curves", "fidelity+ (more is better) and fidelity- (less is better).",
               lambda plots: plots.curves(points, "share of nodes")),
        {"Details": (*tables[:3], *paired, *tables[3:])},
        "No truth is known here. Does the score follow what is removed, and does credit agree with "
        "removing nodes one by one?",
        f"Two-layer GCNs; {NODES} test nodes a seed that have a neighbour, drawn at random, and "
        "their predicted class. Removed nodes lose their edges. GraphSVX has its default budget, "
        "which grows with the game: up to thousands of nodes play on Amazon-Photo.")  # fmt: skip


REAL_GRAPHS = Study(
    "real-graphs", "fidelity curves and agreement with leave-one-out, without a known truth",
    (REAL_GRID,), real_graphs_page)  # fmt: skip
