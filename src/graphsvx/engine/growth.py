"""Whether a model's tensors grow faster than its input, as dense N x N matrices do.

A batch of B graphs with n nodes each makes B matrices of n^2 entries one of (B n)^2: it takes B
times the time and the memory of single calls, so that such models are given small batches. Sizes
are compared, not times, so that the same seed gives the same batches and the same bits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from graphsvx.core.graph import Graph
from graphsvx.core.model import Model
from graphsvx.engine.rowwise import tensors
from graphsvx.errors import ModelError

_COPIES = 3


class _ResultSizes(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's
    """Records the number of stored entries of the result of each operation."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's
        self.sizes: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.sizes.append(max(map(_stored, tensors(out)), default=0))
        return out


def _stored(tensor: Tensor) -> int:
    if tensor.layout != torch.strided:  # a sparse N x N matrix stores the edges only
        return 0
    return tensor.untyped_storage().nbytes() // tensor.element_size()


def grows_faster_than_batch(model: Model, graph: Graph) -> bool:
    """Whether some operation's result is much more than three times larger on three copies.

    `graph` should be small: it is evaluated once by itself and once with two copies.
    """
    try:
        alone, together = (_result_sizes(model, graph, copies) for copies in (1, _COPIES))
    except ModelError:
        return False
    if len(alone) != len(together):  # what the model does depends on the graph
        alone, together = [max(alone, default=0)], [max(together, default=0)]
    return any(
        large > 1.5 * _COPIES * small > 0 for small, large in zip(alone, together, strict=True)
    )


def _result_sizes(model: Model, graph: Graph, copies: int) -> list[int]:
    count, edges, device = graph.num_nodes, graph.num_edges, graph.x.device
    first = count * torch.arange(copies, device=device)
    weight, attr = (
        None if values is None else values.repeat(copies, *[1] * (values.dim() - 1))
        for values in (graph.edge_weight, graph.edge_attr)
    )
    batch = None
    if "batch" in model.takes:
        batch = torch.arange(copies, device=device).repeat_interleave(count)
    with _ResultSizes() as recorded:
        model(
            graph.x.repeat(copies, 1),
            graph.edge_index.repeat(1, copies) + first.repeat_interleave(edges),
            weight, attr, batch, first.repeat(2, 1),
            graph.attributes_at(
                torch.arange(count, device=device).repeat(copies),
                torch.arange(edges, device=device).repeat(copies),
                copies if model.whole_graphs else 1,
            ),
        )  # fmt: skip
    return recorded.sizes
