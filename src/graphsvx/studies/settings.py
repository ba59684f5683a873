"""Study `settings`: how the explainers are asked, chosen on seeds that no other study scores."""

from __future__ import annotations

from dataclasses import replace

from graphsvx.studies import motifs
from graphsvx.studies.measurements import Measurements
from graphsvx.studies.page import Cell, Claim, Page, Table
from graphsvx.studies.selected_settings import (
    CANDIDATES,
    EXPLAINERS,
    READINGS,
    Reading,
    candidates,
    selected_setting,
)  # fmt: skip
from graphsvx.studies.setting import Setting, with_node_scores
from graphsvx.studies.study import Answer, Grid, Study
from graphsvx.studies.titles import TRUTH_SETS, data_title

STRICT, PAPER = 10, 6
"""Questions a seed, the same for every explainer."""
CLOSE = 0.01
"""A selected setting may be this far from the best: then the plainer one is taken."""


def label(explainer: str, setting: Setting) -> str:
    """A candidate in words, without its reading."""
    return f"{explainer}: {replace(setting, by='value', edge_rule='largest').words()}"


def words(reading: Reading) -> str:
    """`signed, largest`."""
    return f"{'signed' if reading[0] == 'value' else 'absolute'}, {reading[1]}"


def accuracy_of_readings(answer: Answer) -> dict[str, float]:
    """Accuracy under each protocol that scores the question, for every reading."""
    found = {}
    for by, rule in READINGS[answer.method.split(":")[0]]:
        explanation = with_node_scores(answer.explanation, rule)
        scores = motifs.ranked_accuracy(answer, explanation, by)
        found |= {f"{protocol}, {words((by, rule))}": scores[protocol]
                  for protocol in ("paper", "strict") if protocol in scores}  # fmt: skip
    return found


GRIDS = (
    Grid(
        TRUTH_SETS,
        lambda data: {label(e, one): one for e in EXPLAINERS for one in candidates(data, e)},
        motifs.scoring(STRICT, PAPER),
        measures=(accuracy_of_readings,),
        models={"": motifs.trained_with(cut_edges=False)},
        seeds=(100, 101),
        quick=("tree-cycles",),
    ),
)


def page(results: Measurements) -> Page:
    """A table for each data set; claims say how near the selected settings are to the best."""
    sections: dict[str, tuple[Table]] = {}
    gaps: dict[str, list[float]] = {name: [] for name in EXPLAINERS}

    def worth(dataset: str, method: str, reading: Reading) -> float:
        """The mean of the accuracies under both protocols."""
        both = [results.estimate(f"{protocol}, {words(reading)}", dataset=dataset, method=method)
                for protocol in ("paper", "strict")]  # fmt: skip
        return sum(one.mean for one in both) / 2

    for dataset in [name for name in TRUTH_SETS if results.keys(dataset=name)]:
        rows: list[list[Cell]] = []
        for name in EXPLAINERS:
            chosen, tops = selected_setting(dataset, name), dict[str, float]()
            mine, reading = label(name, chosen), (chosen.by, chosen.edge_rule)
            for method in [label(name, one) for one in candidates(dataset, name)]:
                found = {words(each): worth(dataset, method, each) for each in READINGS[name]}
                best = max(found, key=found.__getitem__)
                mark = f"selected, {words(reading)}" if method == mine else ""
                rows.append([method, best, found[best], mark])
                tops[method] = found[best]
            gaps[name].append(max(tops.values()) - worth(dataset, mine, reading))
        head = ("candidate", "best reading", "mean accuracy of both protocols", "")
        table = Table(f"{data_title(dataset)}: all candidates", head, rows, digits=3)
        sections[data_title(dataset)] = (table,)
    claims = [
        Claim(f"{name}: selected settings within {CLOSE} of the best of {CANDIDATES} candidates",
              "", f"{sum(gap <= CLOSE for gap in found)} of {len(found)} sets, furthest "
              f"{max(found):.3f}", holds=max(found) <= CLOSE)
        for name, found in gaps.items() if found
    ]  # fmt: skip
    return Page(
        "Settings, chosen on validation seeds",
        claims,
        sections=sections,
        about=f"Validation seeds have graphs, splits and models of their own. Every explainer has "
        f"{CANDIDATES} candidates on every set (settings times readings: ranking by signed or "
        f"absolute value, rule from edges to nodes), the same {STRICT} questions of `strict` and "
        f"{PAPER} of `paper` a seed, and is judged by the mean of its accuracies under the two "
        f"protocols ([protocols.md](protocols.md)).",
    )


STUDY = Study("settings", "how the explainers are asked, chosen on validation seeds", GRIDS, page)
