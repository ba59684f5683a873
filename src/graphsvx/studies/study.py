"""What a study is, and how its page is made."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from graphsvx.runs import identity
from graphsvx.studies.desk import Desk
from graphsvx.studies.page import Page


@dataclass(frozen=True)
class Study:
    """An experiment of the paper that one command repeats.

    name: on the command line, and of its files.
    about: what it shows, in a line.
    make: measure everything and put the page together.
    """

    name: str
    about: str
    make: Callable[[Desk], Page]

    def run(self, desk: Desk) -> list[Path]:
        """Measure, and write page, table and pictures; returns the files."""
        desk.say(f"{self.name}: {self.about}")
        # Its own list: a page tells the failures of its own study.
        desk = replace(desk, failures={})
        start = time.monotonic()
        page = self.make(desk)
        if desk.failures:
            lines = "\n".join(f"- {what}: {why}" for what, why in sorted(desk.failures.items()))
            note = (
                f"## Failures\n\nThese explanations could not be made and do not count:\n\n{lines}"
            )
            page = replace(page, parts=(*page.parts, note))
        if desk.quick:
            warning = (
                "**A quick version with models that are hardly trained: it shows that everything "
                "works, its figures mean nothing.**"
            )
            page = replace(page, parts=(warning, *page.parts))
        facts = {
            "command": desk.command,
            "versions": ", ".join(f"{k} {v}" for k, v in identity.versions().items()),
        }
        written = page.write(self.name, desk.out, facts)
        desk.say(f"{self.name}: done in {time.monotonic() - start:.0f} s")
        return written
