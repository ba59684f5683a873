"""Study `false-positives`: how many atoms does a method call important where none is?

A model can hang on atoms of a molecule without a motif: parts of it may look like a ring. What
must not be called important is an atom without effect: it changes the score by less than `LEAST`,
whatever else of the molecule is there, cut off or with its features replaced.

Each method has its own rule of what is important (`called_important`). For shuffled labels one rule
fits all: over the models, is an atom's mean value different from 0?
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from graphsvx import zoo
from graphsvx.datasets.base import generator
from graphsvx.datasets.changed import shuffled
from graphsvx.methods import GraphSVX
from graphsvx.metrics.comparison import MIN_SEEDS, SIGNIFICANT, Estimate, holm
from graphsvx.studies.context import StudyContext, model_of, with_zeros
from graphsvx.studies.measurements import Measurements
from graphsvx.studies.molecules import molecules
from graphsvx.studies.page import Claim, Figure, Page, Table, pivot
from graphsvx.studies.setting import GRAPH_RIVALS, Setting
from graphsvx.studies.study import Answer, Case, Grid, Questions, Study, Value
from graphsvx.zoo import Trained

OURS = "GraphSVX"
METHODS = {OURS: Setting(GraphSVX(samples=1000)), **GRAPH_RIVALS}
LEAST, HALF, ALLOWED = 0.01, 0.5, 0.05
"""Of the score, of a mask, and the share of atoms that may be called important."""
THRESHOLDS = {"GNNExplainer": HALF, "PGM-Explainer": 0.0}
"""Where a value is not in units of the score."""
TRIED = 64
"""Random sets of the other atoms that an atom is added to, to see whether it has an effect."""
FALSE, SHARE, ATOM = "atoms without effect called important", "atoms called important", "atom "
EFFECT, LARGEST = "atoms with an effect", "largest change by an atom"
NO_MOTIF, CONSTANT, SHUFFLED = "no motif", "constant model", "shuffled labels"
GRAPHS, TRAINED_ON = 8, 1500


@torch.no_grad()
def scores_of_parts(trained: Trained, number: int, target: int, present: Tensor) -> Tensor:
    """The explained probability of a molecule for each row of `present` (row, atom), both ways.

    Absent atoms are cut off from everything (Eq. 2), or have the mean features of the molecule.
    """
    graph, (rows, atoms) = trained.dataset.graphs[number], present.shape
    edges, batch = graph.edge_index, torch.arange(rows).repeat_interleave(atoms)
    row, edge = present[:, edges].all(1).nonzero().t()
    every_row = torch.arange(rows).repeat_interleave(edges.shape[1])
    all_edges = edges.repeat(1, rows) + atoms * every_row
    replaced = torch.where(present[..., None], graph.x, graph.x.mean(0)).flatten(0, 1)
    inputs = ((graph.x.repeat(rows, 1), edges[:, edge] + atoms * row), (replaced, all_edges))
    return torch.stack([trained.model(*x, batch).softmax(-1)[:, target] for x in inputs])


@lru_cache(maxsize=64)
def largest_changes(trained: Trained, number: int, target: int) -> Tensor:
    """By atom, how much it changes the score at most when it is added to others.

    To all others, to none of them, and to `TRIED` random sets of all sizes.
    """
    atoms = int(trained.dataset.graphs[number].num_nodes)
    rng = generator(number, "sets of atoms")
    rates = torch.cat([torch.tensor([0.0, 1.0]), torch.rand(TRIED, generator=rng)])
    sets = torch.rand(TRIED + 2, atoms, generator=rng) < rates[:, None]

    def change(atom: int) -> Tensor:
        is_atom = torch.arange(atoms) == atom
        scores = [scores_of_parts(trained, number, target, present)
                  for present in (sets | is_atom, sets & ~is_atom)]  # fmt: skip
        return (scores[0] - scores[1]).abs().max()

    return torch.stack([change(atom) for atom in range(atoms)])


def called_important(answer: Answer) -> dict[str, float]:
    """The share of atoms that a method calls important: of all, and of those without effect."""
    explanation = answer.explanation
    values = explanation.node_values.double().abs()
    if answer.method == OURS:
        errors = explanation.node_errors.double().nan_to_num()
        values -= stats.norm.ppf(1 - SIGNIFICANT / 2) * errors
    changes = largest_changes(answer.trained, answer.question, explanation.target)
    named = torch.zeros(len(changes), dtype=torch.float64)
    named[explanation.node_ids] = (values > THRESHOLDS.get(answer.method, LEAST)).double()
    return {SHARE: float(named.mean()), FALSE: float(named[changes < LEAST].mean())}


def effects(case: Case) -> Iterator[Value]:
    """By molecule: the share of atoms that have an effect, and the largest one."""
    for question, explanation in case.explanations[OURS].items():
        changes = largest_changes(case.trained, question, explanation.target)
        yield "", question, EFFECT, float((changes >= LEAST).double().mean())
        yield "", question, LARGEST, float(changes.max())


def values_of_atoms(answer: Answer) -> dict[str, float]:
    """The value of every atom, for the test over models."""
    return {f"{ATOM}{atom}": value for atom, value in answer.explanation.nodes.items()}


def constant_model(context: StudyContext, dataset: str, seed: int) -> Trained:
    """The zoo's model with its last weights at 0."""
    return with_zeros(context.trained_model(dataset, seed), "out.weight", slice(None))


def first_of_test(trained: Trained) -> Questions:
    """The same molecules for every seed: the test part is that of the files."""
    return {"test": tuple(trained.dataset.split.test[:GRAPHS].tolist())}


SETTINGS = replace(zoo.settings_for("benzene"), epochs=15)
GRID = Grid(
    ("benzene",), lambda _: METHODS, molecules("test", GRAPHS, label=0),
    measures=(called_important,), case_measures=(effects,), quick=("alkane-carbonyl",),
    models={NO_MOTIF: StudyContext.trained_model, CONSTANT: constant_model},
)  # fmt: skip
OVER_MODELS = replace(
    GRID, questions=first_of_test, measures=(values_of_atoms,), case_measures=(),
    models={SHUFFLED: model_of(partial(shuffled, train=TRAINED_ON), SETTINGS, "shuffled")},
)  # fmt: skip


def significant(results: Measurements, method: str) -> Estimate:
    """By molecule, the share of atoms whose mean over models is not 0: t test, Holm within it."""
    values: dict[int, dict[str, list[float]]] = {}
    for key in results.keys(method=method, model=SHUFFLED):
        for by_question in results.series[key].values():
            for question, value in by_question.items():
                values.setdefault(question, {}).setdefault(key.measure, []).append(value)
    return Estimate(tuple(share_significant(list(atoms.values())) for atoms in values.values()))


def share_significant(samples: list[list[float]]) -> float:
    """The share of samples whose mean differs from 0 (t test), corrected by Holm."""
    return float(np.mean(holm([_p_value(np.array(sample)) for sample in samples]) <= SIGNIFICANT))


def _p_value(sample: np.ndarray) -> float:
    if len(sample) < 2 or np.ptp(sample) == 0:  # no spread: 0 everywhere, or never 0
        return 1.0 if not sample.any() or len(sample) < 2 else 0.0
    return float(stats.ttest_1samp(sample, 0).pvalue)


def page(results: Measurements) -> Page:
    """The share of atoms that each method calls important, ours against 5 %."""
    methods = [name for name in METHODS if results.keys(method=name)]
    over_models = {name: significant(results, name) for name in methods}
    models = max((len(results.series[key]) for key in results.keys(model=SHUFFLED)), default=0)
    estimates = {case: {name: results.estimate(FALSE, method=name, model=case) for name in methods}
                 for case in (NO_MOTIF, CONSTANT)}  # fmt: skip
    estimates[SHUFFLED] = over_models if models >= MIN_SEEDS else {}
    statement = f"At most {ALLOWED:.0%} of atoms without effect are called important"
    claims = [Claim.of(f"{statement}: {case}", "", estimate,
                       lambda ours, _: ours.mean <= ALLOWED, digits=3, on=name)
              for case, by_method in estimates.items()
              for name, estimate in by_method.items()]  # fmt: skip
    table = Table(
        f"{SHUFFLED.capitalize()}: atoms whose mean over the models is not 0",
        ["", "share of atoms"], [[name, estimate] for name, estimate in over_models.items()],
        "t test over the models, corrected by Holm within a molecule; ± over molecules. A mask or "
        "a magnitude is never below 0, so its mean is always above: it cannot be tested.",
        digits=3,
    )  # fmt: skip
    shares = [
        pivot(results, title, measure, columns="model", digits=3)
        for title, measure in ((f"Share of {FALSE}", FALSE), (f"Share of all {SHARE}", SHARE))
    ]
    effects = pivot(results, "What atoms do to the score", (EFFECT, LARGEST), rows="measure",
                    columns="model")  # fmt: skip

    def draw() -> Any:
        from graphsvx.views.plot import study  # noqa: PLC0415  (needs matplotlib, an extra)

        bands = {case: {name: estimate.band for name, estimate in by_method.items()
                        if estimate.seeds} for case, by_method in estimates.items()}  # fmt: skip
        return study.dots({"share of atoms": bands})

    return Page(
        "False positives: how much is called important where nothing is?",
        claims,
        Figure("shares", "Atoms without effect called important; less is better.", draw),
        {"Details": (*shares, effects, table)},
        f"Benzene, {GRAPHS} test molecules a seed. *No motif*: molecules without a ring, of a "
        "model that knows it. *Constant model*: the last weights are 0. An atom is without effect "
        f"if it changes the probability by less than {LEAST} however many of the others are there: "
        f"all, none, and {TRIED} random sets, absent ones cut off or with mean features. Important "
        f"are values above {LEAST} (GraphSVX: with the whole 95 % interval), masks above {HALF}, "
        "what PGM-Explainer's own test finds. *Shuffled labels*: each model learnt another "
        "permutation, so no atom can matter to all of them in the same direction. The share of "
        "all atoms is no false alarm by itself: without a ring some parts of a molecule change "
        "the score a lot, and exact values say so.",
    )  # fmt: skip


STUDY = Study(
    "false-positives", "what is called important where nothing is", (GRID, OVER_MODELS), page
)  # fmt: skip
