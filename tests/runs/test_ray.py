"""The same bits on Ray, whatever happens to its machines."""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from graphsvx import Explanation, GraphSVX, runs
from graphsvx.core.query import Query
from graphsvx.errors import DataError, InputError
from graphsvx.results import serialize
from graphsvx.runs import arrow_schema
from graphsvx.runs import backends as cluster_engine
from graphsvx.runs import store as progress
from graphsvx.runs.backends import Job
from graphsvx.utils.imports import require_extra
from tests.runs.helpers import (
    INNER,
    Moody,
    ThisProcess,
    names,
    same_rows,
    start,
    wait_until,
    world,
)
from tests.runs.inputs import INPUTS, inputs, rows

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs graphsvx[ray]"),
    # Ray's own: sockets and files that its shutdown leaves to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray.*"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.*"),
]


@dataclass(frozen=True)
class Slow:
    """A method that takes its time, in other processes too."""

    inner: GraphSVX = INNER

    def __call__(self, query: Query, seed: int) -> Explanation:
        time.sleep(0.1)
        return self.inner(query, seed)


@pytest.fixture(scope="module")
def ray():
    quiet = (DeprecationWarning, FutureWarning)
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # 15 waits for all other tests
    # Its token would be a file in the home folder.
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    return require_extra("ray", "ray", quiet=quiet)


def test_its_settings_and_addresses_are_checked(tmp_path, ray, monkeypatch) -> None:
    with pytest.raises(InputError, match="workers"):
        runs.Ray(workers=0)

    def nobody(**options: object) -> None:
        raise ConnectionError("nobody there")

    monkeypatch.setattr(ray, "init", nobody)
    with pytest.raises(DataError, match=r"no Ray cluster at 'auto'.*ray start --head"):
        start(tmp_path / "run", backend=runs.Ray(address="auto"), method=Moody())


def test_an_unreachable_ray_address_is_reported_at_once(tmp_path, ray) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but nobody listens
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        begun = time.monotonic()
        for given in (address, f"ray://{address}"):
            with pytest.raises(DataError, match=r"no Ray cluster at .*check host and port"):
                start(tmp_path / "run", backend=runs.Ray(address=given), method=Moody())
    assert time.monotonic() - begun < 20


# --- on a cluster, last: its processes are busy as long as it is there -------------------------


@pytest.fixture(scope="module")
def cluster(ray) -> Iterator:
    """One node with one CPU and what it takes for a GPU; the driver is there."""
    resources = {"num_cpus": 1, "num_gpus": 1, "include_dashboard": False}
    cluster = require_extra("ray.cluster_utils", "ray").Cluster(
        initialize_head=True, head_node_args=resources
    )
    try:
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def test_two_machines_and_one_is_lost(tmp_path, ray, cluster, reference, monkeypatch) -> None:
    monkeypatch.setattr(progress, "_FLUSH_SECONDS", 0.05)
    other = cluster.add_node(num_cpus=1)
    out, seen = tmp_path / "run", []

    def lose_one() -> None:
        while not (out / "run.json").exists() or runs.open(out).status().done < 12:
            time.sleep(0.05)
        seen.append((ray.cluster_resources()["CPU"], runs.open(out).status().done))
        cluster.remove_node(other, allow_graceful=False)

    thread = threading.Thread(target=lose_one, daemon=True)
    thread.start()
    run = start(out, backend=runs.Ray(address=cluster.address), method=Slow())
    thread.join(10)
    # Both were there, and the run was in the middle.
    assert seen[0][0] == 2
    assert 12 <= seen[0][1] < 40
    assert run.failures() == {}
    # The same numbers as with processes of this machine and another method around them.
    assert same_rows(run.table(), reference.table())


@pytest.fixture(scope="module")
def connected(ray, cluster):
    """The cluster, connected for several runs, which share processes that have imported torch."""
    ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    wait_until(lambda: ray.cluster_resources()["CPU"] == 1)  # a lost node is counted for a while
    return cluster


def test_a_run_started_with_processes_can_be_finished_on_ray(
    tmp_path, connected, reference
) -> None:
    out = tmp_path / "run"
    shutil.copytree(reference.folder, out)
    for name in names(out)[2:]:
        (out / "parts" / name).unlink()
    run = start(out, backend=runs.Ray(address=connected.address))
    assert run.status().state == "finished"
    assert names(out) == names(reference.folder)


@pytest.mark.parametrize("kind", INPUTS)
def test_ray_gives_the_same_bits(connected, kind: str) -> None:
    job = inputs(kind)
    backends = [ThisProcess(), runs.Ray(address=connected.address)]
    if kind == "attributes":  # a process that starts anew, as it does beside Ray
        backends.append(runs.Local(1))
    expected, *others = (rows(job, backend) for backend in backends)
    assert not arrow_schema.failed(expected).any()
    assert all(same_rows(expected, rows) for rows in others)


@dataclass(frozen=True)
class Noting:
    """Leaves the number of its process in a folder."""

    folder: str
    inner: GraphSVX = INNER

    def __call__(self, query: Query, seed: int) -> Explanation:
        (Path(self.folder) / f"{os.getpid()}").touch()
        return self.inner(query, seed)


def test_gpus_are_asked_of_ray_and_a_worker_without_one_says_so(tmp_path, ray, connected) -> None:
    assert runs.Ray(num_gpus=0.5)._slots(ray) == 2
    with pytest.raises(DataError, match=r"num_gpus=2 .* the Ray cluster has 1"):
        start(tmp_path / "two", backend=runs.Ray(num_gpus=2), method=INNER)
    workers = tmp_path / "workers"
    workers.mkdir()
    run = start(tmp_path / "run", backend=runs.Ray(num_gpus=0.5), method=Noting(str(workers)))
    assert run.failures() == {}
    # Of six parts and more chunks: Ray may have a second process ready when the first has ended.
    assert len(list(workers.iterdir())) <= 2, "a process for each chunk"
    lines = {explanation.certificate.given_up for explanation in run}
    expected = (
        ()
        if torch.cuda.is_available()
        else ("torch finds no GPU in the worker: computed on the CPU",)
    )
    assert lines == {expected}


@dataclass(frozen=True)
class Deadly:
    """One node's explanation ends its process."""

    inner: GraphSVX = INNER

    def __call__(self, query: Query, seed: int) -> Explanation:
        if int(query.centres[0]) == 11:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.inner(query, seed)


def test_a_query_that_kills_its_worker(tmp_path, connected, reference, monkeypatch) -> None:
    monkeypatch.setattr(progress, "TRIES", 1)  # each costs the start of a process
    run = start(tmp_path / "run", backend=runs.Ray(address=connected.address), method=Deadly(),
                nodes=range(11, 13))  # fmt: skip
    assert list(run.failures()) == [11]
    assert serialize.same(run[12], reference[12])


def test_workers_move_model_and_data_to_their_device() -> None:
    model, data = world()
    job = Job(model, data.clone(), "node", {})
    moved = cluster_engine._moved(job, torch.device("meta"))
    assert {parameter.device.type for parameter in moved.model.parameters()} == {"meta"}
    assert moved.data.x.device.type == moved.data.edge_index.device.type == "meta"
    graphs = cluster_engine._moved(
        Job(world()[0], [data.clone()], "graph", {}), torch.device("meta")
    )
    assert [graph.x.device.type for graph in graphs.data] == ["meta"]
    kept = cluster_engine._moved(Job(lambda x: x, data, "node", {}), torch.device("meta"))
    assert kept.data.x.device.type == "cpu"
    assert "computed where they are" in kept.given_up[0]
