"""The ablation study of the paper's appendix: what each piece of GraphSVX is good for."""

from __future__ import annotations

from graphsvx.studies.ablation import base, fits, indirect, reduction, subgraph
from graphsvx.studies.chosen import NODE_SETS, TITLES, choice
from graphsvx.studies.desk import Desk
from graphsvx.studies.page import Page, Part
from graphsvx.studies.study import Study

SEEDS = (0, 1, 2, 3, 4)
PARTS = {
    "Player reduction": reduction.measure,
    "Indirect effect": indirect.measure,
    "Features of the node or of its subgraph": subgraph.measure,
    "Empty and full row; WLS, WLR, Lasso": fits.measure,
    "Base value": base.measure,
}


def make(desk: Desk) -> Page:
    """Measure everything."""
    seeds = desk.pick(SEEDS, SEEDS[:1])
    parts: list[Part] = []
    found = []
    for title, measure in PARTS.items():
        desk.say(f"ablation: {title.lower()}")
        these, sentence = measure(desk, seeds)
        parts += [f"## {title}\n\n{sentence}", *these]
        found.append(sentence)
    return Page(
        "Ablation: what each piece is good for",
        tuple(parts),
        headline=" ".join(found),
        settings={
            "seeds": seeds,
            "scale and ranking": {
                TITLES[name]: f"{choice(name).scale}, strict ranking by {choice(name).by}"
                for name in NODE_SETS
            },
        },
    )


STUDY = Study(
    "ablation",
    "player reduction, indirect effect, subgraph features, fits, base value: each on and off",
    make,
)
