"""Studies `faithfulness` and `real-graphs`: does the score follow what an explanation names?

characterization   harmonic mean of fidelity+ and 1 - fidelity-, mean over shares of the nodes,
                   which are removed as in Eq. 2: the best-ranked ones, or all others
robust fidelity    F-Fidelity: `PART` of the explanation (or of the rest) is cut, `DRAWS` times
removal, retrain   ROAR: the top nodes of all graphs are cut off, a new model is trained
leave-one-out      the fall of the score without one node, everything else in place
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import lru_cache, partial
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch_geometric.data import Batch, Data
from torch_geometric.utils import dropout_edge

from graphsvx import metrics
from graphsvx.methods import GraphSVX, PGExplainer
from graphsvx.metrics import Fidelity, top_keys
from graphsvx.results.credit import Ranking
from graphsvx.results.explanation import Explanation
from graphsvx_lab import zoo
from graphsvx_lab.datasets.base import DataSet, Split, draw, generator
from graphsvx_lab.metrics.effects import leave_one_out, score_without
from graphsvx_lab.metrics.measurements import (
    NO_QUESTION,
    SIGNIFICANT,
    Measurements,
    PairedTest,
    Value,
    is_positive,
)
from graphsvx_lab.metrics.truth import graphs_right, rank_agreement
from graphsvx_lab.studies import motifs
from graphsvx_lab.studies.context import USUAL, USUAL_WITHOUT_FEATURES, Setting
from graphsvx_lab.studies.motifs import BOTH, MINUS, PLUS
from graphsvx_lab.studies.page import Claim, Figure, Page, Table, dots, paired_table, pivots
from graphsvx_lab.studies.study import TEN_SEEDS, Answer, Case, Grid, Questions, study_of
from graphsvx_lab.zoo import Settings, Trained

ROBUST, PART, DRAWS, TUNED_FOR, CUT = 0.2, 0.5, 10, 20, 0.5
"""Robust fidelity: share of nodes in the explanation, part that is cut, draws, epochs of further
training, and the largest share of edges cut in these."""


@lru_cache(maxsize=2)
def fine_tuned(trained: Trained) -> nn.Module:
    """A copy of the model, trained further on randomly cut graphs: they are nothing new to it."""
    data, net = trained.dataset, deepcopy(trained.model).train()
    part = data.split.train
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    with torch.random.fork_rng(devices=[]):
        torch.random.set_rng_state(generator(data.seed, data.name, "cut").get_state())
        for _ in range(TUNED_FOR):
            edges_kept = partial(dropout_edge, p=CUT * float(torch.rand(1)), force_undirected=True)
            if data.task == "node":
                logits = net(data.graph.x, edges_kept(data.graph.edge_index)[0])[part]
                labels = data.labels[part]
            else:
                batch_ids = part[torch.randperm(len(part))[:256]].tolist()
                batch = Batch.from_data_list([data.graphs[graph] for graph in batch_ids])
                logits = net(batch.x, edges_kept(batch.edge_index)[0], batch.batch)
                labels = batch.y
            optimizer.zero_grad()
            cross_entropy(logits, labels).backward()  # type: ignore[no-untyped-call] # torch leaves it without types
            optimizer.step()
    return net.eval()


def robust_fidelity(
    explanation: Explanation, trained: Trained, query: int, *, by: Ranking = "value",
    top: float = ROBUST, part: float = PART,
) -> Fidelity:  # fmt: skip
    """F-Fidelity (Zheng et al. 2024): mean fall of the probability of a `fine_tuned` model.

    Args:
        explanation: of nodes; its `top` (a number, or a share below 1) are the explanation.
        trained: the explained model, which is trained further.
        query: the explained node, or the position of the graph in its data set.
        by: rank nodes by signed value or by magnitude.
        part: share of the explanation (or of the other nodes) that a draw cuts off.

    """
    score = score_without(replace(trained, model=fine_tuned(trained)), query, explanation.target)
    players = explanation.node_ids.tolist()
    top_nodes = set(top_keys(explanation, top, by, "nodes"))
    rng, full = generator(query, "robust", trained.dataset.name), score(())

    def fall(nodes: Sequence[int]) -> float:
        count = round(part * len(nodes))
        parts = [torch.randperm(len(nodes), generator=rng)[:count] for _ in range(DRAWS)]
        return full - fmean(score([nodes[i] for i in ids.tolist()]) for ids in parts)

    return Fidelity(
        plus=fall([node for node in players if node in top_nodes]),
        minus=fall([node for node in players if node not in top_nodes]),
    )


def accuracy_without(
    data: DataSet, tops: Mapping[int, Iterable[object]], settings: Settings, seed: int, splits: int
) -> float:
    """ROAR (Hooker et al. 2019): test accuracy of a new model of graphs whose `tops` are cut off.

    Cut nodes have no edges and mean features: the faster accuracy falls, the better the explainer.

    Mean over `splits` (60/10/30) of the graphs that `tops` names.
    """
    graphs = []
    for number, nodes in tops.items():
        graph = data.graphs[number].clone()
        removed = _cut_off(graph, nodes)
        graph.edge_index = graph.edge_index[:, ~removed[graph.edge_index].any(0)]
        graph.x = torch.where(removed[:, None], graph.x.mean(0), graph.x)
        graphs.append(graph)
    accuracies = []
    for split in _splits(len(graphs), seed, splits):
        less = replace(data, graphs=tuple(graphs), split=split, truth=None)
        accuracies.append(zoo.train(less, seed=seed, settings=settings).card.accuracy["test"])
    return fmean(accuracies)


def accuracy_of_cut(
    data: DataSet, tops: Mapping[int, Iterable[object]], seed: int, splits: int
) -> float:
    """Test accuracy of the best threshold on the number of edges at the `tops`, for two classes.

    Where it is high, the cut itself gives the class away: a new model need not read what is left.
    The same splits as those of `accuracy_without`; the threshold is that of the training part.
    """
    counts = torch.tensor(
        [
            int(_cut_off(data.graphs[graph], nodes)[data.graphs[graph].edge_index].any(0).sum())
            for graph, nodes in tops.items()
        ]
    )
    labels, accuracies = data.labels[list(tops)] == 1, list[float]()
    for split in _splits(len(counts), seed, splits):
        rules = [(limit, above) for limit in (-1, *counts.tolist()) for above in (True, False)]
        right = {rule: ((counts > rule[0]) == rule[1]) == labels for rule in rules}
        best = max(rules, key=lambda rule: int(right[rule][split.train].sum()))
        accuracies.append(float(right[best][split.test].double().mean()))
    return fmean(accuracies)


def _cut_off(graph: Data, nodes: Iterable[object]) -> Tensor:
    """Boolean [nodes]: those that are cut off."""
    is_cut = torch.zeros(int(graph.num_nodes), dtype=torch.bool)
    is_cut[[node for node in nodes if isinstance(node, int)]] = True
    return is_cut


def _splits(count: int, seed: int, splits: int) -> Iterator[Split]:
    """Random parts of 60, 10 and 30 %."""
    train, val = round(0.6 * count), round(0.7 * count)
    for name in map(str, range(splits)):
        order = torch.randperm(count, generator=generator(seed, "retrain split", name))
        yield Split(order[:train], order[train:val], order[val:])


OURS, RANDOM, SLOWEST = "GraphSVX", "Random", "PGM-Explainer"
"""The slowest is not asked about all graphs that are learnt again."""
SETS = ("ba-shapes", "tree-cycles", "tree-grid", "ba-2motifs", "benzene", "alkane-carbonyl")
MOLECULES, GOAL = SETS[4:], 4
SHARES = (0.1, 0.2, 0.3, 0.5)
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
    e, by = answer.explanation, answer.setting.by
    plus, minus = robust_fidelity(e, answer.trained, answer.question, by=by)
    values = {"robust fidelity+": plus, "robust fidelity-": minus}
    return {**values, SOFT: metrics.characterization(plus, minus)}


def retrained(case: Case) -> Iterator[Value]:
    """Test accuracy of a new model on graphs without the top nodes of each method."""
    graphs = case.questions["graphs"]
    yield "", NO_QUESTION, "graphs learnt again", len(graphs)
    if len(graphs) < FEW:  # a quick version: too few to be split
        return
    settings = replace(case.trained.card.settings, epochs=AGAIN)
    accuracy = partial(
        accuracy_without, case.trained.dataset, settings=settings, seed=case.seed, splits=SPLITS
    )
    for method, by_question in case.explanations.items():
        by = case.settings[method].by
        for share in REMOVED:
            tops = {q: top_keys(e, share, by, "nodes") for q, e in by_question.items()}
            yield method, NO_QUESTION, f"{RETRAINED}{share:.0%}", accuracy(tops)
            by_cut = accuracy_of_cut(case.trained.dataset, tops, case.seed, SPLITS)
            yield method, NO_QUESTION, f"{TOLD}{share:.0%}", by_cut
    yield "nothing removed", NO_QUESTION, f"{RETRAINED}0%", accuracy(dict.fromkeys(graphs, ()))


GRID = Grid(
    SETS, methods, questions, measures=(motifs.fidelity_curves(SHARES), robust), seeds=TEN_SEEDS
)
RETRAIN = Grid(
    ("ba-2motifs", "benzene"),
    lambda data: {  # fewer samples: all graphs have to be explained
        name: setting for name, setting in methods(data, 300).items() if name != SLOWEST
    },
    graphs_of_all_classes,
    case_measures=(retrained,),
)


def tests_of(results: Measurements, measure: str) -> dict[str, dict[str, PairedTest]]:
    """GraphSVX against everybody else, by data set."""
    others = [name for name in results.names("method", measure=measure) if name != OURS]
    return results.tests_by("data", measure, OURS, others)


def ahead_of_others(
    results: Measurements, measures: Iterable[str]
) -> tuple[dict[str, list[Claim]], list[Table]]:
    """By measure: the claims to be ahead on each data set; and tables with all differences."""
    claims: dict[str, list[Claim]] = {}
    tables: list[Table] = []
    for measure in measures:
        statement, tests = (
            f"GraphSVX is ahead of all others by {measure}",
            tests_of(results, measure),
        )
        claims[measure] = [Claim.first(statement, "", of, title) for title, of in tests.items()]
        tables.append(paired_table(f"GraphSVX minus another, {measure}", tests))
    return claims, tables


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
        clearly = [
            title
            for title in behind
            if any(t.difference < 0 and t.p < SIGNIFICANT for t in tests[title].values())
        ]
        if behind:
            ahead = f"on {', '.join(clearly)} only" if clearly else "on none of them"
            yield (
                f"**{measure.capitalize()}.** GraphSVX is not first on {', '.join(behind)}; "
                f"another explainer is significantly ahead of it {ahead}."
            )
    plus = {title: results.by("method", "robust fidelity+", data=title) for title in behind}
    rising = [title for title in behind if max(e.mean for e in plus[title].values()) < 0]
    if rising:
        yield (
            f"On {', '.join(rising)} the score rises when half of the top is cut, whichever "
            "explainer chose it (robust fidelity+ is below 0): nobody is faithful by this "
            "measure, and there is nothing to rank by."
        )
    for title in results.names("data", measure=f"{TOLD}10%"):
        ours, chance = (
            results.estimate(f"{TOLD}10%", method=name, data=title) for name in (OURS, RANDOM)
        )
        yield (
            f"**Retraining on {title}.** The number of edges that are cut, and nothing else, "
            f"tells the class of {ours.mean:.0%} of the graphs if GraphSVX's top 10% go, and of "
            f"{chance.mean:.0%} if random nodes go. A new model can read the class from the cut "
            "where the first figure is high: then its accuracy says little about what is left. "
            f"It is least accurate without the top 10% of "
            f"{best(results, f'{RETRAINED}10%', title, min)}."
        )


@study_of(GRID, RETRAIN)
def faithfulness(results: Measurements) -> Page:
    """fidelity over sparsities, robust fidelity, removal and retraining"""
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
        sets = results.names("data", measure=measure)
        claims += Claim.each(
            f"Without GraphSVX's top {measure.split()[-1]} a new model is less accurate "
            "than without random nodes, by",
            dict.fromkeys(sets, ""),
            {s: results.paired((RANDOM, measure), (OURS, measure), data=s) for s in sets},
            is_positive,
        )
    prefixes = ("fidelity", "robust fidelity", RETRAINED, TOLD)
    others = [name for prefix in prefixes for name in results.names("measure", prefix)]
    tables = pivots(results, [BOTH, SOFT, *others])
    caption = "Characterization, plain and robust; more is better."
    return Page(
        "Faithfulness: fidelity, robust fidelity, removal and retraining",
        claims,
        dots("characterization", caption, {BOTH: tables[0], SOFT: tables[1]}),
        {
            "Where GraphSVX is not first, and why": tuple(reasons(results)),
            "Details": (*tables[:2], *paired, *tables[2:]),
        },
        "Does the score fall without the nodes that an explanation ranks first, and stay without "
        "all others?",
        f"{QUESTIONS} questions a seed. Nodes are removed as in Eq. 2, the top "
        f"{', '.join(f'{s:.0%}' for s in SHARES)} of them. Robust fidelity: the top {ROBUST:.0%}, "
        f"of which (or of the rest) {PART:.0%} are cut off, {DRAWS} draws; the model is trained "
        f"for {TUNED_FOR} more steps with up to {CUT:.0%} of the edges cut. Retraining: {FEW} "
        f"graphs, {AGAIN} epochs, {SPLITS} splits; the less accurate the new model, the better, "
        "but it can also learn from the cut itself. Explainers have their usual settings; where "
        "all nodes have the same features, those that look at features replace them by 0.",
    )


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
    ("cora", "citeseer", "amazon-photo"),
    lambda _: REAL_METHODS,
    motifs.test_nodes(NODES),
    measures=(motifs.fidelity_curves(REAL_SHARES), agreement),
    case_measures=(motifs.model_accuracy,),
)


@study_of(REAL_GRID)
def real_graphs(results: Measurements) -> Page:
    """fidelity curves and agreement with leave-one-out, without a known truth"""
    ahead, paired = ahead_of_others(results, (BOTH, AGREES))
    sets, agrees = results.names("data", measure=AGREES), results.by("data", AGREES, method=OURS)
    measures = (BOTH, AGREES, SAME_TOP, *results.names("measure", "fidelity"))
    declared: dict[str, Any] = {name: {} for name in measures}
    tables = pivots(results, {**declared, "test accuracy": {"rows": "measure"}})
    points = {axis.split(",")[0]: {s: {name: {
        share: e.band for share in REAL_SHARES
        if (e := results.estimate(f"{axis}{share:.0%}", method=name, data=s)).seeds}
        for name in REAL_METHODS} for s in sets} for axis in (PLUS, MINUS)}  # fmt: skip
    above = f"GraphSVX's {AGREES} is above 0"
    caption = "fidelity+ (more is better) and fidelity- (less is better)."
    return Page(
        "Real graphs: fidelity curves and agreement with leave-one-out",
        [
            *(claim for by_set in ahead.values() for claim in by_set),
            *Claim.each(above, dict.fromkeys(sets, ""), agrees, is_positive),
        ],
        Figure("curves", caption, lambda plots: plots.curves(points, "share of nodes")),
        {"Details": (*tables[:3], *paired, *tables[3:])},
        "No truth is known here. Does the score follow what is removed, and does credit agree with "
        "removing nodes one by one?",
        f"Two-layer GCNs; {NODES} test nodes a seed that have a neighbour, drawn at random, and "
        "their predicted class. Removed nodes lose their edges. GraphSVX has its default budget, "
        "which grows with the game: up to thousands of nodes play on Amazon-Photo.",
    )
