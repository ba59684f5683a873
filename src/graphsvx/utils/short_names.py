"""Short forms of names that are paths, such as relations of knowledge graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def short_names(names: Sequence[str]) -> tuple[str, ...]:
    """The last part of each path (`/film/film/genre`: genre) where no other name has the same.

    Of joined paths (`/film/film/crew./film/job/role`) the last parts of all: `crew.role`. Where
    several names agree, the last two parts of the first path, else the full name.
    """
    forms = [[_ends(name, 1), _ends(name, 2), name] for name in names]
    counts = Counter(form for listed in forms for form in set(listed))
    return tuple(next((f for f in listed if counts[f] == 1), listed[-1]) for listed in forms)


def _ends(name: str, parts: int) -> str:
    first, *others = name.split("./")
    last = ["/".join(first.strip("/").split("/")[-parts:])]
    return ".".join([*last, *(other.rsplit("/", 1)[-1] for other in others)])
