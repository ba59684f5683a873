"""The engine for a Ray cluster: the graph once on each machine, chunks as Ray tasks."""

from __future__ import annotations

import logging
import socket
import uuid
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphsvx.core import graph as graphs
from graphsvx.core.graph import Index
from graphsvx.errors import DataError
from graphsvx.runs.backends import Answer, Chunk, Job, LostChunk, cores
from graphsvx.utils.constraints import Checked, Workers
from graphsvx.utils.extras import require_extra

# Seconds that a machine may take to answer.
_PATIENCE = 5.0
_GRAPH = ("x", "edge_index", "edge_weight", "edge_attr", "y")


@dataclass(frozen=True)
class Ray(Checked):
    """Workers of a Ray cluster (needs `graphsvx[ray]`, on every machine of it)."""

    address: str | None = None
    """An existing cluster: "auto" on one of its machines, or "host:port" of its head.
    None: one of its own, on this machine, that goes away with the run."""
    workers: Workers | None = None
    """How many chunks may be under way at once; None: as many as the cluster has CPUs."""

    def answers(self, job: Job, take: Callable[[], Chunk | None]) -> Iterator[Answer | LostChunk]:
        """See `Engine`. Ray places tasks, notices lost workers and tries once more by itself."""
        ray = require_extra("ray", "ray", quiet=(DeprecationWarning, FutureWarning))
        mine = self._connect(ray)
        # One retry: results that a lost machine held are made again without our asking.
        answer = ray.remote(num_cpus=1, max_retries=1)(_answer)
        under_way: dict[Any, Chunk] = {}
        try:
            # In a list, so that a task gets the reference and reads it once per process.
            shared = [ray.put(_packed(job))]
            key = uuid.uuid4().hex
            while True:
                room = self._room(ray) - len(under_way)
                while room > 0 and (chunk := take()) is not None:
                    under_way[answer.remote(key, shared, chunk)] = chunk
                    room -= 1
                if not under_way:
                    return
                ready, _ = ray.wait(list(under_way), timeout=10)
                for done in ready:
                    chunk = under_way.pop(done)
                    try:
                        yield ray.get(done)
                    except ray.exceptions.RayTaskError:
                        raise  # our own code failed, not the worker under it
                    except ray.exceptions.RayError:
                        yield LostChunk(chunk)
        finally:
            for task in under_way:
                ray.cancel(task, force=True)
            if mine:
                ray.shutdown()

    def _room(self, ray: Any) -> int:
        """Chunks under way at most: one more a worker than it is at, so that none waits."""
        # Asked anew each time: machines come and go.
        there = self.workers or int(ray.cluster_resources().get("CPU", 1))
        return 2 * max(there, 1)

    def _connect(self, ray: Any) -> bool:
        """Join a cluster; True if this run has to leave it again."""
        if ray.is_initialized():
            return False
        _must_answer(self.address)
        local_options = {"num_cpus": self.workers or cores()} if self.address is None else {}
        try:
            ray.init(
                # "local": never a cluster that an environment variable happens to name.
                address=self.address or "local", include_dashboard=None if self.address else False,
                log_to_driver=False, logging_level=logging.ERROR, **local_options,
            )  # fmt: skip
        except (ConnectionError, ray.exceptions.RayError, ValueError, RuntimeError) as error:
            raise DataError(
                f"no Ray cluster at {self.address!r}: {error}; start one with: ray start --head"
            ) from error
        return True


def _must_answer(address: str | None) -> None:
    """Ray tries for minutes to reach a machine that is not there; a few seconds tell as much."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        return  # "auto", "local", or what Ray knows better
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise DataError(
            f"no Ray cluster at {address!r}: {error}; check host and port, "
            f"or start one there with: ray start --head"
        ) from error


@dataclass(frozen=True, eq=False)
class _Packed:
    """A job whose graphs are plain arrays: processes on one machine read the same memory."""

    job: Job
    graphs: list[dict[str, np.ndarray]]
    index: tuple[Index, Index] | None = None
    """Of the one graph, in and out: as large as the graph, so made once, too."""
    statistics: tuple[np.ndarray, np.ndarray] | None = None


def _packed(job: Job) -> _Packed:
    several = job.data if job.kind == "graph" else [job.data]
    arrays = [
        {name: value.detach().cpu().numpy() for name in _GRAPH
         if isinstance(value := getattr(graph, name, None), Tensor)}
        for graph in several
    ]  # fmt: skip
    plain = replace(job, data=None)
    if job.kind == "graph":
        return _Packed(plain, arrays)
    known = graphs.check_graph(job.data)
    numbers = (known.statistics.mean.cpu().numpy(), known.statistics.std.cpu().numpy())
    return _Packed(plain, arrays, (known.index, graphs.out_edges(known)), numbers)


def _unpacked(packed: _Packed) -> Job:
    with warnings.catch_warnings():
        # The object store is read-only, and nothing here writes to a graph.
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        several = [
            Data(**{name: torch.from_numpy(array) for name, array in arrays.items()})
            for arrays in packed.graphs
        ]
        if packed.index is not None and packed.statistics is not None:
            mean, std = (torch.from_numpy(array) for array in packed.statistics)
            graphs.adopt(several[0], *packed.index, graphs.Statistics(mean, std))
    return replace(packed.job, data=several if packed.job.kind == "graph" else several[0])


# --- in the worker -------------------------------------------------------------------------

_jobs: dict[str, Job] = {}


def _answer(key: str, shared: list[Any], chunk: Chunk) -> Answer:
    if key not in _jobs:
        ray = require_extra("ray", "ray")
        torch.set_num_threads(1)
        _jobs.clear()
        _jobs[key] = _unpacked(ray.get(shared[0]))
    return _jobs[key](chunk)
