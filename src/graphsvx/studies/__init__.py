"""The paper's experiments: `graphsvx study NAME` measures, and writes our figures beside its own.

    from graphsvx import studies
    desk = studies.Desk(out=Path("results"), runs=Path("runs/studies"))
    studies.get("masks").run(desk)

A study asks a `Desk` for trained models and explanations (kept as runs, so that it can go on
where it was stopped) and returns a `Page` of tables, pictures and words.
"""

from __future__ import annotations

from graphsvx.errors import InputError
from graphsvx.studies import (
    ablation,
    budget,
    cut_edges,
    ground_truth,
    mask_generators,
    noisy_features,
    noisy_nodes,
    properties,
    running_time,
    settings,
)
from graphsvx.studies.desk import Desk
from graphsvx.studies.estimate import Estimate
from graphsvx.studies.page import Page, Picture, Table
from graphsvx.studies.study import Study

__all__ = ["Desk", "Estimate", "Page", "Picture", "Study", "Table", "get", "names"]

_ALL: tuple[Study, ...] = (
    ground_truth.STUDY,
    noisy_features.STUDY,
    noisy_nodes.STUDY,
    mask_generators.STUDY,
    budget.STUDY,
    ablation.STUDY,
    running_time.STUDY,
    properties.STUDY,
    settings.STUDY,
    cut_edges.STUDY,
)


def names() -> tuple[str, ...]:
    """All studies, in the order of the summary."""
    return tuple(study.name for study in _ALL)


def get(name: str) -> Study:
    """A study by its name."""
    for study in _ALL:
        if study.name == name:
            return study
    raise InputError(f"there is no study {name!r}; choose one of: {', '.join(names())}")
