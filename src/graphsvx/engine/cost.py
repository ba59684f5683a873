"""What a call costs, by counting what it computes: the same on every machine, and for every seed.

Budgets that depended on the clock would give other bits in the next run. So operations are counted,
the numbers that they read and write, and multiplications of matrices; fixed rates, of one core that
is not fast, turn them into seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from graphsvx.engine.rowwise import tensors

_SECONDS_OF_NUMBER, _SECONDS_OF_FLOP, _SECONDS_OF_CALL = 1.5e-9, 3e-11, 1e-5
_NUMBERS_OF_SCORE = 20  # read and written for each pair of rows that an attention compares


class _Count(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's
    """Adds up what the operations within it cost."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's
        self.seconds = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._to_copy.default and args[0].device != out.device:
            return out  # a copy to or from a device, which a CPU does without
        operands = tensors(args, kwargs or {}, out)
        self.seconds += _SECONDS_OF_CALL
        if func.is_view:
            return out
        numbers = sum(map(_stored, operands))
        if "attention" in func.__name__ and operands[0].dim() > 2:  # scores are not an operand
            *copies, rows, _ = operands[0].shape
            numbers += _NUMBERS_OF_SCORE * torch.Size(copies).numel() * rows**2
        self.seconds += _SECONDS_OF_NUMBER * numbers
        flops = flop_registry.get(func.overloadpacket)
        if flops is not None and all(operand.layout == torch.strided for operand in operands):
            self.seconds += _SECONDS_OF_FLOP * flops(*args, **(kwargs or {}), out_val=out)
        return out


def _stored(tensor: Tensor) -> int:
    return tensor.numel() if tensor.layout == torch.strided else tensor._nnz()


def counted_seconds(run: Callable[[], Any]) -> float:
    """What `run()` costs, about as long as it takes on one core; it is run once."""
    with _Count() as count:
        run()
    return count.seconds
