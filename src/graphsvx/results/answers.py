"""Answers in sets: the smallest set of players that is enough, or whose removal changes a class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class PlayerSet:
    """A set of players that answers a question; the model itself was asked about it.

    If `found` is False, no set does what is asked (of sizes below `none_below`, where the search
    ended early).
    """

    question: Literal["sufficient", "flip"]
    """"sufficient": only these players on; "flip": only these players off."""
    players: tuple[str, ...]
    positions: tuple[int, ...]
    """Positions among all players: features, then nodes, then edges."""
    found: bool
    score: float
    """The model's score of the target for this coalition, from a plain call."""
    predicted: int
    """The output with the largest score for this coalition."""
    wanted: str
    """What the set has to do, in words."""
    none_below: int
    """All smaller sets were tried: no set with fewer players than this does it."""
    calls: int
    """Model calls of the search."""

    @property
    def minimal(self) -> bool:
        """Whether no smaller set does what is asked; False: a smaller one may exist."""
        return self.found and len(self.players) <= self.none_below

    def line(self) -> str:
        """The answer in one line."""
        verb = "alone" if self.question == "sufficient" else "removed"
        if not self.found:
            return f"no set of fewer than {self.none_below} players, {verb}, gives {self.wanted}"
        names = ", ".join(self.players) or "no player at all"
        proof = "minimal" if self.minimal else f"none has fewer than {self.none_below} players"
        return f"{names}: {verb}, the score is {self.score:.4g} ({self.wanted}; {proof})"
