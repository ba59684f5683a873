"""Kernels of layer classes: traits and a fast forward.

A layer of one's own that reads its in-edges only is registered in the same way:

    register(LayerKernel(MyConv, reads_degrees=False))
"""

from graphsvx.engine.kernels.edges import BatchEdges, FieldEdges, FirstRound
from graphsvx.engine.kernels.registry import (
    LayerKernel,
    ModelLayers,
    fast_kernel,
    is_known,
    is_plain_call,
    kernel_of,
    register,
)

__all__ = [
    "BatchEdges", "FieldEdges", "FirstRound", "LayerKernel", "ModelLayers", "fast_kernel",
    "is_known", "is_plain_call", "kernel_of", "register",
]  # fmt: skip
