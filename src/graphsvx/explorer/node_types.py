"""Node types of a typed graph: nodes are numbered through all types, and named as paper:42."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphsvx.errors import InputError


@dataclass(frozen=True)
class NodeTypes:
    """Names of the node types, and the number of the first node of each."""

    names: tuple[str, ...]
    starts: tuple[int, ...]
    """One more than names: the last is the number of all nodes."""

    def split(self, number: int) -> tuple[str, int]:
        """Type of a node and its id within the type, by its number."""
        at = int(self.of(np.array([number]))[0])
        return self.names[at], number - self.starts[at]

    def of(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions of the types of nodes."""
        return np.searchsorted(np.asarray(self.starts[1:]), numbers, side="right")

    def number(self, text: str) -> int:
        """The number of a node that is written as TYPE:ID."""
        name, _, digits = text.rpartition(":")
        example = f"{self.names[0]}:0"
        if name not in self.names:
            raise InputError(
                f"a node is written as TYPE:ID, such as {example}, of the types "
                f"{', '.join(self.names)}, got {text[:60]!r}"
            )
        at = self.names.index(name)
        count = self.starts[at + 1] - self.starts[at]
        if not (digits.isascii() and digits.isdigit() and len(digits) < 16):
            raise InputError(f"a node is written as TYPE:ID, such as {example}, got {text[:60]!r}")
        if int(digits) >= count:
            raise InputError(f"{name} must be from 0 to {count - 1}, got {int(digits)}")
        return self.starts[at] + int(digits)
