"""Pages of several chapters, each measured on its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from graphsvx.studies.desk import Desk
from graphsvx.studies.page import Page, Part


class Told(NamedTuple):
    """What a chapter found."""

    parts: tuple[Part, ...]
    sentence: str
    """The finding, below the chapter's title."""
    brief: str
    """The same in a clause, for the summary of all studies; "" for nothing."""


Chapters = Mapping[str, Callable[[Desk, Sequence[int]], Told]]


def page(
    title: str, chapters: Chapters, desk: Desk, seeds: Sequence[int], settings: Mapping[str, Any]
) -> Page:
    """Measure every chapter and put them together."""
    parts: list[Part] = []
    briefs = []
    for name, measure in chapters.items():
        desk.say(f"{title}: {name}")
        told = measure(desk, seeds)
        parts += [f"## {name}\n\n{told.sentence}", *told.parts]
        briefs += [told.brief] if told.brief else []
    said = "; ".join(briefs)
    return Page(title, tuple(parts), f"{said[:1].upper()}{said[1:]}.", settings)
