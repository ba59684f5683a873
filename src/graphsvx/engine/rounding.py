"""Whether two outputs of a model are the same but for rounding."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

# Of the size of an output: what the order of sums may change, and what it changes at least.
_LOOSE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 5e-2, torch.float16: 1e-2}
_TIGHT = {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3}
# Of the spread of an output: an error of this size would be seen in the explanation.
_SPREAD = {torch.float64: 1e-8, torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}


def tolerances(like: Tensor) -> Tensor:
    """Differences that rounding explains, one for each output, from outputs [..., outputs].

    Relative to the size of that output, and where its values hardly differ, to their spread: two
    outputs of very different scales do not hide each other.
    """
    dtype = like.dtype
    like = like.cpu().double()
    rows = like.flatten(0, -2) if like.dim() > 1 else like[None]
    rows = torch.where(rows.isfinite(), rows, 0.0)
    size = rows.abs().amax(0)
    loose = _LOOSE.get(dtype, 1e-10) * size
    if len(rows) == 1:
        return loose
    spread = rows.amax(0) - rows.amin(0)
    # A spread of nothing says nothing: all rows may be the same graph.
    fine = torch.maximum(_SPREAD.get(dtype, 1e-8) * spread, _TIGHT.get(dtype, 1e-12) * size)
    return torch.where(spread > 0, torch.minimum(loose, fine), loose)


def allclose(a: Tensor, b: Tensor, like: Tensor | None = None, noise: Tensor | None = None) -> bool:
    """Equal up to rounding, output by output; not finite where the other is not.

    `like`: outputs that show how large each output is (b itself if there are none). `noise`: what
    rounding was seen to change, [outputs], where the outputs' sizes do not tell.
    """
    allowed = tolerances(b if like is None else like)
    if noise is not None:
        allowed = torch.maximum(allowed, noise.cpu())
    wide, other = a.cpu().double(), b.cpu().double()
    same = (wide - other).abs() <= allowed
    odd = ~(wide.isfinite() & other.isfinite())
    if not bool(odd.any()):
        return bool(same.all())
    equal = (wide == other) | (wide.isnan() & other.isnan())
    return bool(torch.where(odd, equal, same).all())


def nudged(x: Tensor, rng: np.random.Generator) -> Tensor:
    """x with every number changed by its last bit, up or down at random; integers stay."""
    if not x.is_floating_point():
        return x
    signs = torch.from_numpy(rng.choice([-1.0, 1.0], size=x.shape)).to(x)
    return x * (1 + torch.finfo(x.dtype).eps * signs)
