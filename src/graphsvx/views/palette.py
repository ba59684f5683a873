"""Colours shared by plots, HTML and terminal; distinguishable with colour vision deficiency."""

from __future__ import annotations

import math

FOR = "#B2182B"
"""Positive credit: red, and darker than the blue in greyscale print."""
AGAINST = "#2F7FBC"
"""Negative credit: blue."""
NEUTRAL = "#F4F3F0"
INK = "#1F2430"
GREY = "#8A8F99"
PALE = "#D4D7DC"
EDGE = "#6B7280"
"""Around dots."""

CLASSES = ("#E69F00", "#009E73", "#F0E442", "#CC79A7", "#56B4E9", "#999999", "#0072B2", "#D55E00")
"""Okabe and Ito's colours for classes; those most similar to the credit's red and blue last."""


SHAPES = ("o", "s", "^", "D", "v", "p", "h", "8")
"""Matplotlib's markers of node types."""


def shape_of(node_type: int) -> str:
    """The marker of a node type; the list starts again after eight."""
    return SHAPES[node_type % len(SHAPES)]


def of_class(category: int) -> str:
    """The colour of a class; the list starts again after eight."""
    return CLASSES[category % len(CLASSES)]


def mixed(colour: str, other: str, share: float) -> str:
    """`colour` with a `share` (0 to 1) of `other` mixed in."""
    first, second = _parts(colour), _parts(other)
    return "#" + "".join(
        f"{round(a + (b - a) * share):02X}" for a, b in zip(first, second, strict=True)
    )


def of_credit(credit: float, largest: float) -> str:
    """Blue for negative, pale for nothing, red for positive, on the scale -largest .. largest."""
    if largest <= 0 or not math.isfinite(credit):
        return NEUTRAL
    share = min(1.0, abs(credit) / largest)
    return mixed(NEUTRAL, FOR if credit > 0 else AGAINST, share)


def luminance(colour: str) -> float:
    """Relative luminance of a colour, from 0 (black) to 1 (white)."""

    def linear(part: int) -> float:
        share = part / 255
        return float(share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4)

    red, green, blue = (linear(part) for part in _parts(colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def ink_on(colour: str) -> str:
    """Black or white, whichever has the larger contrast (WCAG) on `colour`."""
    level = luminance(colour) + 0.05
    return "#FFFFFF" if 1.05 / level > level / (luminance(INK) + 0.05) else INK


def _parts(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
