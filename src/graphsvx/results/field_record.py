"""The receptive field of an explained prediction, as it is saved, drawn and exported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from graphsvx.results.schema import Array
from graphsvx.utils.printable import one_line

_NODES = Array("int64", ("nodes",))


@dataclass(frozen=True, eq=False)
class FieldRecord:
    """The receptive field of the explained prediction, for drawing and export."""

    ids: Annotated[Tensor, _NODES]
    """Node ids in the user's graph, the explained ones first."""
    hops: Annotated[Tensor, _NODES]
    """Distance of each node to the explained one(s) along the edges."""
    edge_index: Annotated[Tensor, Array("int64", (2, "edges"))]
    """Directed edges between these nodes, by id in the user's graph."""
    classes: Annotated[Tensor | None, _NODES] = None
    """Class (label) of each node, where the data has one."""
    num_nodes: int = 0
    num_features: int = 0
    names: tuple[str, ...] | None = None
    """Name of each node, where names were given."""

    @property
    def distances(self) -> dict[int, int]:
        """Hops by node id."""
        return dict(zip(self.ids.tolist(), self.hops.tolist(), strict=True))

    def name(self, node: int) -> str:
        """The name of a node in one line that can be printed anywhere, or "node 7"."""
        at = (self.ids == node).nonzero()
        if self.names is None or not len(at):
            return f"node {node}"
        return one_line(self.names[int(at[0])])
