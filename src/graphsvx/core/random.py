"""Random streams derived from one seed."""

from __future__ import annotations

import torch


def derive_rng(seed: int, purpose: str) -> torch.Generator:
    """Random generator derived from (seed, purpose).

    Each purpose has its own stream, so that the budget of one game does not change the draws of
    another.
    """
    number = int.from_bytes(purpose.encode()[:7], "little")
    return torch.Generator().manual_seed((seed * 1_000_003 + number) % 2**63)
