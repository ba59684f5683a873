"""The ablation study of the paper's appendix: what each piece of GraphSVX is good for."""

from __future__ import annotations

from graphsvx.studies import chapters
from graphsvx.studies.ablation import base, fits, indirect, reduction, subgraph
from graphsvx.studies.desk import Desk
from graphsvx.studies.page import Page
from graphsvx.studies.study import Study

SEEDS = (0, 1, 2, 3, 4)
PARTS: chapters.Chapters = {
    "Player reduction": reduction.measure,
    "Indirect effect": indirect.measure,
    "Features of the node or of its subgraph": subgraph.measure,
    "Empty and full row; WLS, WLR, Lasso": fits.measure,
    "Base value": base.measure,
}


def make(desk: Desk) -> Page:
    """Measure everything."""
    seeds = desk.pick(SEEDS, SEEDS[:1])
    settings = {
        "seeds": seeds,
        "scale and ranking": "probability of the predicted class, signed credit, as in the paper",
        "hops": "as far as the model looks",
    }
    return chapters.page("Ablation: what each piece is good for", PARTS, desk, seeds, settings)


STUDY = Study(
    "ablation",
    "player reduction, indirect effect, subgraph features, fits, base value: each on and off",
    make,
)
