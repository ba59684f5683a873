"""The explorer under load: parallel clients on the loopback, and every answer checked.

    python -m benchmarks.explorer_load [seconds] [clients]

Each client asks, over a connection of its own, for predictions of changed graphs, explanations,
lists and streams, in a random order. A prediction must be the model's own output for that graph, an
explanation the bits that `graphsvx.explain` gives; anything else, a refusal or a lost connection
counts as wrong. Clients run in a second process.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
from tests.worlds import random_graph, random_model

import graphsvx
from graphsvx import GraphSVX
from graphsvx.explorer.server import start
from graphsvx.explorer.workspace import make_workspace

NODES, SAMPLES = 60, 60
Expected = dict[str, Any]


def expected_answers(model: torch.nn.Module, data: Any) -> Expected:
    """Right answers by path, from plain model calls and from the library."""
    answers: Expected = {}
    edges = data.edge_index
    for node in range(NODES):
        off = (node + 7) % NODES
        keep = (edges != off).all(0)
        with torch.no_grad():
            scores = model(data.x, edges[:, keep])[node].softmax(-1).tolist()
        answers[f"predict?node={node}&nodes_off={off}"] = scores
        answers[f"nodes?q={node}&limit=1"] = node
    for node in range(0, NODES, 5):
        explanation = graphsvx.explain(
            model, data, node=node, method=GraphSVX(samples=SAMPLES), targets="all"
        )
        credit = explanation.node_credit.values.tolist()
        answers[f"explain?node={node}&samples={SAMPLES}"] = credit
        answers[f"explain/stream?node={node}&samples={SAMPLES}"] = explanation.certificate.calls
    return answers


def is_right(path: str, text: str, expected: Any) -> bool:
    """Whether the body of an answer is what was expected."""
    if path.startswith("explain/stream"):
        events = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
        return bool(events) and json.loads(events[-1])["progress"]["calls"] == expected
    answer = json.loads(text)
    if path.startswith("predict"):
        return bool(np.allclose(answer["scores"], expected, rtol=0, atol=1e-12))
    if path.startswith("nodes"):
        return bool(answer["rows"][0]["id"] == expected)
    return bool(answer["node_credit"]["values"] == expected)


async def request(host: str, port: int, token: str, path: str) -> str:
    """The body of the answer; raises unless it is complete and has status 200."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(
        f"GET /api/v1/{path} HTTP/1.1\r\nHost: {host}:{port}\r\n"
        f"Authorization: Bearer {token}\r\nConnection: close\r\n\r\n".encode()
    )
    await writer.drain()
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise ConnectionError(f"{path}: {head[:60]!r} {body[:200]!r}")
    if b"transfer-encoding: chunked" in head.lower():
        body = _joined(body)
    return body.decode()


def _joined(body: bytes) -> bytes:
    parts = []
    while body:
        size, _, body = body.partition(b"\r\n")
        count = int(size, 16)
        if not count:
            return b"".join(parts)
        parts.append(body[:count])
        body = body[count + 2 :]
    raise ConnectionError("the stream broke off")


async def client(
    number: int, port: int, token: str, answers: Expected, end: float, counts: Counter[str],
    durations: list[float],
) -> None:  # fmt: skip
    """Ask one question after the other until the end."""
    rng, paths = random.Random(number), list(answers)
    while time.monotonic() < end:
        path = rng.choice(paths)
        began = time.monotonic()
        try:
            text = await request("127.0.0.1", port, token, path)
            right = is_right(path, text, answers[path])
        except (OSError, ValueError, KeyError) as error:
            print(error)
            right = False
        counts["right" if right else "wrong"] += 1
        counts[path.partition("?")[0]] += 1
        durations.append(time.monotonic() - began)


def clients(
    port: int, token: str, answers: Expected, seconds: float, number: int
) -> tuple[Counter[str], list[float]]:
    """All clients, in one process."""
    counts: Counter[str] = Counter()
    durations: list[float] = []

    async def every() -> None:
        end = time.monotonic() + seconds
        tasks = [client(i, port, token, answers, end, counts, durations) for i in range(number)]
        await asyncio.gather(*tasks)

    asyncio.run(every())
    return counts, durations


def main(seconds: float = 60, number: int = 200) -> Counter[str]:
    """Start a server, let the clients ask, print what came of it."""
    data = random_graph(3, nodes=NODES, chance=0.06)
    model = random_model("gcn", 1)
    answers = expected_answers(model, data)
    with (
        start(make_workspace(model, data), browser=False) as server,
        ProcessPoolExecutor(1, get_context("spawn")) as pool,
    ):
        asked = pool.submit(clients, server.port, server.token, answers, seconds, number)
        counts, durations = asked.result()
    middle, high = np.quantile(durations, [0.5, 0.95])
    print(f"{number} clients, {seconds:.0f} s: {dict(counts)}")
    print(
        f"answer after {middle:.2f} s (median), {high:.2f} s (95 %); load {os.getloadavg()[0]:.1f}"
    )
    return counts


if __name__ == "__main__":
    wrong = main(*map(float, sys.argv[1:2]), *map(int, sys.argv[2:3]))["wrong"]
    sys.exit(1 if wrong else 0)
