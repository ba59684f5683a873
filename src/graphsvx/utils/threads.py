"""One thread per explanation, so that results do not depend on the number of threads.

Reductions in torch and BLAS are split among threads, and a different split rounds differently.
To use several cores, explain several nodes at once in processes of one thread each.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import torch
from threadpoolctl import LibController, ThreadpoolController


@dataclass(frozen=True)
class _Pool:
    """Reads and sets the number of threads of one BLAS library."""

    get_num_threads: Callable[[], int]
    set_num_threads: Callable[[int], object]


def _pool(library: LibController) -> _Pool:
    """Functions that read and set the number of threads of `library` from any thread.

    OpenBLAS with its own threads has one thread count per process, and threadpoolctl (from 3.8 on)
    lets only the first calling thread change it: in other threads `set_num_threads` silently does
    nothing. There, OpenBLAS's own functions are called, under whichever name the build exports.
    """
    if library.internal_api == "openblas" and library.threading_layer != "openmp":
        for prefix, suffix in product(("", "scipy_"), ("", "64_", "_64")):
            get, set_ = (
                getattr(library.dynlib, f"{prefix}openblas_{verb}_num_threads{suffix}", None)
                for verb in ("get", "set")
            )
            if get is not None and set_ is not None:
                get.restype, get.argtypes = ctypes.c_int, []
                set_.restype, set_.argtypes = None, [ctypes.c_int]
                return _Pool(get, set_)
    return _Pool(library.get_num_threads, library.set_num_threads)


@lru_cache(maxsize=1)
def _pools() -> list[_Pool]:
    """One pool per BLAS library; cached because the lookup takes milliseconds."""
    libraries = ThreadpoolController().lib_controllers
    return [_pool(library) for library in libraries if library.user_api == "blas"]


@contextmanager
def single_thread() -> Iterator[None]:
    """Run torch and numpy on one thread; restore the previous thread counts afterwards.

    Torch's count belongs to the calling thread, OpenBLAS's to the process, so only one thread at
    a time may be inside (`utils.exclusive` holds a lock).
    """
    threads = torch.get_num_threads()
    # threadpoolctl's own context manager queries far more than the number of threads.
    reduced = [(pool, count) for pool in _pools() if (count := pool.get_num_threads()) != 1]
    try:
        for pool, _ in reduced:
            pool.set_num_threads(1)
        if threads != 1:
            torch.set_num_threads(1)
        yield
    finally:
        if threads != 1:
            torch.set_num_threads(threads)
        for pool, count in reduced:
            pool.set_num_threads(count)
