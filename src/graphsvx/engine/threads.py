"""One thread for one explanation, so that the number of threads cannot change its bits.

Sums inside torch and BLAS are split among threads, and another split rounds differently. Both
cores are used by explaining several nodes at once, in processes of one thread each.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import torch
from threadpoolctl import ThreadpoolController


@lru_cache(maxsize=1)
def _libraries() -> ThreadpoolController:
    """Looking the loaded libraries up takes milliseconds: once."""
    return ThreadpoolController()


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch and numpy on one thread, and as many as before afterwards."""
    threads = torch.get_num_threads()
    with _libraries().limit(limits=1, user_api="blas"):
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
