"""Study `faithfulness`: fidelity over sparsities, robust fidelity, and removal with retraining.

characterization   harmonic mean of fidelity+ and 1 - fidelity-, mean over `SHARES` of the nodes
robust fidelity    F-Fidelity (Zheng et al. 2024): a model that was trained further on randomly
                   cut graphs; `PART` of the explanation (or of the rest) is cut, `DRAWS` times
removal, retrain   ROAR (Hooker et al. 2019): the top nodes of all graphs are cut off, a new
                   model is trained; the faster its accuracy falls, the better the explainer
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch_geometric.data import Batch
from torch_geometric.utils import dropout_edge

from graphsvx import metrics, zoo
from graphsvx.datasets.base import DataSet, Split, generator
from graphsvx.methods.graphsvx import GraphSVX
from graphsvx.metrics.select import top_keys
from graphsvx.studies import motifs
from graphsvx.studies.changed_data import model_of, part_of
from graphsvx.studies.context import StudyContext
from graphsvx.studies.measurements import NO_QUESTION, Measurements
from graphsvx.studies.motifs import BOTH
from graphsvx.studies.page import Claim, Page, dots, is_positive, paired_table, pivots
from graphsvx.studies.setting import USUAL, USUAL_WITHOUT_FEATURES, Setting
from graphsvx.studies.study import Answer, Case, Grid, Questions, Study, Value
from graphsvx.zoo import Settings, Trained

OURS, RANDOM = "GraphSVX", "Random"
SETS = ("ba-shapes", "tree-cycles", "tree-grid", "ba-2motifs", "benzene", "alkane-carbonyl")
MOLECULES = SETS[4:]
SHARES = (0.1, 0.2, 0.3, 0.5)
ROBUST, PART, DRAWS, TUNED_FOR, CUT = 0.2, 0.5, 10, 20, 0.5
"""Robust fidelity: share of nodes in the explanation, part that is cut, draws, epochs of further
training, and the largest share of edges cut in these."""
SOFT = "robust characterization"
QUESTIONS, GRAPHS = 5, 400
RETRAINED = "accuracy after retraining without the top "
GOAL = 4
METHODS = (OURS, *USUAL)
SLOWEST = "PGM-Explainer"
"""Not asked about all graphs that are learnt again."""
RIVALS = tuple(name for name in METHODS if name != OURS)


def methods(dataset: str, samples: int = 1000) -> dict[str, Setting]:
    """GraphSVX, and others with their usual settings."""
    others = USUAL if dataset in MOLECULES else USUAL_WITHOUT_FEATURES
    return {OURS: Setting(GraphSVX(samples=samples)), **others}


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
    right = test[motifs.predicted(trained, test.tolist()) == 1]
    return {"test": tuple(right[:QUESTIONS].tolist())}


def robust_fidelity(answer: Answer) -> dict[str, float]:
    """The same on a model that knows cut graphs, with a random part cut each time."""
    robust = replace(answer.trained, model=further_trained(answer.trained))
    score = motifs.score_without(robust, answer.question, answer.explanation.target)
    players = answer.explanation.node_ids.tolist()
    top = set(top_keys(answer.explanation, ROBUST, answer.setting.by, "nodes"))
    inside, rest = [v for v in players if v in top], [v for v in players if v not in top]
    rng, full = generator(answer.question, "robust", answer.trained.dataset.name), score(())

    def fall(nodes: Sequence[int]) -> float:
        count = round(PART * len(nodes))
        draws = [torch.randperm(len(nodes), generator=rng)[:count] for _ in range(DRAWS)]
        return full - float(np.mean([score([nodes[i] for i in d.tolist()]) for d in draws]))

    plus, minus = fall(inside), fall(rest)
    values = {"robust fidelity+": plus, "robust fidelity-": minus}
    return {**values, SOFT: metrics.characterization(plus, minus)}


@lru_cache(maxsize=2)
def further_trained(trained: Trained) -> torch.nn.Module:
    """A copy of the model, trained further on graphs whose edges are cut at random."""
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


GRID = Grid(
    SETS, methods, questions, measures=(motifs.fidelity_curves(SHARES), robust_fidelity),
    models={"": model}, quick=("tree-cycles",),
)  # fmt: skip


# --- removal and retraining ---------------------------------------------------------------

REMOVED = (0.1, 0.3)
FEW, AGAIN, SPLITS = 100, 100, 3
"""Graphs that are explained, cut and learnt again; epochs; splits, of which the mean counts."""


def retrained(case: Case) -> Iterator[Value]:
    """Test accuracy of a new model on graphs without the top nodes of each method."""
    data, graphs = case.trained.dataset, case.questions["graphs"]
    settings = replace(case.trained.card.settings, epochs=AGAIN)
    yield "", NO_QUESTION, "graphs learnt again", len(graphs)
    if len(graphs) < FEW:  # a quick version: too few to be split
        return
    for method, by_question in case.explanations.items():
        by = case.settings[method].by
        for share in REMOVED:
            tops = {q: top_keys(e, share, by, "nodes") for q, e in by_question.items()}
            accuracy = accuracy_without(data, tops, settings, case.seed)
            yield method, NO_QUESTION, f"{RETRAINED}{share:.0%}", accuracy
    nothing: dict[int, list[int]] = {q: [] for q in graphs}
    accuracy = accuracy_without(data, nothing, settings, case.seed)
    yield "nothing removed", NO_QUESTION, f"{RETRAINED}0%", accuracy


def accuracy_without(
    data: DataSet, tops: Mapping[int, Sequence[object]], settings: Settings, seed: int
) -> float:
    """Test accuracy of a model trained on graphs whose `tops` are cut off and at the mean."""
    graphs = []
    for question, nodes in tops.items():
        graph = data.graphs[question].clone()
        removed = torch.zeros(int(graph.num_nodes), dtype=torch.bool)
        removed[[node for node in nodes if isinstance(node, int)]] = True
        graph.edge_index = graph.edge_index[:, ~removed[graph.edge_index].any(0)]
        graph.x = torch.where(removed[:, None], graph.x.mean(0), graph.x)
        graphs.append(graph)
    train, val = round(0.6 * len(graphs)), round(0.7 * len(graphs))
    accuracies = []
    for number in range(SPLITS):
        order = torch.randperm(len(graphs), generator=generator(seed, "retrain split", str(number)))
        split = Split(order[:train], order[train:val], order[val:])
        less = replace(data, graphs=tuple(graphs), split=split, truth=None)
        accuracies.append(zoo.train(less, seed=seed, settings=settings).card.accuracy["test"])
    return float(np.mean(accuracies))


def few_samples(dataset: str) -> dict[str, Setting]:
    """With fewer samples, and without the slowest: all graphs have to be explained."""
    return {name: setting for name, setting in methods(dataset, 300).items() if name != SLOWEST}


def some_graphs(trained: Trained) -> Questions:
    """Graphs of all classes, drawn by the seed of the data."""
    data = trained.dataset
    order = torch.randperm(len(data.graphs), generator=generator(data.seed, "retrain", data.name))
    return {"graphs": tuple(sorted(order[:FEW].tolist()))}


RETRAIN = Grid(
    ("ba-2motifs", "benzene"), few_samples, some_graphs, case_measures=(retrained,),
    models={"": model}, quick=("ba-2motifs",),
)  # fmt: skip


def page(results: Measurements) -> Page:
    """On how many sets ours is first by each measure, and the falls after retraining."""
    sets = results.names("data", measure=BOTH)
    tests = {measure: {s: results.tests(measure, OURS, RIVALS, data=s) for s in sets}
             for measure in (BOTH, SOFT)}  # fmt: skip
    claims = []
    for measure, by_set in tests.items():
        means = {s: {name: results.estimate(measure, method=name, data=s).mean for name in METHODS}
                 for s in sets}  # fmt: skip
        first = [s for s in sets if max(means[s], key=means[s].__getitem__) == OURS]
        clear = [s for s in first if all(test.ahead for test in by_set[s].values())]
        ours = f"{len(first)} of {len(sets)}, clear of the next on {len(clear)}"
        statement = f"GraphSVX is first by {measure} on at least {GOAL} of {len(SETS)} sets"
        holds = len(first) >= GOAL if len(sets) == len(SETS) else None
        claims.append(Claim(statement, "", ours, holds=holds))
        claims += [Claim.first(f"GraphSVX is ahead of all others by {measure}", "", by_rival, s)
                   for s, by_rival in by_set.items()]  # fmt: skip
    for share in REMOVED:
        measure = f"{RETRAINED}{share:.0%}"
        for s in results.names("data", measure=measure):
            accuracy = {name: results.estimate(measure, method=name, data=s).mean
                        for name in METHODS if name != SLOWEST}  # fmt: skip
            ahead = results.paired((RANDOM, measure), (OURS, measure), data=s)
            lowest = min(accuracy, key=accuracy.__getitem__)
            claims.append(Claim.of(
                f"Without GraphSVX's top {share:.0%} a new model is less accurate than without "
                f"random nodes, by (lowest: {lowest})", "", ahead, is_positive, on=s))  # fmt: skip
    tables = pivots(results, {
        "Characterization on nodes, mean over the shares": BOTH,
        "Robust characterization": SOFT,
        **{name: name for name in (*results.names("measure", "fidelity"),
                                   *results.names("measure", "robust fidelity"))},
        **{name.capitalize(): {"measure": name, "note": "Less is better."}
           for name in results.names("measure", RETRAINED)},
    })  # fmt: skip
    paired = [paired_table(f"GraphSVX minus another, {measure}", tests[measure], RIVALS)
              for measure in tests]  # fmt: skip
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


STUDY = Study(
    "faithfulness", "fidelity over sparsities, robust fidelity, removal and retraining",
    (GRID, RETRAIN), page,
)  # fmt: skip
