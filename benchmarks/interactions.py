"""scripts/bench interactions: interactions of players against shapiq.

    exact    random games of nodes and of whole graphs, all indices, against shapiq's exact
             computation on one model call for each coalition
    pairs    SII of pairs of players against model calls, beside shapiq 1.8's estimators of it (the
             environment variable SHAPIQ_PYTHON names an interpreter that has it), and how often our
             95 % error bars hold
    triples  SII of three players against model calls, and how often our 95 % error bars hold
    graphs   molecules of Mutagenicity by look-ups, default settings: relative error by the
             certificate, and processor time of one core
    nodes    the same for nodes drawn at random, with other nodes as players
    bars     nodes with 20 players or more that are exact by look-ups, sampled: how often the error
             bars of estimates hold

A call is a coalition; nobody knows the graph.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
import warnings
from math import comb
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN, GIN, GraphSAGE, global_add_pool

from benchmarks.worlds import real_games
from graphsvx import GraphSVX, explain
from graphsvx.estimators import BII, FSII, KSII, SII, STII, GaussianProcess
from graphsvx.estimators.indices import Index
from graphsvx.estimators.interactions import SetValues, exact_interactions, interactions
from graphsvx.games.base import FunctionGame
from graphsvx.masks import Paired
from graphsvx_lab import zoo

BUDGETS = (100, 200, 500, 1000)
INDICES: tuple[tuple[Index, int], ...] = (
    (KSII(), 2), (KSII(), 3), (SII(), 2), (SII(), 3), (STII(), 2), (STII(), 3), (FSII(), 2),
    (BII(), 2),
)  # fmt: skip
LAYERS = (GCN, GAT, GIN, GraphSAGE)
WORLDS: tuple[tuple[str, str | None], ...] = (
    ("tree-cycles", None), ("tree-grid", None), ("tree-grid", "gcn"), ("ba-shapes", None),
    ("cora", "gcn"), ("cora", "gat"),
)  # fmt: skip


class Pooled(nn.Module):
    """Layers on nodes, a sum and a head with a hidden layer."""

    def __init__(self, make: Any) -> None:
        super().__init__()
        self.layers = make(3, 6, 2, 5, act="tanh")
        self.head = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        out: Tensor = self.head(global_add_pool(self.layers(x, edge_index).tanh(), batch))
        return out


def random_game(seed: int) -> tuple[nn.Module, Data, bool]:
    """A model, a graph, and whether the whole graph is asked about (every third time)."""
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(5, 9))
    present = np.triu(rng.random((nodes, nodes)) < 0.4, 1)
    edges = torch.from_numpy(np.argwhere(present | present.T).T.copy())
    x = torch.from_numpy(rng.normal(size=(nodes, 3)))
    whole_graph = seed % 3 == 0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        make = LAYERS[seed % len(LAYERS)]
        model = Pooled(make) if whole_graph else make(3, 6, 2, 3, act="tanh")
    return model.double().eval(), Data(x=x, edge_index=edges), whole_graph


def exact_difference(seed: int) -> tuple[str, float]:
    """The index, and the largest difference from shapiq's exact computation."""
    import shapiq  # noqa: PLC0415  (slow to import)

    model, data, whole_graph = random_game(seed)
    index, order = INDICES[seed % len(INDICES)]
    method = GraphSVX(players="nodes", order=order, index=index)
    asked: dict[str, Any] = {"graph": True} if whole_graph else {"node": 0}
    explanation = explain(model, data, method=method, output="class", **asked)
    players = explanation.node_ids

    def game(rows: np.ndarray) -> np.ndarray:
        scores = []
        for row in np.atleast_2d(rows):
            on = torch.ones(data.num_nodes, dtype=torch.bool)
            on[players] = torch.from_numpy(np.asarray(row, dtype=bool))
            edges = data.edge_index[:, on[data.edge_index].all(0)]
            with torch.no_grad():
                out = model(data.x, edges)
            scores.append(float(out[0].softmax(-1)[explanation.target]))
        return np.array(scores)

    record = explanation.interactions
    if record is None or len(players) < order:
        return index.name, 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = shapiq.ExactComputer(game, len(players))(index.name, order)
    sets = [tuple(p for p in members if p >= 0) for members in record.members.t().tolist()]
    differences = [
        abs(value - float(expected[members]))
        for members, value in zip(sets, record.values[0].tolist(), strict=True)
    ]
    return index.name, max(differences, default=0.0)


def measure_exact(games: int = 300) -> dict[str, Any]:
    """Largest differences by index, and the number of games beyond 1e-9 (FSII 1e-7)."""
    largest: dict[str, float] = {}
    beyond = 0
    for seed in range(games):
        name, difference = exact_difference(seed)
        largest[name] = max(largest.get(name, 0.0), difference)
        beyond += difference > (1e-7 if name == "FSII" else 1e-9)
    return {"games": games, "largest": largest, "beyond": beyond}


def true_pairs(values: np.ndarray) -> np.ndarray:
    """SII of all pairs by definition, over all coalitions."""
    players = len(values).bit_length() - 1
    numbers = np.arange(len(values))
    sizes = np.array([int(n).bit_count() for n in numbers])
    weight = np.array([1 / ((players - 1) * comb(players - 2, s)) for s in range(players - 1)])
    pairs = np.zeros((players, players))
    for i in range(players):
        for j in range(i + 1, players):
            one, two = 1 << i, 1 << j
            rest = numbers[(numbers & (one | two)) == 0]
            change = values[rest | one | two] - values[rest | one] - values[rest | two]
            pairs[i, j] = pairs[j, i] = weight[sizes[rest]] @ (change + values[rest])
    return pairs


def our_sets(values: np.ndarray, calls: int, seed: int, order: int) -> SetValues:
    """SII of sets of `order` players, with standard errors."""
    players = len(values).bit_length() - 1
    table = torch.from_numpy(values)
    powers = 1 << np.arange(players)
    game = FunctionGame(lambda rows: table[torch.from_numpy(rows @ powers)][:, None], players)
    masks = Paired()(game, calls, torch.Generator().manual_seed(seed))
    scores = game.values(masks.states)
    ends = table[[0, -1]][:, None].double()
    fit = GaussianProcess()(masks, scores, ends[0], ends[1])
    return interactions(
        masks, scores, ends[0], ends[1], index=SII(), order=order, credit=fit.values.numpy().T,
        errors=fit.errors.numpy().T,
    )[-1]  # fmt: skip


def our_pairs(values: np.ndarray, calls: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """SII of pairs and standard errors, [M, M] each."""
    pairs, players = our_sets(values, calls, seed, 2), len(values).bit_length() - 1
    estimated, errors = np.zeros((2, players, players))
    for (i, j), value, error in zip(pairs.members, pairs.values, pairs.errors, strict=True):
        estimated[i, j] = estimated[j, i] = value[0]
        errors[i, j] = errors[j, i] = error[0]
    return estimated, errors


def measure_triples(
    each: int = 6, sizes: range = range(11, 14), seeds: int = 2, skip: int = 3,
    budgets: tuple[int, ...] = BUDGETS,
) -> dict[str, Any]:  # fmt: skip
    """Median relative error of all triples by calls, and coverage of our bars."""
    tables = [np.asarray(game.values, dtype=np.float64) for game in real_games(each, sizes, skip)]
    errors: dict[str, float] = {}
    coverage: dict[str, float] = {}
    for calls in budgets:
        missed, inside = [], []
        for table in tables:
            listed = np.arange(len(table).bit_length() - 1)
            rows = (np.arange(len(table))[:, None] >> listed & 1).astype(bool)
            *_, truth = exact_interactions(
                rows, ~rows, table[:, None], index=SII(), order=3, listed=listed
            )
            for seed in range(seeds):
                triples = our_sets(table, calls, seed, 3)
                missed.append(_relative_error(triples.values, truth.values))
                difference = np.abs(triples.values - truth.values)
                inside.append(difference <= 1.96 * triples.errors + 1e-9)
        errors[str(calls)] = median(missed)
        coverage[str(calls)] = float(np.concatenate(inside).mean())
    return {"games": len(tables), "seeds": seeds, "errors": errors, "coverage": coverage}


def measure_pairs(
    each: int = 6, sizes: range = range(11, 14), seeds: int = 2, skip: int = 3,
    budgets: tuple[int, ...] = BUDGETS,
) -> dict[str, Any]:  # fmt: skip
    """Median relative error of all pairs by estimator and calls; coverage of our bars."""
    tables = [np.asarray(game.values, dtype=np.float64) for game in real_games(each, sizes, skip)]
    asked = [(t, calls, seed) for calls in budgets for t in tables for seed in range(seeds)]
    truth = {id(table): true_pairs(table) for table in tables}
    ours = [our_pairs(*game) for game in asked]
    estimates: dict[str, list[Any]] = {"graphsvx": [pairs for pairs, _ in ours], **_peers(asked)}
    errors = {
        name: {
            str(calls): median(
                _relative_error(pairs, truth[id(game[0])])
                for game, pairs in zip(asked, found, strict=True)
                if game[1] == calls and pairs is not None
            )
            for calls in budgets
            if any(g[1] == calls and p is not None for g, p in zip(asked, found, strict=True))
        }
        for name, found in estimates.items()
    }  # fmt: skip
    coverage = {}
    for calls in budgets:
        inside = [
            np.abs(pairs - truth[id(game[0])])[np.triu_indices(len(pairs), 1)]
            <= 1.96 * bars[np.triu_indices(len(pairs), 1)] + 1e-9
            for game, (pairs, bars) in zip(asked, ours, strict=True)
            if game[1] == calls
        ]
        coverage[str(calls)] = float(np.concatenate(inside).mean())
    return {"games": len(tables), "seeds": seeds, "errors": errors, "coverage": coverage}


def _relative_error(pairs: np.ndarray, truth: np.ndarray) -> float:
    return float(np.linalg.norm(pairs - truth) / np.linalg.norm(truth))


def _peers(asked: list[tuple[np.ndarray, int, int]]) -> dict[str, list[Any]]:
    interpreter = os.environ.get("SHAPIQ_PYTHON")
    if interpreter is None:
        return {}
    worker = Path(__file__).with_name("shapiq_pairs_worker.py")
    with tempfile.TemporaryDirectory() as folder:
        games, results = Path(folder) / "games", Path(folder) / "results"
        games.write_text(json.dumps([(values.tolist(), *rest) for values, *rest in asked]))
        # -P: modules of this folder must not hide installed packages of the same name.
        subprocess.run([interpreter, "-P", str(worker), str(games), str(results)], check=True)
        pairs_by_name: dict[str, list[Any]] = json.loads(results.read_text())
    return {
        f"shapiq {name}": [None if pairs is None else np.array(pairs) for pairs in estimates]
        for name, estimates in pairs_by_name.items()
    }


def molecule_ids(count: int) -> list[int]:
    """The molecules that are judged; settings are chosen on others."""
    graphs = len(zoo.ensure("mutag").dataset.graphs)
    return [int(i) for i in np.random.default_rng(2027).permutation(graphs)[:count]]


Row = tuple[int, int, bool, float, float]
"""(number, players, whether it is exact, relative error, seconds) of one explanation."""


def timed(number: int, model: nn.Module, data: Data, **question: Any) -> Row:
    """One explanation with nodes as players, with default settings."""
    start = time.process_time()
    explanation = explain(model, data, method=GraphSVX(players="nodes"), **question)
    taken = time.process_time() - start
    credit, certificate = explanation.node_credit.values, explanation.certificate
    size = float(credit.norm())
    error = float(explanation.errors.norm()) / size if size else 0.0
    return number, credit.shape[1], certificate.exact, error, taken


def counted(rows: list[Row], seconds: float) -> dict[str, Any]:
    """How many are exact, below 1 % of relative error, in time, and both of the last two."""
    accurate = [is_exact or error < 0.01 for _, _, is_exact, error, _ in rows]
    quick = [taken <= seconds for *_, taken in rows]
    return {
        "exact": sum(is_exact for _, _, is_exact, _, _ in rows),
        "accurate": sum(accurate),
        "quick": sum(quick),
        "both": sum(a and q for a, q in zip(accurate, quick, strict=True)),
        "rows": rows,
    }


def measure_graphs(
    models: tuple[str, ...] = ("graphconv", "gin"), count: int = 40, seconds: float = 0.5
) -> dict[str, Any]:
    """Molecules by model."""
    figures = {}
    for name in models:
        trained = zoo.ensure("mutag", name)
        graphs, numbers = trained.dataset.graphs, molecule_ids(count)
        rows = [  # the first one warms up
            timed(i, trained.model, graphs[i], graph=True) for i in [numbers[0], *numbers]
        ]
        figures[name] = counted(rows[1:], seconds)
    return figures


def measure_nodes(
    worlds: tuple[tuple[str, str | None], ...] = WORLDS, count: int = 100, seconds: float = 0.5
) -> dict[str, Any]:
    """Nodes by data set and model."""
    figures = {}
    for name, model in worlds:
        trained = zoo.ensure(name, model)
        data = trained.dataset.graph
        nodes = np.random.default_rng(2028).permutation(data.num_nodes)[:count].tolist()
        rows = [timed(v, trained.model, data, node=v) for v in [nodes[0], *nodes]]
        figures[f"{name} {model or ''}".strip()] = counted(rows[1:], seconds)
    return figures


def measure_bars(each: int = 6, seeds: int = 2, players: int = 20) -> dict[str, Any]:
    """Differences from exact values over standard errors: root mean square, and coverage."""
    ratios: list[float] = []
    for name, model in WORLDS[:3] + WORLDS[4:]:
        trained = zoo.ensure(name, model)
        data, found = trained.dataset.graph, 0
        for node in np.random.default_rng(3).permutation(data.num_nodes).tolist():
            exact = explain(trained.model, data, node=node, method=GraphSVX(players="nodes"))
            truth = exact.node_credit.values
            if not exact.certificate.exact or truth.shape[1] < players:
                continue
            method = GraphSVX(players="nodes", mask=Paired())
            for seed in range(seeds):
                sampled = explain(trained.model, data, node=node, method=method, seed=seed)
                errors = sampled.node_credit.errors.clamp(min=1e-12)
                ratios += ((sampled.node_credit.values - truth) / errors).flatten().tolist()
            found += 1
            if found == each:
                break
    size = np.abs(ratios)
    return {
        "values": len(size), "root mean square": float(np.sqrt((size**2).mean())),
        "coverage": float((size <= 1.96).mean()),
    }  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench interactions", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a look that it works, no figures")
    parser.add_argument("--only", choices=("exact", "pairs", "triples", "graphs", "nodes", "bars"))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    figures: dict[str, Any] = {}
    if chosen.only in (None, "exact"):
        figures["exact"] = measure_exact(8 if chosen.quick else 300)
        print(json.dumps(figures["exact"], indent=1))
    if chosen.only in (None, "pairs"):
        little = {"each": 1, "seeds": 1, "skip": 0, "budgets": (100,)}
        figures["pairs"] = measure_pairs(**(little if chosen.quick else {}))
        print(json.dumps(figures["pairs"], indent=1))
    if chosen.only in (None, "triples"):
        little = {"each": 1, "seeds": 1, "skip": 0, "budgets": (100,)}
        figures["triples"] = measure_triples(**(little if chosen.quick else {}))
        print(json.dumps(figures["triples"], indent=1))
    if chosen.only in (None, "graphs"):
        little = {"models": ("graphconv",), "count": 2}
        figures["graphs"] = measure_graphs(**(little if chosen.quick else {}))
        print(json.dumps(figures["graphs"]))
    if chosen.only in (None, "nodes"):
        little = {"worlds": (("tree-cycles", None),), "count": 2}
        figures["nodes"] = measure_nodes(**(little if chosen.quick else {}))
        print(json.dumps(figures["nodes"]))
    if chosen.only in (None, "bars"):
        little = {"each": 1, "seeds": 1, "players": 4}
        figures["bars"] = measure_bars(**(little if chosen.quick else {}))
        print(json.dumps(figures["bars"]))
    if chosen.json:
        chosen.json.write_text(json.dumps(figures, indent=1) + "\n")
