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
from functools import partial

import torch
from scipy import stats

from graphsvx import zoo
from graphsvx.datasets.changed import shuffled
from graphsvx.methods import GraphSVX
from graphsvx.metrics.comparison import MIN_SEEDS, SIGNIFICANT, Estimate, share_significant
from graphsvx.metrics.effects import TRIED, largest_changes
from graphsvx.studies.context import StudyContext, model_of, with_zeros
from graphsvx.studies.measurements import Measurements
from graphsvx.studies.molecules import molecules
from graphsvx.studies.page import Claim, Page, Table, dots, pivots
from graphsvx.studies.setting import GRAPH_RIVALS, Setting
from graphsvx.studies.study import Answer, Case, Grid, Questions, Study, Value
from graphsvx.zoo import Trained

OURS = "GraphSVX"
METHODS = {OURS: Setting(GraphSVX(samples=1000)), **GRAPH_RIVALS}
LEAST, HALF, ALLOWED = 0.01, 0.5, 0.05
"""Of the score, of a mask, and the share of atoms that may be called important."""
THRESHOLDS = {"GNNExplainer": HALF, "PGM-Explainer": 0.0}
"""Where a value is not in units of the score."""
FALSE, SHARE = "atoms without effect called important", "atoms called important"
EFFECT, LARGEST = "atoms with an effect", "largest change by an atom"
NO_MOTIF, CONSTANT, SHUFFLED = CASES = "no motif", "constant model", "shuffled labels"
GRAPHS, TRAINED_ON = 8, 1500


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
    return {f"atom {atom}": value for atom, value in answer.explanation.nodes.items()}


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


def false_alarms(results: Measurements, method: str, case: str) -> Estimate:
    """The share of atoms without effect that are called important.

    Shuffled labels: by molecule, of atoms whose mean over the models is not 0 (t test, Holm).
    """
    if case != SHUFFLED:
        return results.estimate(FALSE, method=method, model=case)
    values: dict[int, dict[str, list[float]]] = {}
    for key in results.keys(method=method, model=case):
        if len(results.series[key]) < MIN_SEEDS:  # models are the seeds here
            return Estimate(())
        for by_question in results.series[key].values():
            for question, value in by_question.items():
                values.setdefault(question, {}).setdefault(key.measure, []).append(value)
    return Estimate(tuple(share_significant(list(atoms.values())) for atoms in values.values()))


def page(results: Measurements) -> Page:
    """The share of atoms that each method calls important, ours against 5 %."""
    alarms = Table(
        f"Share of {FALSE}", ["", *CASES],
        [[name, *(false_alarms(results, name, case) for case in CASES)] for name in METHODS],
        "Shuffled labels: atoms whose mean over the models is not 0; t test over the models, "
        "corrected by Holm within a molecule; ± over molecules. A mask or a magnitude is never "
        "below 0, so its mean is always above: it cannot be tested.", digits=3,
    )  # fmt: skip
    claims = [
        Claim.of(f"At most {ALLOWED:.0%} of atoms without effect are called important: {case}", "",
                 false_alarms(results, name, case), lambda ours, _: ours.mean <= ALLOWED, 3, name)
        for case in CASES for name in METHODS
    ]  # fmt: skip
    tables = pivots(results, {
        f"Share of all {SHARE}": SHARE,
        "What atoms do to the score": {"measure": (EFFECT, LARGEST), "rows": "measure"},
    }, columns="model", digits=3)  # fmt: skip
    return Page(
        "False positives: how much is called important where nothing is?",
        claims,
        dots("shares", "Atoms without effect called important; less is better.",
             {"share of atoms": alarms}),
        {"Details": (alarms, *tables)},
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
