"""The `Backend` protocol; backends for processes on this machine and for a Ray cluster."""

from __future__ import annotations

import io
import logging
import os
import pickle
import socket
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Protocol

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from graphsvx import many
from graphsvx.errors import DataError, first_line
from graphsvx.many import Failure, failure_of
from graphsvx.results.explanation import Explanation
from graphsvx.runs import arrow_schema, identity
from graphsvx.runs.identity import TorchState
from graphsvx.utils import processes
from graphsvx.utils.constraints import Checked, Range, Workers
from graphsvx.utils.imports import require_extra

Chunk = tuple[int, ...]
"""Queries of one task of a worker."""


@dataclass(frozen=True, eq=False)
class Job(many.Job):
    """Model, data and options of a run: everything that a worker needs besides the queries."""

    sufficient: float | None = None
    """Share of the score that the smallest set of players is looked for with; None: it is not."""
    flip: bool = False
    """Whether the smallest set is looked for whose removal changes the class."""
    torch_state: TorchState = field(default_factory=TorchState.current)
    given_up: tuple[str, ...] = ()
    """What the worker could not do, for all certificates."""

    def inputs(self) -> dict[str, Any]:
        """Identity of everything that outputs depend on, the same in every process."""
        with self.torch_state.in_force():
            graphs = list(self.data) if self.kind == "graph" else [self.data]
            return identity.of_inputs(self.model, graphs)

    def explained(self, item: int) -> Explanation:
        """The explanation of a query, with the sets that are looked for."""
        with self.torch_state.in_force():
            explanation = super().explained(item)
        answers = [] if self.sufficient is None else [explanation.sufficient(self.sufficient)]
        answers += [explanation.flip()] if self.flip else []
        certificate = explanation.certificate
        given_up = (*certificate.given_up, *self.given_up)
        certificate = replace(certificate, given_up=given_up)
        return replace(explanation, answers=tuple(answers), certificate=certificate)

    def __call__(self, chunk: Chunk) -> Answer:
        """Explain the queries of a chunk; fewer of them if the worker was asked to stop."""
        start, results = time.monotonic(), []
        for query in chunk:
            if processes.stop_requested():
                break
            results.append(self.explain(query))
        done = chunk[: len(results)]
        return Answer(done, _rows(done, results), time.monotonic() - start)


def _rows(queries: Chunk, results: list[Explanation | Failure]) -> pa.Table:
    """A row for each query; one that cannot be stored is a failure of that query."""
    try:
        return arrow_schema.to_table(queries, results)
    except Exception as error:  # of an explainer of the user's, such as text that is no text
        if len(queries) == 1:
            return arrow_schema.to_table(queries, [failure_of(queries[0], error)])
        return pa.concat_tables(map(_rows, zip(queries), ([result] for result in results)))


@dataclass(frozen=True, eq=False)
class Answer:
    """Results of a chunk: one row per query."""

    queries: Chunk
    rows: pa.Table
    seconds: float
    """Computation time of the worker."""


@dataclass(frozen=True)
class LostChunk:
    """A chunk whose worker died."""

    queries: Chunk
    reason: str = "too little memory?"
    """Cause of death, as far as it is known."""


class Backend(Protocol):
    """Executes chunks in workers, and takes no more of them than its workers can start."""

    def answers(self, job: Job, take: Callable[[], Chunk | None]) -> Iterator[Answer | LostChunk]:
        """Run the chunks of `take()` in workers and yield their results in any order.

        `take` returns None if no query is open; it may return more after a `LostChunk`.
        """
        ...


def cores() -> int:
    """Number of CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True, eq=False)
class _SentJob:
    """A job that is pickled for a worker, which checks at first that it is the same there."""

    job: Job
    inputs: dict[str, Any]
    """Identity of model and graphs where the run was started."""

    @cached_property
    def received(self) -> Job:
        """The job, if this process has the same model and graphs."""
        differ = identity.differing(self.inputs, self.job.inputs())
        if differ:
            raise DataError(
                f"the workers have another model or graph: {'; '.join(differ[:5])} (there: where "
                f"the run was started); make it part of the model, such as an attribute"
            )
        return self.job

    def __call__(self, chunk: Chunk) -> Answer:
        return self.received(chunk)


@dataclass(frozen=True)
class Local(Checked):
    """Processes on this machine that share the graph's memory, with one torch thread each."""

    workers: Workers | None = None
    """Number of processes; None: the number of cores."""

    def answers(self, job: Job, take: Callable[[], Chunk | None]) -> Iterator[Answer | LostChunk]:
        """See `Backend`."""
        job.index()
        work = job if processes.can_fork() else _SentJob(job, job.inputs())
        for chunk, result in processes.imap_unordered(work, take, self.workers or cores()):
            yield LostChunk(chunk) if isinstance(result, processes.WorkerDied) else result


# --- a Ray cluster: the graph once in the memory of each machine, chunks as Ray tasks ----


# Timeout in seconds of the connection test.
_CONNECT_TIMEOUT = 5.0


@dataclass(frozen=True)
class Ray(Checked):
    """Workers of a Ray cluster (needs `graphsvx[ray]`, on every machine of it)."""

    address: str | None = None
    """An existing cluster: "auto" on one of its machines, or "host:port" of its head.
    None: a new one on this machine, shut down at the end of the run."""
    workers: Workers | None = None
    """Number of chunks that run at the same time; None: the number of CPUs of the cluster."""
    num_gpus: Annotated[float, Range(0)] = 0
    """GPUs of each worker, as Ray counts them (0.25: four workers share one). Model and data are
    then moved to the GPU that a worker is given."""

    def answers(self, job: Job, take: Callable[[], Chunk | None]) -> Iterator[Answer | LostChunk]:
        """See `Backend`. Ray places tasks, detects lost workers and retries a task once.

        Raises:
            DataError: the cluster has fewer GPUs than a worker needs.

        """
        ray = require_extra("ray", "ray", quiet=(DeprecationWarning, FutureWarning))
        started_here = self._connect(ray)
        # One retry: results that were stored on a lost machine are computed again by Ray.
        # No limit of calls: with GPUs, Ray would start a process for each chunk otherwise.
        options = {"num_cpus": 1, "num_gpus": self.num_gpus, "max_retries": 1, "max_calls": 0}
        answer = ray.remote(**options)(_answer)
        running: dict[Any, Chunk] = {}
        try:
            gpus = ray.cluster_resources().get("GPU", 0)
            if gpus < self.num_gpus:  # Ray would wait for ever
                raise DataError(
                    f"num_gpus={self.num_gpus:g} for each worker, but the Ray cluster has "
                    f"{gpus:g}; leave num_gpus out to compute on CPUs"
                )
            # In a list, so that a task gets the reference and reads the object once per process.
            shared = [ray.put(_packed(job))]
            key = uuid.uuid4().hex
            while True:
                free_slots = self._slots(ray) - len(running)
                while free_slots > 0 and (chunk := take()) is not None:
                    running[answer.remote(key, shared, chunk, self.num_gpus > 0)] = chunk
                    free_slots -= 1
                if not running:
                    return
                ready, _ = ray.wait(list(running), timeout=10)
                for done in ready:
                    chunk = running.pop(done)
                    try:
                        yield ray.get(done)
                    except ray.exceptions.RayTaskError:
                        raise  # an error in our code, not a lost worker
                    except ray.exceptions.RayError as error:
                        yield LostChunk(chunk, first_line(error))
        finally:
            for task in running:
                ray.cancel(task, force=True)
            if started_here:
                ray.shutdown()

    def _slots(self, ray: Any) -> int:
        """Maximum number of submitted chunks: two per worker, so that no worker has to wait."""
        # Not cached: machines may join or leave the cluster.
        resources = ray.cluster_resources()
        workers = self.workers or int(resources.get("CPU", 1))
        if self.num_gpus:
            workers = min(workers, int(resources.get("GPU", 0) / self.num_gpus))
        return 2 * max(workers, 1)

    def _connect(self, ray: Any) -> bool:
        """Connect to a cluster; True if this run has to disconnect at its end."""
        if ray.is_initialized():
            return False
        _check_reachable(self.address)
        local_options = {"num_cpus": self.workers or cores()} if self.address is None else {}
        try:
            ray.init(
                # "local": never a cluster that an environment variable happens to name.
                address=self.address or "local",
                include_dashboard=None if self.address else False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                **local_options,
            )
        except (ConnectionError, ray.exceptions.RayError, ValueError, RuntimeError) as error:
            raise DataError(
                f"no Ray cluster at {self.address!r}: {error}; start one with: ray start --head"
            ) from error
        return True


def _check_reachable(address: str | None) -> None:
    """Raise if host and port do not accept a connection; Ray itself would retry for minutes."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        return  # "auto", "local" or another form that Ray resolves
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_TIMEOUT).close()
    except (OSError, OverflowError) as error:
        raise DataError(
            f"no Ray cluster at {address!r}: {error}; check host and port, "
            f"or start one there with: ray start --head"
        ) from error


def _packed(job: Job) -> tuple[bytes, list[np.ndarray]]:
    """A pickled job, and the arrays in it, which the processes of one machine share in memory."""
    cloudpickle: Any = require_extra("ray.cloudpickle", "ray")

    class Pickler(cloudpickle.CloudPickler):
        def reducer_override(self, value: Any) -> Any:
            if type(value) is Tensor and not value.requires_grad:
                # Sparse, nested and quantized tensors, or of types that numpy has not.
                with suppress(TypeError, RuntimeError):
                    if value.is_contiguous():
                        return torch.from_numpy, (value.numpy(),)
            return super().reducer_override(value)

    buffers: list[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    Pickler(stream, protocol=5, buffer_callback=buffers.append).dump(_SentJob(job, job.inputs()))
    return stream.getvalue(), [np.frombuffer(buffer.raw(), dtype=np.uint8) for buffer in buffers]


def _unpacked(packed: tuple[bytes, list[np.ndarray]]) -> Job:
    content, arrays = packed
    with warnings.catch_warnings():
        # Arrays of Ray's object store are read-only; graphs are never modified.
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        sent: _SentJob = pickle.loads(content, buffers=arrays)  # noqa: S301  (of the driver)
    return sent.received


# --- in the worker -------------------------------------------------------------------------

_jobs: dict[str, Job] = {}


def _answer(key: str, shared: list[Any], chunk: Chunk, on_gpu: bool) -> Answer:
    if key not in _jobs:
        ray = require_extra("ray", "ray")
        torch.set_num_threads(1)
        _jobs.clear()
        job = _unpacked(ray.get(shared[0]))
        _jobs[key] = _moved(job, torch.device("cuda")) if on_gpu else job
    return _jobs[key](chunk)


def _moved(job: Job, device: torch.device) -> Job:
    """The job with model and data on a device; certificates say so where that cannot be."""
    if device.type == "cuda" and not torch.cuda.is_available():
        return replace(job, given_up=("torch finds no GPU in the worker: computed on the CPU",))
    is_list = job.kind == "graph"
    inputs = list(job.data) if is_list else [job.data]
    model: Any = job.model
    if not all(hasattr(part, "to") for part in (model, *inputs)):
        sentence = f"model and data have no .to({str(device)!r}): computed where they are"
        return replace(job, given_up=(sentence,))
    moved = [data.to(device) for data in inputs]
    return replace(job, model=model.to(device), data=moved if is_list else moved[0])
