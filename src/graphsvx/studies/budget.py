"""Study `budget`: accuracy and error against the number of samples and against S."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from graphsvx.masks import Auto, SmarterSeparate
from graphsvx.methods import GraphSVX
from graphsvx.studies import motifs
from graphsvx.studies.measurements import Measurements
from graphsvx.studies.page import Claim, Figure, Page, is_close, is_negative, is_positive, pivots
from graphsvx.studies.setting import CHANCE, Setting
from graphsvx.studies.shapley_error import REFERENCE, error_against, paper_game, reference
from graphsvx.studies.statistics import Estimate
from graphsvx.studies.study import Grid, Study
from graphsvx.studies.titles import NODE_SETS, data_title

SMARTER, OURS, ALL, FLOOR, ORDER = "SmarterSeparate", "ours", "All", "Random explainer", "S ="
INDIRECT = "with the indirect effect: "
SAMPLES, ORDERS = (50, 150, 500, 1500, 3000, 6000), (1, 2, 3, 4, 5)
PAPER_SET = "tree-cycles"
PAPER, PAPER_ALL = {500: 0.83, 1500: 0.95, 3000: 0.88}, 0.87
"""The paper's accuracies on that set by number of samples, and of all coalitions (appendix)."""


def label(estimator: str, count: int) -> str:
    """`ours, 1500` or `S = 4`."""
    return f"{ORDER} {count}" if estimator == ORDER else f"{estimator}, {count}"


def varied(game: GraphSVX) -> dict[str, Setting]:
    """Both estimators with more and more samples, and the reference."""
    found = {ALL: reference(game)}
    for count in SAMPLES:
        # A reference has to have far more calls than what it judges.
        if count <= REFERENCE * game.samples // 2:
            found[label(SMARTER, count)] = Setting(replace(game, samples=count))
            found[label(OURS, count)] = Setting(replace(game, samples=count, mask=Auto()))
    return found


def methods(dataset: str) -> dict[str, Setting]:
    """More and more samples; and larger and larger S with the paper's number of samples."""
    game = paper_game(dataset)
    orders = {label(ORDER, order): Setting(replace(game, mask=SmarterSeparate(order=order)))
              for order in ORDERS}  # fmt: skip
    return {FLOOR: CHANCE, **varied(game), **orders}


def in_the_papers_game(dataset: str) -> dict[str, Setting]:
    """The paper's numbers of samples in its own game."""
    wanted = {ALL, *(label(SMARTER, count) for count in PAPER)}
    found = varied(GraphSVX.paper(dataset))
    return {f"{INDIRECT}{name}": one for name, one in found.items() if name in wanted}


def reference_of(method: str) -> str | None:
    """`All` of the same game."""
    return None if method == FLOOR else (INDIRECT if method.startswith(INDIRECT) else "") + ALL


GRID = Grid(
    NODE_SETS,
    methods,
    motifs.scoring(12),
    measures=(motifs.accuracy, error_against(reference_of)),
    quick=(PAPER_SET,),
)
GRIDS = (GRID, replace(GRID, datasets=(PAPER_SET,), methods=in_the_papers_game))


def page(results: Measurements) -> Page:
    """Curves against samples and S, and whether accuracy falls towards that of all coalitions."""
    sets, cycles = results.names("data"), data_title(PAPER_SET)
    few, theirs = label(SMARTER, 1500), f"{INDIRECT}{SMARTER}"

    def gain(before: str, after: str, title: str) -> Estimate:
        return results.paired((after, "paper"), (before, "paper"), data=title)

    def draw(names: tuple[str, ...], steps: tuple[int, ...], along: str) -> Any:
        from graphsvx.plot.study import curves  # noqa: PLC0415  (needs matplotlib, an extra)

        def points(measure: str, name: str, title: str) -> dict[float, Any]:
            found = {n: results.estimate(measure, method=label(name, n), data=title) for n in steps}
            return {float(n): one.band for n, one in found.items() if one.seeds}

        panels = {m: {s: {name: points(m, name, s) for name in names} for s in sets}
                  for m in ("paper", "strict", "error")}  # fmt: skip
        paper = {("paper", cycles): PAPER} if along == "samples" else {}
        return curves(panels, along, paper, log=("error", "samples"))

    claims = [
        *(Claim.of(f"SmarterSeparate with {n:,} samples on {cycles}, the paper's game, within 0.05",
                   figure, results.estimate("paper", method=label(theirs, n)), is_close)
          for n, figure in PAPER.items()),
        Claim.of(f"Accuracy falls from 1,500 to 3,000 samples on {cycles}",
                 PAPER[3000] - PAPER[1500], gain(few, label(SMARTER, 3000), cycles), is_negative),
        *(Claim.of(f"All coalitions score less than 1,500 samples on {s}",
                   PAPER_ALL - PAPER[1500] if s == cycles else "less", gain(few, ALL, s),
                   is_negative) for s in sets),
        *(Claim.of(f"S = 4 in place of 1 raises accuracy on {s}", "raises",
                   gain(label(ORDER, 1), label(ORDER, 4), s), is_positive)
          for s in sets if s.startswith("Tree")),
    ]  # fmt: skip
    tables = pivots(results, {
        "Accuracy, protocol `paper`": "paper",
        "Accuracy, protocol `strict`": "strict",
        "AUROC on the nodes of `strict`": "AUROC",
        f"Relative squared error against `{ALL}`, median": {"measure": "error", "digits": 4},
        f"What `{ALL}` expects its own error to be (0: exact)": {
            "measure": "own error", "digits": 4},
    })  # fmt: skip
    by_order = Figure("order", "The same against S, at the paper's number of samples.",
                      lambda: draw((ORDER,), ORDERS, "S"))  # fmt: skip
    return Page(
        "How many samples, and how large an order",
        claims,
        Figure("samples", "Accuracy under both protocols and relative squared error against the "
               "number of samples. Diamonds: the paper's.",
               lambda: draw((SMARTER, OURS), SAMPLES, "samples")),
        {"Details": (by_order, *tables)},
        "The paper says that more samples help until a point, after which accuracy falls towards "
        "that of all coalitions. Its estimator (SmarterSeparate, weighted least squares) and ours "
        f"explain the same nodes in the same game, without the indirect effect unless it is named. "
        f"`{ALL}` is exact where {REFERENCE} times the paper's samples are enough, our estimator "
        "with that many calls elsewhere.",
    )  # fmt: skip


ABOUT = "accuracy and error against the number of samples and against S"
STUDY = Study("budget", ABOUT, GRIDS, page)
