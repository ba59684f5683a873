"""Sizes and emphasis of the nodes of a drawing, once their places are known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from graphsvx.views import layout as placing
from graphsvx.views.drawing import GraphDrawing

Bonds = Mapping[tuple[int, int], float]


@dataclass(frozen=True)
class PlacedDrawing:
    """A drawing with positions and sizes of its nodes."""

    drawing: GraphDrawing
    where: placing.Places
    radius: float
    """Radius of a dot of average credit, in points."""
    bold: frozenset[int]
    largest: float
    atoms: tuple[str, ...] | None
    bonds: Bonds

    def size(self, i: int) -> float:
        """Radius of a dot in points: larger with more credit."""
        dot = self.drawing.dots[i]
        if dot.count > 1:
            return max(6.5, self.radius * min(1.7, 0.9 + 0.2 * math.log10(dot.count)))
        if self.atoms is not None:
            return self.radius * (0.72 if self.atoms[i] == "H" else 1.0)
        if dot.centre:
            return self.radius * (1.5 if self.crowded else 1.1)
        growth = 1.25 if self.crowded else 0.62
        return self.radius * (0.62 + growth * math.sqrt(self.strength(i)))

    @property
    def crowded(self) -> bool:
        """Whether there are too many dots to show all at the same size."""
        return len(self.drawing.dots) > placing.CROWD

    def strength(self, i: int) -> float:
        """Absolute credit as a share of the largest."""
        return min(1.0, abs(self.drawing.dots[i].credit) / self.largest) if self.largest else 0.0

    def faded(self, i: int) -> bool:
        """Whether the dot is drawn pale: it has little credit, or credit that may be 0."""
        dot = self.drawing.dots[i]
        weak = dot.count > 1 or self.strength(i) < 0.04 or not dot.sure
        return dot.plays and not dot.centre and weak and i not in self.bold
