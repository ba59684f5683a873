"""One thread per explanation, so that results do not depend on the number of threads.

Reductions in torch and BLAS are split among threads, and another split rounds differently.
Several cores are used by explaining several nodes at once, in processes of one thread each.
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
    """How the number of threads of `library` is read and set, from any thread.

    OpenBLAS on its own threads has one number for the process, and threadpoolctl (from 3.8 on)
    lets only the first thread that asks change it: in any other thread `set_num_threads` does
    nothing, without a word. Hence OpenBLAS's own functions there, by each of their names.
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
    """One for each library of linear algebra; looking them up takes milliseconds: once."""
    libraries = ThreadpoolController().lib_controllers
    return [_pool(library) for library in libraries if library.user_api == "blas"]


@contextmanager
def single_thread() -> Iterator[None]:
    """Torch and numpy on one thread, and as many as before afterwards.

    Torch's number is the calling thread's, OpenBLAS's the process's: of several threads, only
    one at a time may be inside (`model.left_as_found` holds a lock).
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
