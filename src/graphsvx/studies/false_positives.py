"""Study `false-positives`: how many atoms does a method call important where none is?

Each method has its own rule of what is important (`called_important`). For shuffled labels one rule
fits all: over the models, is an atom's mean value different from 0?
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from scipy import stats

from graphsvx import zoo
from graphsvx.datasets.changed import shuffled
from graphsvx.methods import GraphSVX
from graphsvx.metrics.comparison import MIN_SEEDS, SIGNIFICANT, Estimate, holm
from graphsvx.studies.context import StudyContext, model_of
from graphsvx.studies.measurements import Measurements
from graphsvx.studies.molecules import molecules
from graphsvx.studies.page import Claim, Page, Table, dots, pivot
from graphsvx.studies.setting import GRAPH_RIVALS, Setting
from graphsvx.studies.study import Answer, Grid, Questions, Study
from graphsvx.zoo import Trained

OURS = "GraphSVX"
METHODS = {OURS: Setting(GraphSVX(samples=1000)), **GRAPH_RIVALS}
LEAST, HALF, ALLOWED = 0.01, 0.5, 0.05
"""Of the score, of a mask, and the share of atoms that may be called important."""
THRESHOLDS = {"GNNExplainer": HALF, "PGM-Explainer": 0.0}
"""Where a value is not in units of the score."""
SHARE, ATOM = "atoms called important", "atom "
NO_MOTIF, CONSTANT, SHUFFLED = "no motif", "constant model", "shuffled labels"
GRAPHS, TRAINED_ON = 8, 1500


def called_important(answer: Answer) -> dict[str, float]:
    """The share of atoms that a method calls important, by its rule."""
    explanation = answer.explanation
    values = explanation.node_values.double().abs()
    if answer.method == OURS:
        errors = explanation.node_errors.double().nan_to_num()
        values -= stats.norm.ppf(1 - SIGNIFICANT / 2) * errors
    important = int((values > THRESHOLDS.get(answer.method, LEAST)).sum())
    return {SHARE: important / int(answer.trained.dataset.graphs[answer.question].num_nodes)}


def values_of_atoms(answer: Answer) -> dict[str, float]:
    """The value of every atom, for the test over models."""
    return {f"{ATOM}{atom}": value for atom, value in answer.explanation.nodes.items()}


def constant_model(context: StudyContext, dataset: str, seed: int) -> Trained:
    """The zoo's model with its last weights at 0."""
    trained = context.trained_model(dataset, seed)
    model = deepcopy(trained.model)
    with torch.no_grad():
        model.get_parameter("out.weight").zero_()
    return replace(trained, model=model)


def first_of_test(trained: Trained) -> Questions:
    """The same molecules for every seed: the test part is that of the files."""
    return {"test": tuple(trained.dataset.split.test[:GRAPHS].tolist())}


SETTINGS = replace(zoo.settings_for("benzene"), epochs=15)
GRID = Grid(
    ("benzene",), lambda _: METHODS, molecules("test", GRAPHS, label=0),
    measures=(called_important,), quick=("alkane-carbonyl",),
    models={NO_MOTIF: StudyContext.trained_model, CONSTANT: constant_model},
)  # fmt: skip
OVER_MODELS = replace(
    GRID, questions=first_of_test, measures=(values_of_atoms,),
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
    estimates = {case: {name: results.estimate(SHARE, method=name, model=case) for name in methods}
                 for case in (NO_MOTIF, CONSTANT)}  # fmt: skip
    estimates[SHUFFLED] = over_models if models >= MIN_SEEDS else {}
    claims = [Claim.of(f"At most {ALLOWED:.0%} of the atoms are called important: {case}", "",
                       estimate, lambda ours, _: ours.mean <= ALLOWED, digits=3, on=name)
              for case, by_method in estimates.items()
              for name, estimate in by_method.items()]  # fmt: skip
    table = Table(
        f"{SHUFFLED.capitalize()}: atoms whose mean over the models is not 0",
        ["", "share of atoms"], [[name, estimate] for name, estimate in over_models.items()],
        "t test over the models, corrected by Holm within a molecule; ± over molecules. A mask or "
        "a magnitude is never below 0, so its mean is always above: it cannot be tested.",
        digits=3,
    )  # fmt: skip
    shares = pivot(results, "Share of atoms called important", SHARE, columns="model", digits=3)
    return Page(
        "False positives: how much is called important where nothing is?",
        claims,
        dots(results, "shares", "Share of atoms called important; less is better.", (SHARE,)),
        {"Details": (shares, table)},
        f"Benzene, {GRAPHS} test molecules a seed. *No motif*: molecules without a ring, of a "
        "model that knows it. *Constant model*: the last weights are 0. Important are values above "
        f"{LEAST} of the probability (GraphSVX: with the whole 95 % interval), masks above {HALF}, "
        "what PGM-Explainer's own test finds. *Shuffled labels*: each model learnt another "
        "permutation, so no atom can matter to all of them in the same direction. Without a motif "
        "some models still change their score when atoms are cut off (Greedy cuts off one): what "
        "is called important there is what the model does to such graphs, not noise.",
    )  # fmt: skip


STUDY = Study(
    "false-positives", "what is called important where nothing is", (GRID, OVER_MODELS), page
)  # fmt: skip
