"""Studies `faithfulness` and `real-graphs`: does the score follow what an explanation names?

characterization   harmonic mean of fidelity+ and 1 - fidelity-, mean over shares of the nodes,
                   which are removed as in Eq. 2: the best-ranked ones, or all others
robust fidelity    F-Fidelity: `PART` of the explanation (or of the rest) is cut, `DRAWS` times
removal, retrain   ROAR: the top nodes of all graphs are cut off, a new model is trained
leave-one-out      the fall of the score without one node, everything else in place
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from scipy import stats

from graphsvx import metrics, zoo
from graphsvx.datasets.base import draw, generator
from graphsvx.datasets.changed import part_of
from graphsvx.engine.choose import choose_evaluator
from graphsvx.methods import GraphSVX
from graphsvx.methods.greedy import one_less
from graphsvx.metrics.comparison import is_positive
from graphsvx.metrics.faithful import question
from graphsvx.metrics.retraining import accuracy_without, fine_tuned
from graphsvx.metrics.select import top_keys, top_positions
from graphsvx.results.explanation import Explanation
from graphsvx.studies import motifs
from graphsvx.studies.context import StudyContext, model_of
from graphsvx.studies.measurements import NO_QUESTION, Measurements
from graphsvx.studies.motifs import BOTH, MINUS, PLUS
from graphsvx.studies.page import Claim, Page, Table, curves, dots, paired_table, pivots
from graphsvx.studies.setting import USUAL, USUAL_WITHOUT_FEATURES, Setting
from graphsvx.studies.study import Answer, Case, Grid, Questions, Study, Value
from graphsvx.zoo import Trained

OURS, RANDOM, SLOWEST = "GraphSVX", "Random", "PGM-Explainer"
"""The slowest is not asked about all graphs that are learnt again."""
RIVALS, METHODS = tuple(USUAL), (OURS, *USUAL)
SETS = ("ba-shapes", "tree-cycles", "tree-grid", "ba-2motifs", "benzene", "alkane-carbonyl")
MOLECULES, GOAL = SETS[4:], 4
SHARES = (0.1, 0.2, 0.3, 0.5)
ROBUST, PART, DRAWS, TUNED_FOR, CUT = 0.2, 0.5, 10, 20, 0.5
"""Robust fidelity: share of nodes in the explanation, part that is cut, draws, epochs of further
training, and the largest share of edges cut in these."""
SOFT = "robust characterization"
QUESTIONS, GRAPHS = 5, 400
REMOVED, RETRAINED = (0.1, 0.3), "accuracy after retraining without the top "
FEW, AGAIN, SPLITS = 100, 100, 3
"""Graphs that are explained, cut and learnt again; epochs; splits, of which the mean counts."""


def methods(dataset: str, samples: int = 1000) -> dict[str, Setting]:
    """GraphSVX, and others with their usual settings."""
    others = USUAL if dataset in MOLECULES else USUAL_WITHOUT_FEATURES
    return {OURS: Setting(GraphSVX(samples=samples)), **others}


def few_samples(dataset: str) -> dict[str, Setting]:
    """With fewer samples, and without the slowest: all graphs have to be explained."""
    return {name: setting for name, setting in methods(dataset, 300).items() if name != SLOWEST}


def model(context: StudyContext, dataset: str, seed: int) -> Trained:
    """Models chosen by validation accuracy; BA-2motifs on a part of its graphs."""
    if dataset == "ba-2motifs":
        settings = replace(zoo.settings_for(dataset), cut_edges=False, epochs=60)
        return model_of(partial(part_of, count=GRAPHS), settings, "part")(context, dataset, seed)
    if dataset in MOLECULES:
        return context.trained_model(dataset, seed)
    return context.trained_model(dataset, seed, cut_edges=False)


def questions(trained: Trained) -> Questions:
    """Test graphs of class 1, or nodes of motifs, that are classified right."""
    data = trained.dataset
    if data.task == "node":
        return {"test": motifs.scored_queries(trained, QUESTIONS)["strict"]}
    test = data.split.test[data.labels[data.split.test] == 1][: 4 * QUESTIONS]
    return {"test": tuple(motifs.graphs_right(trained, test.tolist())[:QUESTIONS])}


def some_graphs(trained: Trained) -> Questions:
    """Graphs of all classes, drawn by the seed of the data."""
    data = trained.dataset
    graphs = draw(range(len(data.graphs)), FEW, data.seed, "retrain", data.name)
    return {"graphs": tuple(sorted(graphs))}


def robust_fidelity(answer: Answer) -> dict[str, float]:
    """The same on a model that knows cut graphs, with a random part cut each time."""
    robust = replace(answer.trained, model=fine_tuned(answer.trained, TUNED_FOR, CUT))
    score = motifs.score_without(robust, answer.question, answer.explanation.target)
    players = answer.explanation.node_ids.tolist()
    top = set(top_keys(answer.explanation, ROBUST, answer.setting.by, "nodes"))
    rng, full = generator(answer.question, "robust", answer.trained.dataset.name), score(())

    def fall(nodes: Sequence[int]) -> float:
        count = round(PART * len(nodes))
        draws = [torch.randperm(len(nodes), generator=rng)[:count] for _ in range(DRAWS)]
        return full - float(np.mean([score([nodes[i] for i in d.tolist()]) for d in draws]))

    plus = fall([node for node in players if node in top])
    minus = fall([node for node in players if node not in top])
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
    yield "nothing removed", NO_QUESTION, f"{RETRAINED}0%", accuracy(dict.fromkeys(graphs, ()))


GRID = Grid(
    SETS, methods, questions, measures=(motifs.fidelity_curves(SHARES), robust_fidelity),
    models={"": model}, quick=("tree-cycles",),
)  # fmt: skip
RETRAIN = Grid(
    ("ba-2motifs", "benzene"), few_samples, some_graphs, case_measures=(retrained,),
    models={"": model}, quick=("ba-2motifs",),
)  # fmt: skip


def ahead_of_others(
    results: Measurements, measures: Iterable[str], statement: str
) -> tuple[dict[str, list[Claim]], list[Table]]:
    """By measure: the claims to be ahead on each data set; and tables with all differences."""
    tests = {measure: results.tests_by("data", measure, OURS, RIVALS) for measure in measures}
    claims = {measure: [Claim.first(f"{statement} {measure}", "", by_rival, title)
                        for title, by_rival in by_title.items()]
              for measure, by_title in tests.items()}  # fmt: skip
    return claims, [paired_table(f"GraphSVX minus another, {measure}", by_title)
                    for measure, by_title in tests.items()]  # fmt: skip


def page(results: Measurements) -> Page:
    """On how many sets ours is first by each measure, and the falls after retraining."""
    ahead, paired = ahead_of_others(results, (BOTH, SOFT), "GraphSVX is ahead of all others by")
    claims = []
    for measure, by_set in ahead.items():
        sets = [claim.on for claim in by_set]
        first = [claim for claim in by_set if best(results, measure, claim.on, max) == OURS]
        clear = [claim for claim in first if claim.holds]
        ours = f"{len(first)} of {len(sets)}, clear of the next on {len(clear)}"
        statement = f"GraphSVX is first by {measure} on at least {GOAL} of {len(SETS)} sets"
        holds = len(first) >= GOAL if len(sets) == len(SETS) else None
        claims += [Claim(statement, "", ours, holds=holds), *by_set]
    for measure in (f"{RETRAINED}{share:.0%}" for share in REMOVED):
        for s in results.names("data", measure=measure):
            claims.append(Claim.of(
                f"Without GraphSVX's top {measure.split()[-1]} a new model is less accurate than "
                f"without random nodes, by (lowest: {best(results, measure, s, min)})", "",
                results.paired((RANDOM, measure), (OURS, measure), data=s), is_positive, on=s,
            ))  # fmt: skip
    tables = pivots(results, {
        "Characterization on nodes, mean over the shares": BOTH,
        "Robust characterization": SOFT,
        **{name: name for name in (*results.names("measure", "fidelity"),
                                   *results.names("measure", "robust fidelity"))},
        **{name.capitalize(): {"measure": name, "note": "Less is better."}
           for name in results.names("measure", RETRAINED)},
    })  # fmt: skip
    return Page(
        "Faithfulness: fidelity, robust fidelity, removal and retraining",
        claims,
        dots(results, "characterization", "Characterization, plain and robust; more is better.",
             (BOTH, SOFT)),
        {"Details": (*tables[:2], *paired, *tables[2:])},
        f"Nodes are removed as in Eq. 2, the top {', '.join(f'{s:.0%}' for s in SHARES)} of them. "
        f"Robust fidelity: the top {ROBUST:.0%}, of which (or of the rest) {PART:.0%} are cut off, "
        f"{DRAWS} draws; the model is trained for {TUNED_FOR} more steps with up to {CUT:.0%} of "
        f"the edges cut. Retraining: {FEW} graphs, {AGAIN} epochs, {SPLITS} splits. All explainers "
        "have their usual settings; where nodes have no features, PGM-Explainer and integrated "
        "gradients replace them by 0. BA-2motifs has a part of its graphs; its class *cycle*, "
        "which is asked, is what models say without any edge, so little can be taken away. A new "
        "model can also learn from the cut itself, which differs by class: a known weakness of "
        "retraining.",
    )  # fmt: skip


def best(results: Measurements, measure: str, title: str, of: Callable[..., str]) -> str:
    """The method with the largest (`of=max`) or smallest mean on a data set."""
    methods = results.names("method", measure=measure, data=title)
    return of(methods, key=lambda m: results.estimate(measure, method=m, data=title).mean)


STUDY = Study(
    "faithfulness", "fidelity over sparsities, robust fidelity, removal and retraining",
    (GRID, RETRAIN), page,
)  # fmt: skip


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
    ids, falls = ours.node_ids.tolist(), leave_one_out(answer, ours)
    values = torch.tensor([answer.explanation.nodes.get(node, 0.0) for node in ids]).double()
    if len(ids) < 3 or not float(falls.abs().max()):
        return {}
    tops = [set(top_positions(v, TOP, "value").tolist()) for v in (values, falls)]
    correlation = stats.spearmanr(values, falls).statistic if float(values.std()) else 0.0
    return {AGREES: float(correlation), SAME_TOP: len(tops[0] & tops[1]) / len(tops[1])}


def leave_one_out(answer: Answer, ours: Explanation) -> torch.Tensor:
    """The fall of the score without each of GraphSVX's players, in its order."""
    query = question(ours, answer.trained.model, answer.trained.dataset.graph, "raw")
    game = GraphSVX(players="nodes").games(query, choose_evaluator(query, None, 0), 0)[-1]
    everyone = np.ones(game.players, dtype=bool)
    full, less = (game.values(game.states(coalitions))
                  for coalitions in (everyone[None], one_less(everyone)[0]))  # fmt: skip
    return (full - less).detach()[:, ours.target]


REAL_METHODS = {OURS: Setting(GraphSVX(players="nodes")), **USUAL}
REAL_GRID = Grid(
    ("cora", "citeseer", "amazon-photo"), lambda _: REAL_METHODS, motifs.test_nodes(NODES),
    measures=(motifs.fidelity_curves(REAL_SHARES), agreement),
    case_measures=(motifs.model_accuracy,),
)  # fmt: skip


def real_graphs_page(results: Measurements) -> Page:
    """Whether ours is first by characterization and agreement, and the curves."""
    first, paired = ahead_of_others(results, (BOTH, AGREES), "GraphSVX is first by")
    claims = [claim for by_set in first.values() for claim in by_set]
    claims += [Claim.of(f"GraphSVX's {AGREES} is above 0", "",
                        results.estimate(AGREES, method=OURS, data=s), is_positive, on=s)
               for s in results.names("data", measure=AGREES)]  # fmt: skip
    tables = pivots(results, {
        "Characterization, mean over the shares": BOTH, AGREES.capitalize(): AGREES,
        SAME_TOP.capitalize(): SAME_TOP,
        **{name: name for name in results.names("measure", "fidelity")},
        "Test accuracy of the models": {"measure": "test accuracy", "rows": "measure"},
    })  # fmt: skip
    return Page(
        "Real graphs: fidelity curves and agreement with leave-one-out",
        claims,
        curves(results, "curves", "fidelity+ (more is better) and fidelity- (less is better).",
               [name.split(",")[0] for name in (PLUS, MINUS)], METHODS,
               ("share of nodes", REAL_SHARES),
               lambda panel, method, share: (f"{panel}, top {share:.0%}", method)),
        {"Details": (*tables[:3], *paired, *tables[3:])},
        f"Two-layer GCNs; {NODES} test nodes a seed that have a neighbour, drawn at random, and "
        "their predicted class. Removed nodes lose their edges. GraphSVX has its default budget, "
        "which grows with the game: up to thousands of nodes play on Amazon-Photo.",
    )  # fmt: skip


REAL_GRAPHS = Study(
    "real-graphs", "fidelity curves and agreement with leave-one-out, without a known truth",
    (REAL_GRID,), real_graphs_page,
)  # fmt: skip
