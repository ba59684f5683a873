"""The properties that the paper claims for GraphSVX, measured, with other explainers beside it."""

from __future__ import annotations

from graphsvx.studies import chapters
from graphsvx.studies.desk import Desk
from graphsvx.studies.page import Page
from graphsvx.studies.properties import consistent, shares, stable, surrogate
from graphsvx.studies.study import Study

SEEDS = (0, 1, 2, 3, 4)
PARTS: chapters.Chapters = {
    "Faithful and decomposable": surrogate.measure,
    "Meaningful: the motif's share": shares.measure,
    "Stable": stable.measure,
    "Consistent": consistent.measure,
}


def make(desk: Desk) -> Page:
    """Measure everything."""
    seeds = desk.pick(SEEDS, SEEDS[:1])
    settings = {"seeds": seeds, "scale": "probability of the predicted class"}
    return chapters.page(
        "Properties: what the paper claims of its explanations", PARTS, desk, seeds, settings
    )


STUDY = Study(
    "properties",
    "R², efficiency, the motif's share, stability, consistency, beside other explainers",
    make,
)
