"""scripts/bench record FILE: explanations of many kinds, written down to the last bit.

    scripts/bench record FILE             explain everything and write FILE
    scripts/bench record FILE --compare   explain everything again and list what differs from FILE
    scripts/bench record FILE --compare --only typed    cases with "typed" in their name

For a change that must not change results: record before it, compare after it, on one machine.
Models are not trained, and questions, methods and settings come from the lists below. A refusal is
recorded by its class. To record another version of the library, put its `src` first in PYTHONPATH.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import (
    GAT,
    GCN,
    GIN,
    ChebConv,
    GATv2Conv,
    GENConv,
    GraphConv,
    GraphSAGE,
    HeteroConv,
    SAGEConv,
    TransformerConv,
    global_add_pool,
)

from graphsvx import GraphSVX, explain
from graphsvx.errors import GraphSVXError
from graphsvx.methods import PGExplainer, registry
from graphsvx.results.explanation import Explanation
from graphsvx.utils.files import atomic_write
from graphsvx_lab.datasets import load
from graphsvx_lab.datasets.synthetic import barabasi_albert

LAYERS: dict[str, Callable[..., nn.Module]] = {
    "gcn": GCN, "gat": GAT, "gin": GIN, "sage": GraphSAGE,
}  # fmt: skip
QUESTIONS: dict[str, dict[str, Any]] = {
    "node": {"node": 3}, "nodes": {"nodes": [1, 4]}, "link": {"edge": (2, 5)},
    "graph": {"graph": True},
}  # fmt: skip
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"samples": 60},
    {"samples": 400, "feature_share": 0.3},
    {"tolerance": 0.02, "max_samples": 2000},
    {"hops": 1},
    {"order": 2},
    *({"players": kind} for kind in ("both", "nodes", "features", "edges", "subgraph_features")),
    {"players": "cells", "samples": 300},
    {"players": "edges", "samples": 60},
    {"features": "all", "samples": 300},
    *({"mask": mask, "samples": 300} for mask in ("Paired", "Random", "Smart",
                                                  "SmartSeparate", "SmarterSeparate")),
    {"mask": "All"},
    {"mask": "Connected"},
    *({"estimator": fit, "samples": 300} for fit in ("WLS", "WLR", "Lasso(k=3)")),
    {"indirect": "mean", "samples": 300},
    {"indirect": "target", "samples": 300},
    {"erase": True, "players": "nodes"},
    {"generator": "ReplaceRows", "players": "nodes", "samples": 300},
)  # fmt: skip
SCALES = ({"scale": "log_odds"}, {"scale": "value", "target": 2}, {"targets": "all"}, {"target": 1})
TYPED = ({}, {"players": "edges"}, {"players": "features"}, {"players": "relations"})
EFFORT = {"gnnexplainer": {"epochs": 20}, "xgnn": {"episodes": 10}}
# Neighbourhoods of about 100, 300 and 700 nodes: (nodes, links of a new node, the centre).
SIZES = {"hundred": (150, 3, 0), "hundreds": (400, 3, 2), "thousand": (1000, 4, 5)}
OTHER_LAYERS: dict[str, Callable[[int, int], nn.Module]] = {
    "max": lambda wide, out: GraphConv(wide, out, aggr="max"),
    "gatv2": lambda wide, out: GATv2Conv(wide, out, heads=2, concat=False),
    "transformer": lambda wide, out: TransformerConv(wide, out, heads=2, concat=False),
    "cheb": lambda wide, out: ChebConv(wide, out, K=2),
    "gen": GENConv,
}  # fmt: skip
ARRAYS = ("node_ids", "node_values", "node_errors", "feature_ids", "feature_values",
          "feature_errors", "edge_ids", "edge_values", "edge_errors")  # fmt: skip


class Pooled(nn.Module):
    """Layers on nodes, a sum over the graph and a head."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers, self.head = layers, nn.Linear(3, 3)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        out: Tensor = self.head(global_add_pool(self.layers(x, edge_index).tanh(), batch))
        return out


class Typed(nn.Module):
    """Two layers of SAGE for each edge type; scores of papers."""

    def __init__(self, edge_types: list[tuple[str, str, str]]) -> None:
        super().__init__()
        self.first, self.second = (
            HeteroConv({name: SAGEConv((-1, -1), width) for name in edge_types}) for width in (6, 3)
        )

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Tensor:
        hidden = {name: x.tanh() for name, x in self.first(x_dict, edge_index_dict).items()}
        out: Tensor = self.second(hidden, edge_index_dict)["paper"]
        return out


class Stacked(nn.Module):
    """Two layers of one kind."""

    def __init__(self, layer: Callable[[int, int], nn.Module]) -> None:
        super().__init__()
        self.first, self.second = layer(5, 8), layer(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.second(self.first(x, edge_index).tanh(), edge_index)
        return out


def random_graph(nodes: int, links: int, seed: int) -> Data:
    """A random undirected graph with five features."""
    rng = torch.Generator().manual_seed(seed)
    ends = torch.randint(0, nodes, (2, links), generator=rng)
    ends = ends[:, ends[0] != ends[1]].unique(dim=1)
    return Data(
        x=torch.randn(nodes, 5, generator=rng), edge_index=torch.cat([ends, ends.flip(0)], 1)
    )


def typed_graph(papers: int = 7, authors: int = 5, density: float = 0.4) -> HeteroData:
    """Papers and authors, with the reverse of each edge."""
    rng, data = torch.Generator().manual_seed(5), HeteroData()
    data["paper"].x = torch.randn(papers, 4, generator=rng)
    data["author"].x = torch.randn(authors, 3, generator=rng)
    drawn = torch.rand(authors, papers, generator=rng) < density
    writes = drawn.nonzero().t().contiguous()
    data["author", "writes", "paper"].edge_index = writes
    data["paper", "rev_writes", "author"].edge_index = writes.flip(0)
    return data


@dataclass(frozen=True)
class Case:
    """One explanation to record."""

    name: str
    model: Any
    data: Any
    method: Callable[[], Any]
    options: dict[str, Any]

    def record(self) -> dict[str, Any]:
        """The explanation as plain numbers, or the class of the error that it ended with."""
        try:
            return numbers(explain(self.model, self.data, method=self.method(), **self.options))
        except GraphSVXError as error:
            return {"refused": type(error).__name__}


def numbers(explanation: Explanation) -> dict[str, Any]:
    """Every value, error and id of an explanation, and what its certificate counts."""
    certificate = explanation.certificate
    outputs: dict[str, Any] = {
        "outputs": list(explanation.outputs), "bases": explanation.bases.tolist(),
        "predictions": explanation.predictions.tolist(), "exact": certificate.exact,
        "calls": certificate.calls, "fallback": certificate.fallback is not None,
    }  # fmt: skip
    for output in explanation.outputs:
        chosen = explanation.for_target(output)
        outputs |= {f"{name} {output}": getattr(chosen, name).tolist() for name in ARRAYS}
    if explanation.interactions is not None:
        outputs["interactions"] = explanation.interactions.values.tolist()
    return outputs


def trained_pgexplainer(model: nn.Module, data: Data, whole_graphs: bool) -> PGExplainer:
    """PGExplainer after a few epochs on a few questions."""
    if whole_graphs:
        return PGExplainer(epochs=3).fit(model, [data])
    return PGExplainer(epochs=3).fit(model, data, nodes=[0, 1, 2])


def cases() -> Iterator[Case]:
    """All questions by all settings, methods and scales."""
    graphs = {"small": random_graph(9, 14, 1), "large": random_graph(60, 110, 2)}
    for position, (name, make) in enumerate(LAYERS.items()):
        torch.manual_seed(position)
        layers = make(5, 6, 2, 3, act="tanh").eval()
        models = {"graph": Pooled(layers).eval()}
        size = "large" if position % 2 else "small"
        for kind, question in QUESTIONS.items():
            model, place = models.get(kind, layers), f"{name} {size} {kind}"
            for settings in SETTINGS:
                method: Callable[[], Any] = partial(registry.method, "graphsvx", **settings)
                yield Case(f"{place} {settings}", model, graphs[size], method, question)
            for scale in SCALES:
                method, options = partial(GraphSVX, samples=200), {**question, **scale}
                yield Case(f"{place} {scale}", model, graphs[size], method, options)
            if name == "gcn":
                for other in registry.names()[1:]:
                    method = partial(registry.method, other, **EFFORT.get(other, {}))
                    if other == "pgexplainer":
                        method = partial(trained_pgexplainer, model, graphs[size], kind == "graph")
                    yield Case(f"{place} {other}", model, graphs[size], method, question)
    yield from typed_cases("typed", typed_graph(), TYPED)
    few = {"samples": 400}
    yield from typed_cases("many typed", typed_graph(300, 200, 0.02), (few, *TYPED))
    yield from large_cases()
    yield from tree_cases()
    yield from molecule_cases()


def typed_cases(name: str, data: HeteroData, all_settings: Iterable[Any]) -> Iterator[Case]:
    """One node of a typed graph, by different players."""
    torch.manual_seed(9)
    model = Typed(data.edge_types).eval()
    model(data.x_dict, data.edge_index_dict)
    for settings in all_settings:
        method, question = partial(GraphSVX, **settings), {"node": ("paper", 2)}
        yield Case(f"{name} node {settings}", model, data, method, question)


def large_cases() -> Iterator[Case]:
    """Nodes with some hundred players, where derivatives, differences and logits count."""
    for size, (nodes, links, centre) in SIZES.items():
        rng = torch.Generator().manual_seed(3)
        ends = torch.tensor(sorted(barabasi_albert(nodes, links, rng))).t()
        edges = torch.cat([ends, ends.flip(0)], 1)
        data = Data(x=torch.randn(nodes, 5, generator=rng), edge_index=edges)
        for name in (*LAYERS, *OTHER_LAYERS):
            torch.manual_seed(4)
            model = LAYERS[name](5, 8, 2, 3) if name in LAYERS else Stacked(OTHER_LAYERS[name])
            budgets: tuple[dict[str, Any], ...] = ({"samples": 1000},)
            if name in ("gcn", "sage"):
                budgets += ({}, {"samples": 200})
            for budget in budgets:
                method, question = partial(GraphSVX, **budget), {"node": centre}
                yield Case(f"{size} {name} {budget}", model.eval(), data, method, question)
            method = partial(GraphSVX, samples=600)
            yield Case(f"{size} {name} value", model, data, method, question | SCALES[1])


def tree_cases() -> Iterator[Case]:
    """Nodes of a binary tree, whose games are looked up from states of nodes."""
    children = torch.arange(1, 200)
    links = torch.stack([children, (children - 1) // 2])
    x = torch.randn(200, 5, generator=torch.Generator().manual_seed(6))
    data = Data(x=x, edge_index=torch.cat([links, links.flip(0)], 1))
    for name, make in LAYERS.items():
        torch.manual_seed(7)
        model = make(5, 6, 3, 3, act="tanh").eval()
        for settings in ({}, {"players": "edges", "samples": 2000}):
            method = partial(GraphSVX, **settings)
            yield Case(f"tree {name} {settings}", model, data, method, {"node": 4})


def molecule_cases() -> Iterator[Case]:
    """Whole molecules of 10, 15, 27 and 44 atoms."""
    molecules = load("molecules-aromatic").graphs
    for position in (72, 264, 300, 240):
        molecule = Data(x=molecules[position].x, edge_index=molecules[position].edge_index)
        torch.manual_seed(8)
        model = Pooled(GIN(molecule.num_features, 6, 3, 3, act="tanh")).eval()
        for settings in ({}, {"samples": 300}, {"order": 2, "samples": 1000}):
            method, question = partial(GraphSVX, **settings), {"graph": True}
            yield Case(f"molecule {position} {settings}", model, molecule, method, question)


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """A line for each explanation that is not the same bits."""
    lines = []
    for name in sorted({*before, *now}):
        old, new = before.get(name), now.get(name)
        if old is None or new is None:
            lines.append(f"{name}: only {'now' if old is None else 'before'}")
        elif json.dumps(old) != json.dumps(new):
            lines.append(f"{name}: {', '.join(_changed(old, new))}")
    return lines


def _changed(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    for key in sorted({*old, *new}):
        first, second = old.get(key), new.get(key)
        if json.dumps(first) == json.dumps(second):
            continue
        if isinstance(first, list) and isinstance(second, list):
            a, b = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
            if a.shape == b.shape:
                yield f"{key} by {np.nanmax(np.abs(a - b), initial=0):.1e}"
            else:
                yield f"{key} {a.shape} -> {b.shape}"
        else:
            yield f"{key} {first} -> {second}"


def main(arguments: list[str]) -> int:
    """Record to a file, or compare with it; 1 if anything differs."""
    parser = argparse.ArgumentParser(prog="scripts/bench record", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--compare", action="store_true", help="list what differs from FILE")
    parser.add_argument("--only", default="", help="part of the names of the cases to explain")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    recorded = {case.name: case.record() for case in cases() if chosen.only in case.name}
    if not chosen.compare:
        with atomic_write(chosen.file) as part:
            part.write_text(json.dumps(recorded) + "\n")
        print(f"{len(recorded)} recorded")
        return 0
    before = json.loads(chosen.file.read_text())
    before = {name: record for name, record in before.items() if chosen.only in name}
    lines = differences(before, json.loads(json.dumps(recorded)))
    print(*lines, f"{len(recorded)} explained, {len(lines)} differ", sep="\n")
    return int(bool(lines))
