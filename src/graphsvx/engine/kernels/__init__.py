"""Kernels of layer classes, a file each: traits and a fast forward.

A layer of one's own that reads its in-edges only is registered in the same way:

    register(LayerKernel(MyConv, reads_degrees=False))
"""

from graphsvx.engine.kernels.base import LayerKernel
from graphsvx.engine.kernels.registry import (
    ModelLayers,
    fast_kernel,
    is_known,
    kernel_of,
    register,
)
from graphsvx.engine.kernels.segments import BatchEdges

__all__ = [
    "BatchEdges",
    "LayerKernel",
    "ModelLayers",
    "fast_kernel",
    "is_known",
    "kernel_of",
    "register",
]
