"""The properties that the paper claims for GraphSVX, measured, with other explainers beside it."""

from __future__ import annotations

from graphsvx.studies.desk import Desk
from graphsvx.studies.page import Page, Part
from graphsvx.studies.properties import consistent, shares, stable, surrogate
from graphsvx.studies.study import Study

SEEDS = (0, 1, 2, 3, 4)
PARTS = {
    "Faithful and decomposable": surrogate.measure,
    "Meaningful: the motif's share": shares.measure,
    "Stable": stable.measure,
    "Consistent": consistent.measure,
}


def make(desk: Desk) -> Page:
    """Measure everything."""
    seeds = desk.pick(SEEDS, SEEDS[:1])
    parts: list[Part] = []
    found = []
    for title, measure in PARTS.items():
        desk.say(f"properties: {title.lower()}")
        these, sentence = measure(desk, seeds)
        parts += [f"## {title}\n\n{sentence}", *these]
        found.append(sentence)
    return Page(
        "Properties: what the paper claims of its explanations",
        tuple(parts),
        headline=" ".join(found),
        settings={"seeds": seeds, "scale": "probability of the predicted class"},
    )


STUDY = Study(
    "properties",
    "R², efficiency, the motif's share, stability, consistency, beside other explainers",
    make,
)
