"""python -m benchmarks.runs: how runs scale, as ratios in one go.

    python -m benchmarks.runs workers     1 and 2 local workers, and what the store costs
    python -m benchmarks.runs ray         Ray with 2 workers beside local ones
    python -m benchmarks.runs driver      rows that the writing process can take
    python -m benchmarks.runs large       a graph of 10^6 nodes and 10^7 edges, 200 nodes explained

Other work on the machine disturbs all of them. What others took is measured, too, and with
--patience 600 rounds that were disturbed are repeated.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN, GraphSAGE
from torch_geometric.utils import k_hop_subgraph

from graphsvx import GraphSVX, explain, runs
from graphsvx.core import graph
from graphsvx.core.data import check_graph
from graphsvx.runs.backends import Answer, Job
from graphsvx.runs.store import RunFolder, read_progress
from graphsvx.utils import processes
from graphsvx.utils.files import atomic_write
from graphsvx.utils.imports import require_extra

GIB = 2**30


def power_law(nodes: int, edges: int, features: int = 16, seed: int = 0) -> Data:
    """`edges` directed edges in pairs; degrees fall off as a power law with exponent 3."""
    rng = np.random.default_rng(seed)
    # Chung-Lu: ends are drawn in proportion to i^(-1/2).
    heap = np.cumsum((np.arange(nodes) + 1.0) ** -0.5)
    ends = np.searchsorted(heap, rng.random(edges) * heap[-1]).astype(np.int64)
    shuffled = rng.permutation(nodes)[ends]
    half = edges // 2
    edge_index = np.empty((2, 2 * half), dtype=np.int64)
    edge_index[0, :half] = edge_index[1, half:] = shuffled[:half]
    edge_index[1, :half] = edge_index[0, half:] = shuffled[half : 2 * half]
    x = rng.standard_normal((nodes, features), dtype=np.float32)
    return Data(x=torch.from_numpy(x), edge_index=torch.from_numpy(edge_index))


def small_world() -> tuple[torch.nn.Module, Data]:
    torch.manual_seed(0)
    return GCN(16, 16, 2, 4).eval(), power_law(2_000, 8_000)


# --- workers, Ray, store ---------------------------------------------------------------------


def _cpu() -> float:
    """Processor seconds of this process and all below it, those that have ended included."""
    total = 0
    for pid in _family(os.getpid()):
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(int(ticks) for ticks in fields[11:15])
    return total / os.sysconf("SC_CLK_TCK")


def _bare(job: Job, queries: list[int], workers: int) -> None:
    """The same explanations in the same processes, thrown away."""
    left = iter([queries[i : i + 10] for i in range(0, len(queries), 10)])

    def work(chunk: list[int]) -> int:
        return len([job.explain(query) for query in chunk])

    graph.out_edges(check_graph(job.data))
    for _ in processes.imap_unordered(work, lambda: next(left, None), workers):
        pass


def _busy() -> float:
    """Processor seconds that the whole machine has spent."""
    fields = [int(ticks) for ticks in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Lap:
    """One run of one contender."""

    wall: float
    cpu: float
    own: float
    """Processor seconds of this process alone: handing out and writing."""
    others: float
    """Share of the machine that other processes took meanwhile."""


def _lap(work: Callable[[], Any]) -> Lap:
    gc.collect()
    wall, cpu, own, busy = time.monotonic(), _cpu(), time.process_time(), _busy()
    work()
    own = time.process_time() - own
    wall, cpu, busy = time.monotonic() - wall, _cpu() - cpu, _busy() - busy
    return Lap(wall, cpu, own, max(busy - cpu, 0.0) / (wall * (os.cpu_count() or 1)))


def _rounds(
    contenders: dict[str, Callable[[], Any]], repeats: int, patience: float
) -> dict[str, list[Lap]]:
    """Contenders in turn; a round in which others took more than 5 % does not count.

    After `patience` seconds the least disturbed rounds are taken.
    """
    end, undisturbed, disturbed = time.monotonic() + patience, [], []
    while len(undisturbed) < repeats and (
        time.monotonic() < end or len(undisturbed) + len(disturbed) < repeats
    ):
        laps = {name: _lap(work) for name, work in contenders.items()}
        worst = max(lap.others for lap in laps.values())
        (undisturbed if worst < 0.05 else disturbed).append((worst, laps))
    disturbed.sort(key=lambda pair: pair[0])
    chosen = [laps for _, laps in (undisturbed + disturbed)[:repeats]]
    return {name: [laps[name] for laps in chosen] for name in contenders}


def _started(engine: Any, world: tuple[Any, Data], count: int) -> Callable[[], None]:
    def work() -> None:
        with tempfile.TemporaryDirectory() as folder:
            runs.start(*world, range(count), out=Path(folder) / "run", backend=engine)

    return work


def workers(count: int, repeats: int, patience: float) -> dict[str, Any]:
    world = small_world()
    job = Job(*world, "node", {"method": GraphSVX(samples=1000), "seed": 0})
    laps = _rounds(
        {
            "1 worker": _started(runs.Local(1), world, count),
            "2 workers": _started(runs.Local(2), world, count),
            "no store": lambda: _bare(job, list(range(count)), 1),
        },
        repeats,
        patience,
    )
    wall = {name: [lap.wall for lap in measured] for name, measured in laps.items()}
    cpu = {name: [lap.cpu for lap in measured] for name, measured in laps.items()}
    return {
        "explanations": count,
        "a second, 1 worker": count / median(wall["1 worker"]),
        "a second, 2 workers": count / median(wall["2 workers"]),
        "2 workers / 1 worker": _ratio(wall["1 worker"], wall["2 workers"]),
        "store, in the writing process": median(
            (a.own - b.own) / b.cpu for a, b in zip(laps["1 worker"], laps["no store"], strict=True)
        ),
        "store, processor time": _ratio(cpu["1 worker"], cpu["no store"]) - 1,
        "store, wall clock": _ratio(wall["1 worker"], wall["no store"]) - 1,
        "taken by others, at most": max(
            lap.others for measured in laps.values() for lap in measured
        ),
    }


def _ratio(above: list[float], below: list[float]) -> float:
    """Of neighbours in time, so that a busy spell slows both."""
    return median(a / b for a, b in zip(above, below, strict=True))


def on_ray(count: int, repeats: int, patience: float) -> dict[str, Any]:
    world = small_world()
    ray = require_extra("ray", "ray", quiet=(DeprecationWarning, FutureWarning))
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    local, cluster = runs.Local(2), runs.Ray(workers=2)
    try:
        _started(cluster, world, 40)()  # starts the processes, which stay
        laps = _rounds(
            {"local": _started(local, world, count), "ray": _started(cluster, world, count)},
            repeats, patience,
        )  # fmt: skip
    finally:
        ray.shutdown()
    wall = {name: [lap.wall for lap in measured] for name, measured in laps.items()}
    return {
        "explanations": count,
        "a second, local": count / median(wall["local"]),
        "a second, Ray": count / median(wall["ray"]),
        "Ray / local": _ratio(wall["local"], wall["ray"]),
        "taken by others, at most": max(
            lap.others for measured in laps.values() for lap in measured
        ),
    }


def driver(rows: int) -> dict[str, Any]:
    """What the one process that writes can take: answers that are there, straight to the disk."""
    model, data = small_world()
    job = Job(model, data, "node", {"method": GraphSVX(samples=1000), "seed": 0})
    table = job(tuple(range(256))).rows  # no two of a part are the same
    with tempfile.TemporaryDirectory() as folder:
        store = RunFolder(Path(folder) / "run")
        queries = np.arange(rows)
        store.create({}, queries)
        progress = read_progress(store, queries, 256, retry_failed=False)
        start = time.monotonic()
        for first in range(0, rows, 64):
            chunk = tuple(range(first, first + 64))
            part = table.slice(first % 256, 64)
            progress.add(Answer(chunk, part.set_column(0, "query", pa.array(chunk)), 1.0))
        progress.flush()
        seconds = time.monotonic() - start
        size = sum(path.stat().st_size for path in store.path.rglob("*.parquet"))
    return {"rows": rows, "rows a second": rows / seconds, "KiB a row": size / rows / 1024}


# --- a large graph ---------------------------------------------------------------------------


def _family(root: int) -> list[int]:
    """A process and all below it."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(path.parent.name))
    descendants, new = [root], [root]
    while new:
        new = [child for process in new for child in parents.get(process, [])]
        descendants += new
    return descendants


def _memory(root: int) -> int:
    """Bytes of the whole process tree; what several share is counted once (Pss)."""
    total = 0
    for pid in _family(root):
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(
            int(line.split()[1]) * 1024 for line in text.splitlines() if line[:4] == "Pss:"
        )
    return total


@contextmanager
def _peak() -> Iterator[list[int]]:
    seen, stop = [_memory(os.getpid())], threading.Event()

    def watch() -> None:
        while not stop.wait(0.25):
            seen.append(_memory(os.getpid()))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


def _by_hand(data: Data, node: int, depth: int) -> tuple[Data, int]:
    """The field with its rim, as a graph of its own."""
    ids, edges, where, _ = k_hop_subgraph(
        node, depth + 1, data.edge_index, relabel_nodes=True, num_nodes=len(data.x)
    )
    return Data(x=data.x[ids], edge_index=edges), int(where)


def large(nodes: int, edges: int, count: int, by_hand: int) -> dict[str, Any]:
    data = power_law(nodes, edges)
    size = data.x.nbytes + data.edge_index.nbytes
    torch.manual_seed(0)
    model = GraphSAGE(16, 16, 2, 4).eval()
    rng = np.random.default_rng(1)
    queries = np.sort(rng.choice(nodes, count, replace=False))
    # The mean of the whole graph as a reference, so that cut-out fields play the same games.
    mean = tuple(data.x.double().mean(0).tolist())
    method = GraphSVX(features="all", reference=mean, samples=200)
    options = {"memory": 64 * 2**20}
    with tempfile.TemporaryDirectory() as folder, _peak() as seen:
        start = time.monotonic()
        run = runs.start(model, data, queries, out=Path(folder) / "run", method=method,
                         backend=runs.Local(2), **options)  # fmt: skip
        seconds = time.monotonic() - start
        failed = len(run.failures())
        field = median(len(row) for row in run.table(["field_ids"])["field_ids"].to_pylist())
    there, cut_out = [], []
    graph.out_edges(check_graph(data))  # once a graph, in a run too
    # Both in this process and in turn, so that only the size of the graph differs.
    for turn, node in enumerate(queries[np.linspace(0, count - 1, by_hand).astype(int)].tolist()):
        small, where = _by_hand(data, node, 2)
        graph.out_edges(check_graph(small))
        graph_pair = [(data, node, there), (small, where, cut_out)]
        for graph_of, which, times in graph_pair if turn % 2 else reversed(graph_pair):
            begun = time.process_time()
            explain(model, graph_of, node=which, method=method, **options)
            times.append(time.process_time() - begun)
    return {
        "nodes": nodes,
        "edges": int(data.edge_index.shape[1]),
        "explained": count - failed,
        "failed": failed,
        "nodes in a field, median": field,
        "seconds, all": seconds,
        "graph, GiB": size / GIB,
        "before, GiB": seen[0] / GIB,
        "peak, GiB": max(seen) / GIB,
        "above the graph, GiB": (max(seen) - size) / GIB,
        "in the large graph / cut out by hand": sum(there) / sum(cut_out),
        "ms a node, large graph": 1000 * sum(there) / len(there),
        "ms a node, cut out": 1000 * sum(cut_out) / len(cut_out),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.runs", description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("what", choices=("workers", "ray", "driver", "large"), nargs="+")
    parser.add_argument("--count", type=int, default=400, help="explanations (workers, ray)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--patience", type=float, default=0, metavar="SECONDS",
                        help="how long to wait for rounds that others do not disturb")  # fmt: skip
    parser.add_argument("--nodes", type=int, default=10**6, help="of the large graph")
    parser.add_argument("--edges", type=int, default=10**7)
    parser.add_argument("--explained", type=int, default=200)
    parser.add_argument("--by-hand", type=int, default=40, help="how many of them are cut out")
    parser.add_argument("--json", type=Path, metavar="FILE")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    for what in chosen.what:
        before = os.getloadavg()[0]
        if what == "large":
            result = large(chosen.nodes, chosen.edges, chosen.explained, chosen.by_hand)
        elif what == "driver":
            result = driver(64 * 160)
        else:
            result = {"workers": workers, "ray": on_ray}[what](
                chosen.count, chosen.repeats, chosen.patience
            )  # fmt: skip
        results[what] = {**result, "load before": before, "load after": os.getloadavg()[0]}
        for name, value in results[what].items():
            print(
                f"{name:40}{value:>14.3f}" if isinstance(value, float) else f"{name:40}{value:>14}"
            )
    if chosen.json:
        with atomic_write(chosen.json) as part:
            part.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
