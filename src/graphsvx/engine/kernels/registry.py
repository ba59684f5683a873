"""The registered kernels, and which layers of a model they apply to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch_geometric.nn import GCNConv
from torch_geometric.nn.conv import MessagePassing

from graphsvx.engine.kernels import (
    gat,
    gatv2,
    gcn,
    gin,
    graph_conv,
    sage,
    traits,
    transformer,
)
from graphsvx.engine.kernels.base import LayerKernel
from graphsvx.engine.kernels.segments import BatchEdges
from graphsvx.engine.lazy.base import Lazy
from graphsvx.engine.lazy.prefix import PrefixRows
from graphsvx.engine.lazy.shared import SharedRows
from graphsvx.engine.structure import aggregates_locally

_KERNELS: dict[type, LayerKernel] = {}
_METHODS = {
    "forward", "propagate", "message", "aggregate", "update", "edge_updater", "edge_update",
    "message_and_aggregate", "explain_message",
}  # fmt: skip
_HOOKS = tuple(
    f"_{part}_forward_{kind}"
    for part in ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
    for kind in ("pre_hooks", "hooks")
)


def register(kernel: LayerKernel) -> None:
    """Make a layer class known to the engine."""
    _KERNELS[kernel.layer] = kernel


for _kernel in (
    *(module.KERNEL for module in (gat, gatv2, gcn, gin, graph_conv, sage, transformer)),
    *traits.KERNELS,
):
    register(_kernel)


def kernel_of(layer: nn.Module) -> LayerKernel | None:
    """The kernel of a layer that runs its class's own code along the edges; None: there is none."""
    kernel = _KERNELS.get(type(layer))
    if kernel is None or not _is_unchanged(layer, kernel.layer):
        return None
    return kernel if layer.__dict__["flow"] == "source_to_target" else None


def is_known(layer: Any) -> bool:
    """Whether a layer is known to read the in-edges of each node, one node at a time."""
    return kernel_of(layer) is not None and aggregates_locally(layer.aggr_module)


def _is_unchanged(layer: nn.Module, kind: type) -> bool:
    """Whether no method was replaced, in the layer or in its class, and no hook registered."""
    attributes = layer.__dict__
    if any(map(attributes.get, _HOOKS)) or attributes.get("_explain"):
        return False
    for name in attributes.keys() & _METHODS:
        # PyG binds a method of the class again when explain mode or decomposition changes.
        variants = [getattr(kind, f"{prefix}{name}", None) for prefix in ("", "_orig_", "_jinja_")]
        function = getattr(attributes[name], "__func__", None)
        if function is None or function not in variants:
            return False
    homes = {base.__module__.partition(".")[0] for base in kind.__mro__}
    return all(
        getattr(getattr(kind, name, None), "__module__", kind.__module__).partition(".")[0] in homes
        for name in _METHODS
    )


def fast_kernel(layer: nn.Module) -> LayerKernel | None:
    """The kernel that computes a layer; None: it runs its own code."""
    kernel = kernel_of(layer)
    if kernel is None or kernel.forward is None:
        return None
    attributes = layer.__dict__
    usual = attributes["node_dim"] in (-2, 0) and attributes.get("_decomposed_layers", 1) == 1
    return kernel if usual and type(layer.aggr_module) in kernel.aggregations else None


@dataclass(frozen=True, eq=False)
class ModelLayers:
    """Which modules of a model pass messages, and how. Holds no reference to any of them."""

    layers: tuple[tuple[int, LayerKernel | None], ...]
    """Their positions among the modules, with the kernel that computes them where there is one."""
    widest: int
    """Largest number of output features of any layer."""
    degrees_suffice: bool
    """Whether all layers are fast and edges beyond the last round only count in GCN's degrees."""
    all_fast: bool
    """Whether all layers have a kernel, for the first round too."""

    @staticmethod
    def of(parts: list[nn.Module]) -> ModelLayers:
        """Those of a model, given all of its modules."""
        matrices = [
            weight.shape[0]
            for part in parts
            for weight in part._parameters.values()
            if weight is not None and not nn.parameter.is_lazy(weight) and weight.dim() > 1
        ]
        passing = [(at, part) for at, part in enumerate(parts) if isinstance(part, MessagePassing)]
        layers = tuple((at, fast_kernel(layer)) for at, layer in passing)
        fast = all(kernel is not None for _, kernel in layers)
        first_rounds = all(kernel is not None and kernel.first_round for _, kernel in layers)
        normalised = all(type(layer) is not GCNConv or layer.normalize for _, layer in passing)
        return ModelLayers(layers, max(matrices, default=0), fast and normalised, first_rounds)


def is_plain_call(
    x: Any, edge_index: Any, rest: tuple[Any, ...], named: Any, edges: BatchEdges
) -> bool:
    """Whether a layer was called on the batch itself, with no other arguments than weights."""
    arguments = [value for value in (*rest, *named.values()) if value is not None]
    return (
        edge_index is edges.index
        and isinstance(x, Tensor)
        and x.dim() == 2
        and x.shape[0] == edges.rows
        and (not isinstance(x, Lazy) or isinstance(x, (SharedRows, PrefixRows)))
        and len(arguments) == (edges.weight is not None)
        and all(value is edges.weight for value in arguments)
    )
