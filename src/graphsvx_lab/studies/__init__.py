"""The paper's experiments as declarations: `graphsvx study NAME` measures and writes a page.

    from graphsvx_lab import studies
    context = studies.StudyContext(out=Path("results"), runs=Path("runs/studies"))
    studies.get("masks").run(context)

A study declares `Grid`s (data sets x models x seeds x methods x questions), measures (functions of
an explanation) and a page (claims, a figure, tables), which is a function of one tidy table alone
(`<study>.parquet`: study, dataset, model, seed, method, question, measure, value). What was
explained and measured is kept, so a study that was killed goes on where it was.

A new study is a file like this one, and a line in `_STUDIES` below:

    def share_of_first(answer: Answer) -> dict[str, float]:      # a measure: name -> value
        values = answer.explanation.node_values.abs()
        return {"largest share": float(values.max() / values.sum())}

    METHODS = {"GraphSVX": Setting(GraphSVX()), "Random": Setting(Random(players="nodes"))}
    GRID = Grid(("ba-shapes",), lambda dataset: METHODS, motifs.scoring(strict=20),
                measures=(share_of_first, motifs.accuracy))

    @study_of(GRID)
    def largest_share(results: Measurements) -> Page:            # a function of the table alone
        "how much one node gets"
        ours = results.by("data", "largest share", method="GraphSVX")
        claims = Claim.each("Some node has more than a third", {"BA-Shapes": 1 / 3}, ours, reaches)
        table = pivot(results, "Largest share", "largest share")    # methods x data sets
        return Page("Largest share", claims, sections={"Details": (table,)})

Claims need at least `MIN_SEEDS` seeds, else they read "not tested". Measures that need several
explanations or other models are `case_measures`; a model of one's own is an entry of
`Grid.models`. A quick version (one seed, two questions, little effort) comes with every study.
"""

from __future__ import annotations

from importlib import import_module

from graphsvx.errors import InputError
from graphsvx.utils.printable import did_you_mean
from graphsvx_lab.metrics.measurements import Estimate, Measurements
from graphsvx_lab.studies.context import Setting, StudyContext
from graphsvx_lab.studies.page import Claim, Figure, Page, Table, write_summary
from graphsvx_lab.studies.study import Answer, Case, Grid, Study, study_of

__all__ = [
    "Answer", "Case", "Claim", "Estimate", "Figure", "Grid", "Measurements", "Page", "Setting",
    "Study", "StudyContext", "Table", "get", "names", "study_of",
    "write_summary"]  # fmt: skip

_STUDIES = {
    "ground-truth": "ground_truth",
    "noisy-features": "noise",
    "noisy-nodes": "noise",
    "masks": "sampling",
    "budget": "sampling",
    "ablation": "properties",
    "time": "sampling",
    "properties": "properties",
    "settings": "settings",
    "fresh-models": "ground_truth",
    "cut-edges": "ground_truth",
    "molecules": "graph_sets",
    "false-positives": "graph_sets",
    "faithfulness": "faithfulness",
    "shortcut": "graph_sets",
    "real-graphs": "faithfulness",
}
"""The module of each study, in the order of the summary."""


def names() -> tuple[str, ...]:
    """All studies, in the order of the summary."""
    return tuple(_STUDIES)


def get(name: str) -> Study:
    """A study by its name.

    Args:
        name: one of `names()`.

    Returns:
        The declaration; `run(context)` measures and writes its page.

    Raises:
        InputError: there is no such study.

    """
    if name not in _STUDIES:
        hint = did_you_mean(name, _STUDIES)
        raise InputError(f"there is no study {name!r}; {hint}choose one of: {', '.join(_STUDIES)}")
    return getattr(import_module(f"{__name__}.{_STUDIES[name]}"), name.replace("-", "_"))
