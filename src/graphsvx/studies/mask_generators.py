"""Study `masks`: the paper's mask generators and ours at equal budgets."""

from __future__ import annotations

from dataclasses import replace

from graphsvx.explanation import Explanation, Ranking
from graphsvx.masks import Auto, Random, Smart, SmartSeparate
from graphsvx.methods import GraphSVX
from graphsvx.metrics.select import scores, top_keys
from graphsvx.studies import motifs, selected_settings
from graphsvx.studies.figures import dots
from graphsvx.studies.measurements import Measurements
from graphsvx.studies.page import Claim, Figure, Page, Section, by, is_close, pivots, reaches
from graphsvx.studies.setting import CHANCE, Setting
from graphsvx.studies.shapley_error import REFERENCE, error_against, paper_game, reference
from graphsvx.studies.study import Answer, Grid, Study
from graphsvx.studies.titles import NODE_SETS, data_title

FLOOR, OURS, ALL, MOST = "Random explainer", "ours", "All", "ours, 20x the calls"
SMARTER, LETTER = "SmarterSeparate", "SmarterSeparate, indirect effect"
TUNED = "SmarterSeparate, selected settings"
MASKS = {"Random": Random(), "Smart": Smart(), "SmartSeparate": SmartSeparate()}
JUDGED = (*MASKS, SMARTER, OURS)
ROWS = (FLOOR, *MASKS, SMARTER, LETTER, TUNED, OURS, ALL, MOST)
PAPER = {
    "Random": (0.84, 0.75, 0.74, 0.64),
    "Smart": (0.93, 0.91, 0.81, 0.79),
    "SmartSeparate": (0.94, 0.92, 0.85, 0.83),
    **dict.fromkeys((SMARTER, LETTER, TUNED), (0.99, 0.93, 0.97, 0.93)),
    ALL: (0.80, 0.79, 0.87, 0.77),
}
"""The paper's accuracies (appendix, table on MASK), in the order of its data sets."""
FATES = ("found", "beyond reach", "no credit, or credit against", "outranked")
"""What becomes of a node of the truth."""


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
    return MOST if method in (*JUDGED, MOST) else None


def fates_in_reference(answer: Answer) -> dict[str, float]:
    """What becomes of the truth in the reference."""
    if answer.method != MOST or not answer.scored_by("strict"):
        return {}
    return fates(answer.explanation, motifs.true_nodes(answer.trained, answer.question), "value")


def fates(explanation: Explanation, truth: set[int], ranking: Ranking) -> dict[str, float]:
    """Shares of the truth that the top k holds, that do not play, have no credit, or too little."""
    keys, values = scores(explanation, "nodes")
    credit = dict(zip(keys, values.tolist(), strict=True))
    best = set(top_keys(explanation, len(truth), ranking, "nodes"))
    counts = dict.fromkeys(FATES, 0)
    for node in truth:
        missed = 1 if node not in credit else 2 if credit[node] <= 0 else 3
        counts[FATES[0 if node in best else missed]] += 1
    return {fate: count / len(truth) for fate, count in counts.items()}


GRIDS = (
    Grid(
        NODE_SETS,
        methods,
        motifs.scoring(12),
        measures=(motifs.accuracy, motifs.certificate, error_against(reference_of),
                  fates_in_reference),
        quick=("ba-community",),
    ),
)  # fmt: skip


def page(results: Measurements) -> Page:
    """Accuracy beside the paper's, and the error of each mask as an estimator."""
    sets = {data_title(name): place for place, name in enumerate(NODE_SETS)
            if results.keys(dataset=name)}  # fmt: skip

    def paper(row: str, title: str) -> float | None:
        return PAPER[row][sets[title]] if row in PAPER else None

    columns = by("data", sets)
    own = {s: results.estimate("own error", method=MOST, data=s).mean for s in sets}
    tables = pivots(results, by("method", ROWS), columns, {
        "Accuracy, protocol `paper` (the paper's in brackets)": {"measure": "paper",
                                                                 "paper": paper},
        "Accuracy, protocol `strict`": "strict",
        "AUROC on the nodes of `strict`": "AUROC",
        "Relative squared error of the credit": {
            "measure": "error", "digits": 4,
            "note": f"Against `{MOST}` (joint masks: `{ALL}`), median over nodes. By its error "
            "bars the reference's own error is "
            + ", ".join(f"{s} {error:.1e}" for s, error in own.items()) + " (0: exact)."},
        "Distinct model calls, median": {"measure": "calls", "digits": 0},
        "Share of nodes with exact values": "exact",
    })  # fmt: skip
    tables += pivots(results, by("measure", FATES), columns, {
        "Where the nodes of the truth are in the reference": {
            "method": MOST, "note": "Shares of the motif's other nodes, `strict`. *Beyond reach*: "
            "further away than the model looks. *Outranked*: positive, but nodes outside the motif "
            "have more. No choice of coalitions can mend these."},
    })  # fmt: skip
    figure = Figure(
        "accuracy", "Accuracy and relative squared error of the mask generators. Diamonds: the "
        "paper's figures.",
        lambda: dots(
            {measure: {s: {m: results.estimate(measure, method=m, data=s) for m in ROWS}
                       for s in sets} for measure in ("paper", "error")},
            {("paper", s, m): PAPER[m][place] for s, place in sets.items() for m in PAPER},
            log=("error",),
        ),
    )  # fmt: skip
    claims = []
    for s, place in sets.items():
        score = {m: results.estimate("paper", method=m, data=s) for m in (SMARTER, ALL)}
        tests = results.tests("strict", SMARTER, [*MASKS, ALL], data=s)
        claims += [
            Claim.of(f"SmarterSeparate's accuracy on {s}", PAPER[SMARTER][place], score[SMARTER],
                     reaches),
            Claim.first(f"SmarterSeparate is ahead of the paper's other masks on {s}", "first",
                        tests),
            Claim.of(f"Accuracy of all coalitions on {s}, within 0.05", PAPER[ALL][place],
                     score[ALL], is_close),
        ]  # fmt: skip
    return Page(
        "Mask generators at equal budgets",
        tuple(claims),
        figure,
        (Section("Details", tables),),
        f"Every mask generator gets the paper's number of samples and plays the same game, that of "
        f"`GraphSVX()` without the indirect effect; only the coalitions differ. The paper's masks "
        f"end in weighted least squares, ours (`Auto()`) in its own regression. `Random`, `Smart` "
        f"and `All` play features and nodes in one joint game. `{ALL}` and `{MOST}` are exact "
        f"where {REFERENCE} times the samples are enough, our estimator elsewhere.",
    )


STUDY = Study(
    "masks",
    "All, Random, Smart, SmartSeparate, SmarterSeparate and ours at equal budgets",
    GRIDS,
    page,
)
