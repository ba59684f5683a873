"""Study `real-graphs`: faithfulness on Cora, CiteSeer and Amazon-Photo, which have no known truth.

Nodes are removed as in Eq. 2, the best-ranked ones first (fidelity+) or all others (fidelity-).
Leave-one-out is the fall of the score without one node, everything else in place.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy import stats

from graphsvx.engine.choose import choose_evaluator
from graphsvx.methods.graphsvx import GraphSVX
from graphsvx.methods.greedy import one_less
from graphsvx.metrics.faithful import question
from graphsvx.metrics.select import top_positions
from graphsvx.studies import motifs
from graphsvx.studies.measurements import Measurements
from graphsvx.studies.motifs import BOTH, MINUS, PLUS
from graphsvx.studies.page import Claim, Figure, Page, is_positive, paired_table, pivots
from graphsvx.studies.setting import USUAL, Setting
from graphsvx.studies.study import Answer, Grid, Study

OURS, RANDOM = "GraphSVX", "Random"
SETS = ("cora", "citeseer", "amazon-photo")
NODES = 6
"""Explained nodes, a seed."""
SHARES = (0.05, 0.1, 0.2, 0.4)
"""Shares of the nodes of the receptive field that make up the explanation."""
AGREES, TOP = "rank correlation with leave-one-out", 10
SAME_TOP = f"top {TOP} shared with leave-one-out"
METHODS = {OURS: Setting(GraphSVX(players="nodes")), **USUAL}
RIVALS = tuple(name for name in METHODS if name != OURS)


def agreement(answer: Answer) -> dict[str, float]:
    """Spearman's correlation with leave-one-out, and how many of its top ten are shared."""
    ours = answer.of(OURS)
    if ours is None:
        return {}
    ids = ours.node_ids.tolist()
    falls = leave_one_out(answer)
    values = torch.tensor([answer.explanation.nodes.get(node, 0.0) for node in ids]).double()
    if len(ids) < 3 or not float(falls.abs().max()):
        return {}
    tops = [set(top_positions(v, TOP, "value").tolist()) for v in (values, falls)]
    correlation = stats.spearmanr(values, falls).statistic if float(values.std()) else 0.0
    return {AGREES: float(correlation), SAME_TOP: len(tops[0] & tops[1]) / len(tops[1])}


def leave_one_out(answer: Answer) -> torch.Tensor:
    """The fall of the score without each of GraphSVX's players, in its order."""
    explanation = answer.case.explanations[OURS][answer.question]
    query = question(explanation, answer.trained.model, answer.trained.dataset.graph, "raw")
    evaluator = choose_evaluator(query, None, 0)
    game = GraphSVX(players="nodes").games(query, evaluator, 0)[-1]
    coalitions, _ = one_less(np.ones(game.players, dtype=bool))
    full = game.values(game.states(np.ones((1, game.players), dtype=bool)))
    return (full - game.values(game.states(coalitions))).detach()[:, explanation.target]


GRID = Grid(
    SETS, lambda _: METHODS, motifs.test_nodes(NODES),
    measures=(motifs.fidelity_curves(SHARES), agreement), case_measures=(motifs.model_accuracy,),
)  # fmt: skip


def page(results: Measurements) -> Page:
    """Whether ours is first by characterization and agreement, and the curves."""
    sets = results.names("data", measure=BOTH)
    tests = {measure: {s: results.tests(measure, OURS, RIVALS, data=s) for s in sets}
             for measure in (BOTH, AGREES)}  # fmt: skip
    claims = [Claim.first(f"GraphSVX is first by {measure}", "", by_rival, s)
              for measure, by_set in tests.items() for s, by_rival in by_set.items()]  # fmt: skip
    claims += [Claim.of(f"GraphSVX's {AGREES} is above 0", "",
                        results.estimate(AGREES, method=OURS, data=s), is_positive, on=s)
               for s in sets]  # fmt: skip

    def draw() -> object:
        from graphsvx.views.plot import study  # noqa: PLC0415  (needs matplotlib, an extra)

        lines = {
            name.split(",")[0]: {s: {m: {share: results.estimate(
                f"{name}{share:.0%}", method=m, data=s).band for share in SHARES}
                for m in METHODS if results.keys(method=m, data=s)} for s in sets}
            for name in (PLUS, MINUS)
        }  # fmt: skip
        return study.curves(lines, "share of nodes")

    paired = [paired_table(f"GraphSVX minus another, {measure}", tests[measure], RIVALS)
              for measure in tests]  # fmt: skip
    tables = pivots(results, {
        "Characterization, mean over the shares": BOTH, AGREES.capitalize(): AGREES,
        SAME_TOP.capitalize(): SAME_TOP,
        **{name: name for name in results.names("measure", "fidelity")},
        "Test accuracy of the models": {"measure": "test accuracy", "rows": "measure"},
    })  # fmt: skip
    return Page(
        "Real graphs: fidelity curves and agreement with leave-one-out",
        claims,
        Figure("curves", "fidelity+ (more is better) and fidelity- (less is better).", draw),
        {"Details": (*tables[:3], *paired, *tables[3:])},
        f"Two-layer GCNs; {NODES} test nodes a seed that have a neighbour, drawn at random, and "
        "their predicted class. Removed nodes lose their edges. GraphSVX has its default budget, "
        "which grows with the game: up to thousands of nodes play on Amazon-Photo.",
    )  # fmt: skip


STUDY = Study(
    "real-graphs", "fidelity curves and agreement with leave-one-out, without a known truth",
    (GRID,), page,
)  # fmt: skip
