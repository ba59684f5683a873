"""What the study of running times measures with: a clock, and one model call a row."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from graphsvx.explain import WLS
from graphsvx.explanation import Explanation
from graphsvx.masks import Mask, Masks
from graphsvx.masks.base import Game
from graphsvx.zoo import Trained

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Kept:
    """A mask that remembers the rows it drew, for those who cannot draw them."""

    inner: Mask
    drawn: dict[str, Masks] = field(default_factory=dict, repr=False)
    separate = True

    def __call__(self, game: Game, budget: int, rng: torch.Generator) -> Masks:
        """As `inner`."""
        masks = self.inner(game, budget, rng)
        self.drawn[getattr(game, "side", "nodes")] = masks
        return masks


@torch.no_grad()
def one_call_a_row(
    world: Trained, node: int, drawn: dict[str, Masks], like: Explanation
) -> dict[str, Tensor]:
    """Credit by game, written plainly: every row is a call of the model on its perturbed graph."""
    graph = world.dataset.graph
    source, target = graph.edge_index
    mean = graph.x.double().mean(0).to(graph.x.dtype)
    features, nodes = like.feature_ids, like.node_ids
    credit = {}
    for side, masks in drawn.items():
        ends = np.zeros((2, masks.rows.shape[1]), dtype=bool)
        ends[1] = True
        scores = []
        for row in torch.from_numpy(np.concatenate([ends, masks.rows])):
            x, on = graph.x, torch.ones(len(graph.x), dtype=torch.bool)
            if side == "features":
                x = x.clone()
                x[node, features[~row]] = mean[features[~row]]
                on[nodes] = False
            else:
                on[nodes[~row]] = False
            # Eq. 2: a switched-off node loses its edges.
            edges = graph.edge_index[:, on[source] & on[target]]
            scores.append(world.model(x, edges)[node].softmax(-1)[like.target])
        values = torch.stack(scores).double()[:, None]
        credit[side] = WLS()(masks, values[2:], values[0], values[1]).values[0]
    return credit


def take_turns(
    contenders: dict[Key, Callable[[], Any]], repeats: int
) -> tuple[dict[Key, float], dict[Key, Any]]:
    """Median processor seconds and the last results; in turn, so that a busy machine slows all."""
    seconds: dict[Key, list[float]] = {name: [] for name in contenders}
    results: dict[Key, Any] = {}
    for _ in range(repeats):
        for name, run in contenders.items():
            start = time.process_time()
            results[name] = run()
            seconds[name].append(time.process_time() - start)
    return {name: median(each) for name, each in seconds.items()}, results


def machine() -> dict[str, str]:
    """What the times were measured on; nothing that names it or its owner."""
    name, info = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    if info.exists():
        lines = [x for x in info.read_text().splitlines() if x.startswith("model name")]
        name = lines[0].split(":", 1)[1].strip() if lines else name
    return {
        "processor": name,
        "cores": str(os.cpu_count()),
        "threads": "1",
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
    }
