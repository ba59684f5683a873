"""scripts/bench typed: typed graphs, as ratios in one run.

    speed    an explanation of papers of ACM, against one call a coalition on the whole graph and
             against PyG's GNNExplainer for HeteroData
    truth    typed-motifs, where the deciding items and relation are planted: the share found
             among the first k, of ours, of the baselines, of PyG's GNNExplainer and of chance

Plain calls and epochs are measured on a few and multiplied by their number, which the table says.
Processor time of the one thread.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch
from torch_geometric.data import HeteroData
from torch_geometric.explain import Explainer, GNNExplainer

from graphsvx import GraphSVX, explain
from graphsvx.methods import Greedy, IntegratedGradients, Random, Saliency
from graphsvx.results.explanation import Explanation
from graphsvx_lab import zoo

CALLS = 1000
EPOCHS = 100
MEASURED_EPOCHS = 5
BASELINES = {
    "Greedy": Greedy(players="nodes"),
    "IntegratedGradients": IntegratedGradients(),
    "Saliency": Saliency(),
    "Random": Random(players="nodes"),
}
_CONFIG = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}


def seconds(run: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    result = run()
    return time.process_time() - start, result


def without(data: HeteroData, absent: dict[str, torch.Tensor]) -> dict[Any, torch.Tensor]:
    """Edges between nodes that are there, as a coalition of a plain loop has them."""
    edges = {}
    for name, edge_index in data.edge_index_dict.items():
        keep = ~absent[name[0]][edge_index[0]] & ~absent[name[2]][edge_index[1]]
        edges[name] = edge_index[:, keep]
    return edges


def plain_call(model: torch.nn.Module, data: HeteroData, explanation: Explanation) -> float:
    """Seconds of one coalition by a call on the whole graph, the median of five."""
    rng = torch.Generator().manual_seed(0)
    times = []
    for _ in range(5):
        absent = {k: torch.zeros(data[k].num_nodes, dtype=torch.bool) for k in data.node_types}
        for name, credit in explanation.nodes.items():
            off = torch.rand(len(credit.ids), generator=rng) < 0.5
            absent[name][credit.ids[off]] = True
        with torch.no_grad():
            took, _ = seconds(lambda a=absent: model(data.x_dict, without(data, a)))
        times.append(took)
    return median(times)


def pyg(model: torch.nn.Module, epochs: int, edges: bool = True) -> Explainer:
    return Explainer(
        model, GNNExplainer(epochs=epochs), explanation_type="model", node_mask_type="object",
        edge_mask_type="object" if edges else None, model_config=_CONFIG,
    )  # fmt: skip


def speed(quick: bool) -> list[dict[str, Any]]:
    trained = zoo.ensure("acm")
    model, data = trained.model, trained.dataset.graph
    method = GraphSVX(players="nodes", samples=CALLS)
    papers = trained.dataset.split.test.tolist()[: 2 if quick else 6]
    explain(model, data, node=("paper", papers[0]), method=method)  # the checks of a first one
    rows = []
    for paper in papers:
        ours, explanation = seconds(
            lambda p=paper: explain(model, data, node=("paper", p), method=method)
        )
        calls = sum(game.calls for game in explanation.certificate.games)
        each = plain_call(model, data, explanation)
        row = {
            "paper": paper, "players": explanation.node_credit.players, "calls": calls,
            "ours": ours, "one call a coalition": each * calls, "ratio": each * calls / ours,
        }  # fmt: skip
        if not rows:
            took, _ = seconds(
                lambda p=paper: pyg(model, MEASURED_EPOCHS)(
                    data.x_dict, data.edge_index_dict, index=p
                )
            )
            row["GNNExplainer"] = took * EPOCHS / MEASURED_EPOCHS
            row["GNNExplainer ratio"] = took * EPOCHS / MEASURED_EPOCHS / ours
        rows.append(row)
    return rows


def truth(quick: bool) -> dict[str, dict[str, float]]:
    trained = zoo.ensure("typed-motifs")
    model, data, dataset = trained.model, trained.dataset.graph, trained.dataset
    planted = dataset.truth
    methods = {"ours": GraphSVX(players="nodes"), **BASELINES}
    found: dict[str, list[float]] = {name: [] for name in (*methods, "GNNExplainer", "chance")}
    relation: dict[str, list[float]] = {"ours": [], "GNNExplainer": []}
    relations = GraphSVX(players="relations")
    for user in dataset.split.test.tolist()[: 3 if quick else 20]:
        true = set(planted.nodes[user])
        for name, method in methods.items():
            explanation = explain(model, data, node=("user", user), method=method)
            first = [explanation.types.node(r.id) for r in explanation.top_nodes(len(true))]
            found[name].append(len(true & set(first)) / len(true))
        found["chance"].append(len(true) / explanation.node_credit.players)
        credit = explain(model, data, node=("user", user), method=relations).by_relation()
        relation["ours"].append(max(credit, key=credit.get) == planted.relation)
        asked = (data.x_dict, data.edge_index_dict)
        try:
            masks = pyg(model, EPOCHS)(*asked, index=user)
        except ValueError:  # an edge type does not reach this user, which PyG refuses
            masks = pyg(model, EPOCHS, edges=False)(*asked, index=user)
        scored = [
            (float(value), (name, i))
            for name, mask in masks.collect("node_mask").items()
            for i, value in enumerate(mask[:, 0])
            if (name, i) != ("user", user)
        ]
        best = {node for _, node in sorted(scored, reverse=True)[: len(true)]}
        found["GNNExplainer"].append(len(true & best) / len(true))
        if not masks.collect("edge_mask", allow_empty=True):
            continue
        sums = {name: float(mask.sum()) for name, mask in masks.collect("edge_mask").items()}
        together = {
            name: value + sums.get((name[2], f"rev_{name[1]}", name[0]), 0.0)
            for name, value in sums.items()
            if not name[1].startswith("rev_")
        }
        relation["GNNExplainer"].append(max(together, key=together.get) == planted.relation)
    return {
        "nodes": {name: mean(values) for name, values in found.items()},
        "relation": {name: mean(values) for name, values in relation.items() if values},
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench typed", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a look that it works, no figures")
    parser.add_argument("--only", choices=("speed", "truth"), help="one of the two")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    if chosen.only != "truth":
        results["speed"] = speed(chosen.quick)
        for row in results["speed"]:
            print({k: round(v, 2) if isinstance(v, float) else v for k, v in row.items()})
    if chosen.only != "speed":
        results["truth"] = truth(chosen.quick)
        print(results["truth"])
    if chosen.json:
        chosen.json.write_text(json.dumps(results, indent=1) + "\n")
