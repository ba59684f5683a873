"""Layers of which only the traits are known: they run their own code."""

from __future__ import annotations

from torch_geometric.nn import (
    APPNP,
    ARMAConv,
    CGConv,
    EdgeConv,
    GatedGraphConv,
    GCN2Conv,
    GENConv,
    GINEConv,
    LEConv,
    MFConv,
    NNConv,
    PNAConv,
    ResGatedGraphConv,
    SGConv,
    SSGConv,
    TAGConv,
)

from graphsvx.engine.kernels.base import LayerKernel

_READ_DEGREES = (
    APPNP, ARMAConv, CGConv, EdgeConv, GatedGraphConv, GCN2Conv, GENConv, LEConv, MFConv, NNConv,
    PNAConv, ResGatedGraphConv, SGConv, SSGConv, TAGConv,
)  # fmt: skip

KERNELS = (
    LayerKernel(GINEConv, reads_degrees=False),
    *(LayerKernel(layer, reads_degrees=True) for layer in _READ_DEGREES),
)
