"""Models for measures that need other ones than the explained: of cut graphs, of what is left.

fine_tuned         the explained model, trained further on randomly cut graphs, so that such
                   graphs are nothing new to it
robust_fidelity    F-Fidelity (Zheng et al. 2024): fidelity of that model, with a random part of
                   the explanation (or of the rest) cut off each time
accuracy_without   ROAR (Hooker et al. 2019): the accuracy of a new model of the graphs without
                   their most important nodes; the faster it falls, the better the explainer
accuracy_of_cut    of a threshold on the number of edges that this cuts: where it is high, the cut
                   itself gives the class away, and a new model need not read what is left
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import lru_cache, partial
from statistics import fmean

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch_geometric.data import Batch, Data
from torch_geometric.utils import dropout_edge

from graphsvx.metrics.faithful import Fidelity
from graphsvx.metrics.select import top_keys
from graphsvx.results.credit import Ranking
from graphsvx.results.explanation import Explanation
from graphsvx_lab import zoo
from graphsvx_lab.datasets.base import DataSet, Split, generator
from graphsvx_lab.metrics.effects import score_without
from graphsvx_lab.zoo import Settings, Trained


@lru_cache(maxsize=2)
def fine_tuned(trained: Trained, steps: int, cut: float) -> nn.Module:
    """A copy of the model, trained for `steps` more with up to a share `cut` of the edges cut."""
    data, net = trained.dataset, deepcopy(trained.model).train()
    part = data.split.train
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    with torch.random.fork_rng(devices=[]):
        torch.random.set_rng_state(generator(data.seed, data.name, "cut").get_state())
        for _ in range(steps):
            edges_kept = partial(dropout_edge, p=cut * float(torch.rand(1)), force_undirected=True)
            if data.task == "node":
                logits = net(data.graph.x, edges_kept(data.graph.edge_index)[0])[part]
                labels = data.labels[part]
            else:
                batch_ids = part[torch.randperm(len(part))[:256]].tolist()
                batch = Batch.from_data_list([data.graphs[graph] for graph in batch_ids])
                logits = net(batch.x, edges_kept(batch.edge_index)[0], batch.batch)
                labels = batch.y
            optimizer.zero_grad()
            cross_entropy(logits, labels).backward()  # type: ignore[no-untyped-call] # torch leaves it without types
            optimizer.step()
    return net.eval()


def robust_fidelity(
    explanation: Explanation, trained: Trained, query: int, *, by: Ranking = "value",
    top: float = 0.2, part: float = 0.5, draws: int = 10, steps: int = 20, cut: float = 0.5,
) -> Fidelity:  # fmt: skip
    """Mean fall of the probability when a random `part` of the top nodes, or of the others, is cut.

    Args:
        explanation: of nodes; its `top` (a number, or a share below 1) are the explanation.
        trained: the explained model, which is trained further (`fine_tuned` with `steps`, `cut`).
        query: the explained node, or the position of the graph in its data set.
        by: rank nodes by signed value or by magnitude.
        part: share of the nodes that a draw cuts off.
        draws: random parts, of which the mean counts.
        steps: of further training.
        cut: largest share of the edges that is cut in these.

    """
    robust = replace(trained, model=fine_tuned(trained, steps, cut))
    score = score_without(robust, query, explanation.target)
    players = explanation.node_ids.tolist()
    top_nodes = set(top_keys(explanation, top, by, "nodes"))
    rng, full = generator(query, "robust", trained.dataset.name), score(())

    def fall(nodes: Sequence[int]) -> float:
        count = round(part * len(nodes))
        parts = [torch.randperm(len(nodes), generator=rng)[:count] for _ in range(draws)]
        return full - fmean(score([nodes[i] for i in ids.tolist()]) for ids in parts)

    return Fidelity(
        plus=fall([node for node in players if node in top_nodes]),
        minus=fall([node for node in players if node not in top_nodes]),
    )


def accuracy_without(
    data: DataSet, tops: Mapping[int, Iterable[object]], settings: Settings, seed: int, splits: int
) -> float:
    """Test accuracy of a model trained on graphs whose `tops` are cut off and at the mean.

    Mean over `splits` (60/10/30) of the graphs that `tops` names.
    """
    graphs = []
    for number, nodes in tops.items():
        graph = data.graphs[number].clone()
        removed = _cut_off(graph, nodes)
        graph.edge_index = graph.edge_index[:, ~removed[graph.edge_index].any(0)]
        graph.x = torch.where(removed[:, None], graph.x.mean(0), graph.x)
        graphs.append(graph)
    accuracies = []
    for split in _splits(len(graphs), seed, splits):
        less = replace(data, graphs=tuple(graphs), split=split, truth=None)
        accuracies.append(zoo.train(less, seed=seed, settings=settings).card.accuracy["test"])
    return fmean(accuracies)


def accuracy_of_cut(
    data: DataSet, tops: Mapping[int, Iterable[object]], seed: int, splits: int
) -> float:
    """Test accuracy of the best threshold on the number of edges at the `tops`, for two classes.

    The same splits as those of `accuracy_without`; the threshold is that of the training part.
    """
    counts = torch.tensor([
        int(_cut_off(data.graphs[graph], nodes)[data.graphs[graph].edge_index].any(0).sum())
        for graph, nodes in tops.items()])  # fmt: skip
    labels, accuracies = data.labels[list(tops)] == 1, list[float]()
    for split in _splits(len(counts), seed, splits):
        rules = [(limit, above) for limit in (-1, *counts.tolist()) for above in (True, False)]
        right = {rule: ((counts > rule[0]) == rule[1]) == labels for rule in rules}
        best = max(rules, key=lambda rule: int(right[rule][split.train].sum()))
        accuracies.append(float(right[best][split.test].double().mean()))
    return fmean(accuracies)


def _cut_off(graph: Data, nodes: Iterable[object]) -> Tensor:
    """Boolean [nodes]: those that are cut off."""
    is_cut = torch.zeros(int(graph.num_nodes), dtype=torch.bool)
    is_cut[[node for node in nodes if isinstance(node, int)]] = True
    return is_cut


def _splits(count: int, seed: int, splits: int) -> Iterator[Split]:
    """Random parts of 60, 10 and 30 %."""
    train, val = round(0.6 * count), round(0.7 * count)
    for name in map(str, range(splits)):
        order = torch.randperm(count, generator=generator(seed, "retrain split", name))
        yield Split(order[:train], order[train:val], order[val:])
