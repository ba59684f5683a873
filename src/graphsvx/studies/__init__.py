"""The paper's experiments as declarations: `graphsvx study NAME` measures and writes a page.

    from graphsvx import studies
    context = studies.StudyContext(out=Path("results"), runs=Path("runs/studies"))
    studies.get("masks").run(context)

A study declares `Grid`s (data sets x models x seeds x methods x questions), measures (functions of
an explanation) and a page (claims, a figure, tables). Running it gives one tidy table
(`<study>.parquet`: study, dataset, model, seed, method, question, measure, value); the page is a
function of that table alone and can be made again without measuring (`graphsvx study NAME
--pages`). Explanations are kept as runs and measurements by data set, model and seed, so a study
that was killed goes on where it was.

A new study is a file like this one, and a name in `_ALL` below:

    def stability(answer: Answer) -> dict[str, float]:           # a measure: name -> value
        return {"largest share": float(answer.explanation.node_values.abs().max())}

    def page(results: Measurements) -> Page:                     # a function of the table alone
        ours = results.estimate("largest share", method="GraphSVX", data="BA-Shapes")
        table = pivot(results, "Largest share", "largest share")    # methods x data sets
        tests = results.tests("largest share", "GraphSVX", ["Random"])
        return Page("Largest share", (
            Claim.of("No node has more than half", 0.5, ours, lambda ours, paper: ours.high < paper),
            Claim.first("GraphSVX has more than the others", "", tests),
        ), sections={"Details": (table,)})

    METHODS = {"GraphSVX": Setting(GraphSVX()), "Random": Setting(Random(players="nodes"))}
    GRIDS = (Grid(("ba-shapes",), lambda dataset: METHODS, motifs.scoring(strict=20),
                  measures=(stability, motifs.accuracy)),)
    STUDY = Study("largest-share", "how much one node gets", GRIDS, page)

Claims need at least `MIN_SEEDS` seeds, else they read "not tested". Measures that need several
explanations or other models are `case_measures`; a model of one's own is an entry of
`Grid.models`. A quick version (one seed, two questions, little effort) comes with every study.
"""

from __future__ import annotations

from graphsvx.errors import InputError
from graphsvx.studies import (
    ablation,
    budget,
    cut_edges,
    ground_truth,
    mask_generators,
    noise,
    properties,
    running_time,
    settings,
)
from graphsvx.studies.context import StudyContext
from graphsvx.studies.measurements import Measurements
from graphsvx.studies.page import Claim, Figure, Page, Table
from graphsvx.studies.setting import Setting
from graphsvx.studies.statistics import Estimate
from graphsvx.studies.study import Answer, Case, Grid, Study

__all__ = [
    "Answer", "Case", "Claim", "Estimate", "Figure", "Grid", "Measurements", "Page",
    "Setting", "Study", "StudyContext", "Table", "get", "names",
]  # fmt: skip

_ALL: tuple[Study, ...] = (
    ground_truth.STUDY, noise.FEATURES_STUDY, noise.NODES_STUDY, mask_generators.STUDY,
    budget.STUDY, ablation.STUDY, running_time.STUDY, properties.STUDY, settings.STUDY,
    cut_edges.STUDY,
)  # fmt: skip


def names() -> tuple[str, ...]:
    """All studies, in the order of the summary."""
    return tuple(study.name for study in _ALL)


def get(name: str) -> Study:
    """A study by its name."""
    for study in _ALL:
        if study.name == name:
            return study
    raise InputError(f"there is no study {name!r}; choose one of: {', '.join(names())}")
