"""EXPL: least squares with and without the empty and the full row, WLR, Lasso, our Smooth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphsvx import metrics
from graphsvx.baselines import Random
from graphsvx.explain.regression import WLR, WLS, Fit, Regression, surrogate
from graphsvx.explain.selective import Lasso
from graphsvx.explain.smooth import Smooth
from graphsvx.explanation import Explanation
from graphsvx.masks import Auto, Paired
from graphsvx.masks.base import Masks
from graphsvx.methods import GraphSVX
from graphsvx.studies.chapters import Told
from graphsvx.studies.chosen import NODE_SETS, TITLES
from graphsvx.studies.desk import Desk, query_of
from graphsvx.studies.estimate import Estimate
from graphsvx.studies.motifs import Asked, Measure, true_nodes, without_credit
from graphsvx.studies.page import Cell, Table
from graphsvx.studies.scoring import middle, relative_error
from graphsvx.zoo import Trained


@dataclass(frozen=True)
class NoEnds:
    """Weighted least squares with a free constant, and neither the empty nor the full row.

    So neither g(0) nor g(1) is tied to the model: efficiency holds by luck only.
    """

    def __call__(self, masks: Masks, values: Tensor, empty: Tensor, full: Tensor) -> Fit:
        """Least squares of least norm; a single player has no other rows, and keeps its own."""
        count = len(masks.rows)
        if count == 0 or masks.credit is not None:
            return WLS()(masks, values, empty, full)
        z = torch.from_numpy(masks.rows).double()
        design = torch.cat([torch.ones(count, 1, dtype=torch.float64), z], 1)
        root = torch.from_numpy(masks.weights).sqrt()[:, None]
        found = torch.linalg.lstsq(design * root, values * root, driver="gelsd").solution
        phi = found[1:].t().contiguous()
        unknown = torch.full_like(phi, torch.nan)
        return surrogate(masks, values, found[0], phi, unknown)


ENDS, NO_ENDS = "WLS, empty and full row exact", "WLS, without these rows"
FITS: dict[str, Regression] = {
    ENDS: WLS(),
    NO_ENDS: NoEnds(),
    "WLR (constant fitted)": WLR(),
    "Lasso": Lasso(),
    "Smooth": Smooth(),
}
ROWS = ("the paper's rows", "our rows")
EXACT = 5_000
"""Model calls within which a game may be enumerated for the exact values."""


@dataclass(frozen=True)
class Judged:
    """One explanation against the exact values and against the usual fit of the same rows."""

    error: float
    """|phi - exact|^2 / |exact|^2; NaN where no exact values are known."""
    residual: float
    """|prediction - base - sum of credit|."""
    same: float
    """1 if the same nodes are on top as with the usual fit, as many as the motif has, or others
    to which that gives as much (within 1 % of all absolute credit): ties are no difference."""


def judge(
    world: Trained, one: Explanation, usual: Explanation, exact: Explanation | None
) -> Judged:
    """All three figures."""
    top, credit = len(true_nodes(world, query_of(one))), usual.nodes
    best, here = (sum(credit[node] for node in _top_nodes(each, top)) for each in (usual, one))
    slack = 0.01 * sum(map(abs, credit.values()))
    return Judged(
        error=relative_error(one, exact) if exact is not None else float("nan"),
        residual=metrics.efficiency_residual(one),
        same=float(here >= best - slack),
    )


def _top_nodes(explanation: Explanation, top: int) -> list[int]:
    return [one.id for one in explanation.top_nodes(top)]


def method(dataset: str, rows: str, regression: Regression) -> GraphSVX:
    """The game without the indirect effect (its exact values are known), fitted in some way."""
    usual = GraphSVX.paper(dataset, indirect=False, regression=regression)
    return usual if rows == ROWS[0] else replace(usual, mask=Paired())


def exact_method(dataset: str, samples: int) -> GraphSVX:
    """The same game, enumerated where it fits."""
    return GraphSVX.paper(dataset, indirect=False, mask=Auto(), samples=samples)


def combinations() -> list[tuple[str, str]]:
    """Rows and fits; Smooth needs pairs of rows, which the paper's generator does not make."""
    return [(rows, fit) for rows in ROWS for fit in FITS if rows == ROWS[1] or fit != "Smooth"]


def measure(desk: Desk, seeds: Sequence[int]) -> Told:
    """Accuracy and error of every fit."""
    sets = desk.pick(NODE_SETS, ("tree-cycles",))
    scores: dict[tuple[str, str, str, str], list[list[float]]] = {}
    judged: dict[tuple[str, str, str], list[list[Judged]]] = {}
    for name in sets:
        for seed in seeds:
            world = desk.world(name, seed)
            asked = Asked.of(world, desk.pick(20, 3), desk.pick(10, 2))
            exact = {
                query_of(one): one
                for one in desk.explanations(
                    world, exact_method(name, desk.pick(EXACT, 2000)), asked.all,
                    label="exact", scale="probability",
                )
                if one.certificate.exact
            }  # fmt: skip
            usual: dict[int, Explanation] = {}
            for rows, fit in combinations():
                some = desk.explanations(
                    world, method(name, rows, FITS[fit]), asked.all,
                    label=f"{fit}, {rows}", scale="probability",
                )  # fmt: skip
                if fit == ENDS:
                    usual = {query_of(one): one for one in some}
                _keep(scores, (rows, fit, name), world, some, asked)
                judged.setdefault((rows, fit, name), []).append(
                    [
                        judge(world, one, usual[query_of(one)], exact.get(query_of(one)))
                        for one in some
                    ]
                )
            drawn = desk.explanations(world, Random(players="nodes"), asked.all, label="random")
            blank = [without_credit(one) for one in drawn]
            _keep(scores, ("Random", "", name), world, blank, asked)
    parts = (_accuracy(scores, sets), _errors(judged, sets), _same(judged, sets))
    return Told(parts, *_words(scores, judged, sets))


def _keep(
    scores: dict[tuple[str, str, str, str], list[list[float]]],
    key: tuple[str, str, str],
    world: Trained,
    some: Sequence[Explanation],
    asked: Asked,
) -> None:
    for what in ("paper", "strict"):
        samples = list(Measure(what).samples(world, some, asked).values())
        scores.setdefault((*key, what), []).append(samples)


def _accuracy(
    scores: dict[tuple[str, str, str, str], list[list[float]]], sets: Sequence[str]
) -> Table:
    body: list[tuple[Cell, ...]] = [
        (rows, fit, *(Estimate.of(scores[rows, fit, name, what])
                      for name in sets for what in ("paper", "strict")))
        for rows, fit in [*combinations(), ("Random", "")]
    ]  # fmt: skip
    return Table(
        "How values become credit: accuracy",
        ("coalitions", "fit", *(f"{TITLES[name]}, `{what}`" for name in sets
                                for what in ("paper", "strict"))),
        tuple(body),
        note="The paper finds WLS and WLR equivalent, a Lasso of little use, and the empty and the "
        "full row not necessary. Without the indirect effect, so that exact values are known.",
    )  # fmt: skip


def _errors(judged: dict[tuple[str, str, str], list[list[Judged]]], sets: Sequence[str]) -> Table:
    body: list[tuple[Cell, ...]] = []
    for rows, fit in combinations():
        cells = [
            middle([[one.error for one in group] for group in judged[rows, fit, name]])
            for name in sets
        ]
        body.append((rows, fit, *cells))
    counts = ", ".join(
        f"{middle([[one.error for one in g] for g in judged[ROWS[0], ENDS, name]]).count} "
        f"on {TITLES[name]}"
        for name in sets
    )
    return Table(
        "How values become credit: error against the exact Shapley values",
        ("coalitions", "fit", *(TITLES[name] for name in sets)),
        tuple(body),
        note=f"Relative squared error over all players; the median of each seed, averaged over "
        f"seeds; only nodes whose exact values fit {EXACT:,} model calls ({counts}).",
        digits=3,
    )


def _same(judged: dict[tuple[str, str, str], list[list[Judged]]], sets: Sequence[str]) -> Table:
    body: list[tuple[Cell, ...]] = []
    for rows, fit in combinations():
        if fit != ENDS:
            cells: list[Cell] = []
            for name in sets:
                over = judged[rows, fit, name]
                cells.append(Estimate.of([[one.same for one in group] for group in over]))
                cells.append(middle([[one.residual for one in group] for group in over]))
            body.append((rows, fit, *cells))
    return Table(
        "How values become credit: the same nodes on top, and what efficiency loses",
        ("coalitions", "fit", *(f"{TITLES[name]}, {what}" for name in sets
                                for what in ("same top", "residual"))),
        tuple(body),
        note="*Same top*: share of explanations whose top nodes, as many as the motif has, are "
        "those of the usual fit (WLS with the empty and the full row) on the same rows, or "
        "others to which that fit gives as much, within 1 % of the absolute credit. "
        "*Residual*: |prediction - base - sum of credit|, median.",
    )  # fmt: skip


def _words(
    scores: dict[tuple[str, str, str, str], list[list[float]]],
    judged: dict[tuple[str, str, str], list[list[Judged]]],
    sets: Sequence[str],
) -> tuple[str, str]:
    def away(fit: str) -> float:
        """The largest change of accuracy on any data set, with the paper's rows."""
        return max(
            abs(Estimate.of(scores[ROWS[0], fit, name, what]).mean
                - Estimate.of(scores[ROWS[0], ENDS, name, what]).mean)
            for name in sets for what in ("paper", "strict")
        )  # fmt: skip

    def overall(fit: str) -> float:
        groups = [
            [one.same for one in group] for name in sets for group in judged[ROWS[0], fit, name]
        ]
        return Estimate.of(groups).mean

    ends, wlr = away(NO_ENDS), away("WLR (constant fitted)")
    brief = (
        f"leaving out the empty and the full row changes accuracy by at most {ends:.2f}, WLR "
        f"instead of WLS by at most {wlr:.2f} (paper: no difference)"
    )
    sentence = (
        f"Leaving the empty and the full row out changes accuracy by at most {ends:.2f}, "
        f"and {100 * overall(NO_ENDS):.0f} % of the explanations have the same top nodes (paper: "
        f"identical most of the time); WLR instead of WLS by at most "
        f"{wlr:.2f} (paper: equivalent), Lasso by at most "
        f"{away('Lasso'):.2f} (paper: of little use)."
    )
    return sentence, brief
