"""Study `masks`: the paper's mask generators and ours at equal budgets."""

from __future__ import annotations

from dataclasses import replace

from graphsvx.masks import Auto, Random, Smart, SmartSeparate
from graphsvx.methods import GraphSVX
from graphsvx.studies import motifs, selected_settings
from graphsvx.studies.measurements import Measurements
from graphsvx.studies.page import Claim, Page, dots, is_close, pivots, reaches
from graphsvx.studies.setting import CHANCE, Setting
from graphsvx.studies.shapley_error import REFERENCE, error_against, paper_game, reference
from graphsvx.studies.study import Grid, Study
from graphsvx.studies.titles import NODE_SETS, data_title

FLOOR, OURS, ALL, MOST = "Random explainer", "ours", "All", "ours, 20x the calls"
SMARTER, LETTER = "SmarterSeparate", "SmarterSeparate, indirect effect"
TUNED = "SmarterSeparate, selected settings"
MASKS = {"Random": Random(), "Smart": Smart(), "SmartSeparate": SmartSeparate()}
PAPER = {
    "Random": (0.84, 0.75, 0.74, 0.64),
    "Smart": (0.93, 0.91, 0.81, 0.79),
    "SmartSeparate": (0.94, 0.92, 0.85, 0.83),
    **dict.fromkeys((SMARTER, LETTER, TUNED), (0.99, 0.93, 0.97, 0.93)),
    ALL: (0.80, 0.79, 0.87, 0.77),
}
"""The paper's accuracies (appendix, table on MASK), in the order of its data sets."""


def methods(dataset: str) -> dict[str, Setting]:
    """The same samples and the same game; only the coalitions differ."""
    game = paper_game(dataset)
    return {
        FLOOR: CHANCE,
        **{name: Setting(replace(game, mask=mask)) for name, mask in MASKS.items()},
        SMARTER: Setting(game),
        LETTER: Setting(GraphSVX.paper(dataset)),
        TUNED: selected_settings.selected_setting(dataset, selected_settings.OURS),
        OURS: Setting(replace(game, mask=Auto())),
        # Where no feature plays, the joint game is the game of the nodes.
        ALL: reference(game, separate=dataset != "ba-community"),
        MOST: reference(game),
    }


def reference_of(method: str) -> str | None:
    """Joint masks are judged by the joint game, separate ones by the separate games."""
    if method in ("Random", "Smart", ALL):
        return ALL
    return MOST if method in ("SmartSeparate", SMARTER, OURS, MOST) else None


def papers_figure(row: str, title: str) -> float | None:
    """The paper's accuracy of a mask on a data set."""
    titles = [data_title(name) for name in NODE_SETS]
    return PAPER[row][titles.index(title)] if row in PAPER else None


GRIDS = (
    Grid(
        NODE_SETS,
        methods,
        motifs.scoring(12),
        measures=(motifs.accuracy, motifs.certificate, error_against(reference_of)),
        quick=("ba-community",),
    ),
)


def page(results: Measurements) -> Page:
    """Accuracy beside the paper's, and the error of each mask as an estimator."""
    claims = []
    for s in results.names("data"):
        score = {m: results.estimate("paper", method=m, data=s) for m in (SMARTER, ALL)}
        claims += [
            Claim.of(f"SmarterSeparate's accuracy on {s}", papers_figure(SMARTER, s) or 0.0,
                     score[SMARTER], reaches),
            Claim.first(f"SmarterSeparate is ahead of the paper's other masks on {s}", "first",
                        results.tests("strict", SMARTER, [*MASKS, ALL], data=s)),
            Claim.of(f"Accuracy of all coalitions on {s}, within 0.05",
                     papers_figure(ALL, s) or 0.0, score[ALL], is_close),
        ]  # fmt: skip
    tables = pivots(results, {
        "Accuracy, protocol `paper` (the paper's in brackets)": {
            "measure": "paper", "paper": papers_figure},
        "Accuracy, protocol `strict`": "strict",
        "AUROC on the nodes of `strict`": "AUROC",
        f"Relative squared error, median; against `{MOST}` (joint masks: `{ALL}`)": {
            "measure": "error", "digits": 4},
        "What the references expect their own error to be (0: exact)": {
            "measure": "own error", "digits": 4},
        "Distinct model calls, median": {"measure": "calls", "digits": 0},
        "Share of nodes with exact values": "exact",
    })  # fmt: skip
    return Page(
        "Mask generators at equal budgets",
        claims,
        dots(results, "accuracy", "Accuracy (`paper`; diamonds: the paper's figures) and relative "
             "squared error.", ("paper", "error"), paper=papers_figure, log=("error",)),
        {"Details": tables},
        f"Every mask generator gets the paper's number of samples and plays the same game, that of "
        f"`GraphSVX()` without the indirect effect; only the coalitions differ. The paper's masks "
        f"end in weighted least squares, ours (`Auto()`) in its own regression. `Random`, `Smart` "
        f"and `All` play features and nodes in one joint game. `{ALL}` and `{MOST}` are exact "
        f"where {REFERENCE} times the samples are enough, our estimator elsewhere.",
    )  # fmt: skip


ABOUT = "All, Random, Smart, SmartSeparate, SmarterSeparate and ours at equal budgets"
STUDY = Study("masks", ABOUT, GRIDS, page)
