"""One thread for one explanation, so that the number of threads cannot change its bits.

Sums inside torch and BLAS are split among threads, and another split rounds differently. Both
cores are used by explaining several nodes at once, in processes of one thread each.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import torch
from threadpoolctl import LibController, ThreadpoolController


@lru_cache(maxsize=1)
def _libraries() -> list[LibController]:
    """The libraries of linear algebra; looking them up takes milliseconds: once."""
    return [one for one in ThreadpoolController().lib_controllers if one.user_api == "blas"]


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch and numpy on one thread, and as many as before afterwards."""
    threads = torch.get_num_threads()
    # threadpoolctl's own way reads far more of each library than its number of threads.
    busy = [(one, count) for one in _libraries() if (count := one.get_num_threads()) != 1]
    try:
        for one, _ in busy:
            one.set_num_threads(1)
        if threads != 1:
            torch.set_num_threads(1)
        yield
    finally:
        if threads != 1:
            torch.set_num_threads(threads)
        for one, count in busy:
            one.set_num_threads(count)
