"""Suggestions for names that were mistyped."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The name that was probably meant, as the start of a sentence; "" if none is close."""
    by_lower = {candidate.lower(): candidate for candidate in names}
    typed = name.lower()[:100]
    close = [
        candidate for candidate in by_lower if sorted(candidate) == sorted(typed)
    ]  # letters in another order
    close += difflib.get_close_matches(typed, by_lower, n=1)
    return f"did you mean {by_lower[close[0]]!r}? " if close else ""
