"""Comparison with ground truth: accuracy of the top k under two protocols, AUROC, correlation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score
from torch import Tensor

from graphsvx.errors import InputError
from graphsvx.metrics import Key, Level, scores, strength, top_positions
from graphsvx.results.credit import Ranking
from graphsvx.results.explanation import Explanation
from graphsvx_lab.datasets.base import NodeTruth, draw
from graphsvx_lab.zoo import Trained

Protocol = Literal["strict", "paper"]


@dataclass(frozen=True)
class PaperProtocol:
    """How the authors' published script scores one data set.

    It scores the first node of each motif, whatever the model predicts for it. The truth is the
    `size` node ids that follow; accuracy is the number of hits among the `top` players (by signed
    value), divided by `divisor`.
    """

    scored: tuple[int, ...]
    size: int
    top: int
    divisor: int
    level: Literal["node", "graph"] = "node"

    def truth(self, node: int) -> frozenset[int]:
        """The next `size` node ids (of a graph set: nodes 20-24)."""
        first = 20 if self.level == "graph" else node + 1
        return frozenset(range(first, first + self.size))


PAPER_PROTOCOLS: dict[str, PaperProtocol] = {
    "ba-shapes": PaperProtocol(tuple(range(400, 500, 5)), 4, 5, 4),
    "ba-community": PaperProtocol((*range(400, 425, 5), *range(1100, 1125, 5)), 4, 5, 4),
    "tree-cycles": PaperProtocol(tuple(range(511, 691, 6)), 5, 6, 5),
    # 7 of the grid's 8 other nodes are truth, the top 6 count, the divisor is 5: it can exceed 1.
    "tree-grid": PaperProtocol(tuple(range(511, 655, 9)), 7, 6, 5),
    "ba-2motifs": PaperProtocol((), 5, 5, 5, level="graph"),
}


def accuracy(
    explanations: Explanation | Iterable[Explanation],
    truth: Any = None,
    *,
    protocol: Protocol = "strict",
    dataset: str | None = None,
    by: Ranking = "value",
    level: Level = "nodes",
) -> float:
    """Share of the truth among the best-ranked players, averaged over explanations.

    Ties count with their expected value under random tie-breaking, so an explanation with equal
    credit everywhere scores as chance does.

    Args:
        explanations: a single explanation or an iterable of them.
        truth: the ids (or edges) of the ground truth: one set for all explanations, a sequence
            with one set for each, or a `NodeTruth` of `graphsvx_lab.datasets`. The explained node
            itself is left out.
        protocol: "strict": the top k, k = size of the truth, hits / k. "paper": the authors'
            script (`PAPER_PROTOCOLS[dataset]`); give `dataset`, not `truth`.
        dataset: name of the data set, for "paper".
        by: rank signed values, as the script does, or magnitudes.
        level: score nodes, edges or features ("strict" only).

    Raises:
        InputError: arguments of the other protocol, or an explanation without ground truth.

    """
    listed = as_list(explanations)
    if protocol == "paper":
        if truth is not None or level != "nodes":
            raise InputError('protocol="paper" fixes truth and level (nodes): leave them out')
        rules = _paper_protocol(dataset)
        truths = [_paper_truth(rules, dataset, explanation) for explanation in listed]
        tops = [(rules.top, rules.divisor)] * len(listed)
    elif protocol == "strict":
        if dataset is not None:
            raise InputError('dataset is for protocol="paper"; "strict" takes truth= instead')
        truths = _truth_sets(truth, listed, level)
        tops = [(len(expected), len(expected)) for expected in truths]
    else:
        raise InputError(f'protocol must be "strict" or "paper", got {protocol!r}')
    results = []
    for explanation, expected, (top, divisor) in zip(listed, truths, tops, strict=True):
        if not expected:
            raise InputError(
                f"{explanation.title} has an empty truth; score only explanations with ground truth"
            )
        keys, values = scores(explanation, level)
        results.append(expected_hits(keys, strength(values, by), expected, top) / divisor)
    return sum(results) / len(results)


def _paper_protocol(dataset: str | None) -> PaperProtocol:
    if dataset not in PAPER_PROTOCOLS:
        raise InputError(f"dataset must be one of {sorted(PAPER_PROTOCOLS)}, got {dataset!r}")
    return PAPER_PROTOCOLS[dataset]


def _paper_truth(rules: PaperProtocol, dataset: str | None, explanation: Explanation) -> set[Key]:
    if explanation.kind != rules.level:
        raise InputError(
            f"the paper's protocol for {dataset} scores {rules.level}s, "
            f"got an explanation of a {explanation.kind}"
        )
    node = explanation.centres[0] if explanation.centres else -1
    if rules.level == "node" and node not in rules.scored:
        raise InputError(
            f"the paper's protocol for {dataset} scores nodes {rules.scored[0]}.."
            f"{rules.scored[-1]} in steps, got node {node}; see scored_nodes()"
        )
    return set(rules.truth(node))


def scored_nodes(
    protocol: Protocol,
    *,
    dataset: str | None = None,
    candidates: Tensor | Sequence[int] | None = None,
    predicted: Tensor | None = None,
    labels: Tensor | None = None,
) -> list[int]:
    """The nodes that a protocol scores.

    "paper": the first node of each motif of `dataset`, whatever the model predicts. "strict":
    every candidate (all motif nodes: `NodeTruth.nodes()`) that the model classifies correctly.

    Args:
        protocol: "paper" or "strict".
        dataset: name of the data set, for "paper".
        candidates: ids of nodes, for "strict".
        predicted: class of each node by the model, [nodes], for "strict".
        labels: class of each node, [nodes], for "strict".

    Returns:
        Ids of nodes.

    Raises:
        InputError: an argument that the protocol needs is missing or unknown.

    """
    if protocol == "paper":
        return list(_paper_protocol(dataset).scored)
    if candidates is None or predicted is None or labels is None:
        raise InputError('protocol="strict" needs candidates, predicted and labels')
    nodes = torch.as_tensor(candidates)
    return nodes[predicted[nodes] == labels[nodes]].tolist()


def auroc(
    explanations: Explanation | Iterable[Explanation],
    truth: Any,
    *,
    by: Ranking = "value",
    level: Level = "nodes",
) -> float:
    """Probability that a player of the truth outranks another one, averaged over explanations.

    Args:
        explanations: a single explanation or an iterable of them. All players count; players of the
            truth that are missing from an explanation have credit 0.
        truth: as for `accuracy`.
        by: rank signed values or magnitudes.
        level: score nodes, edges or features.

    Returns:
        Area under the ROC curve. Explanations with only one class of players (all in the truth, or
        none) are left out; NaN if no explanation remains.

    Computed by scikit-learn. PyG's `groundtruth_metrics` gives the same
    figure but needs torchmetrics, and applies a sigmoid in single precision first, which can
    create ties.
    """
    listed = as_list(explanations)
    results = []
    for explanation, expected in zip(listed, _truth_sets(truth, listed, level), strict=True):
        keys, values = scores(explanation, level)
        strengths = strength(values, by).tolist()
        missing = expected.difference(keys)
        labels = [key in expected for key in keys] + [True] * len(missing)
        if 0 < sum(labels) < len(labels):
            results.append(float(roc_auc_score(labels, strengths + [0.0] * len(missing))))
    return sum(results) / len(results) if results else float("nan")


def correlation(explanation: Explanation, contributions: Tensor, *, by: Ranking = "value") -> float:
    """Pearson's correlation of the values of nodes with their true contributions [nodes].

    Args:
        explanation: of a whole graph; nodes without credit have 0.
        contributions: the truth, [nodes].
        by: signed values or magnitudes.

    Returns:
        The correlation; 0 where all values are equal, which says nothing.

    """
    values = torch.zeros_like(contributions, dtype=torch.float64)
    values[explanation.node_ids] = strength(explanation.node_values.double(), by)
    if float(values.std()) < 1e-12:
        return 0.0
    return float(torch.corrcoef(torch.stack([values, contributions.double()]))[0, 1])


PARTS = ("own motif", "other motifs", "base graph", "own features")
NEIGHBOURS = "direct neighbours"
"""Where credit goes."""


def credit_shares(explanation: Explanation, truth: NodeTruth) -> dict[str, float]:
    """Credit by where it goes (`PARTS`, `NEIGHBOURS`), and `explainable`, what these are parts of.

    Args:
        explanation: of a node.
        truth: which nodes are of its motif.

    Returns:
        Sums by part, and `explainable`: prediction - base, or the sum of a mask's entries, which
        has no base value.

    """
    motif, distance = truth.motif(explanation.centres[0]), explanation.field.distances
    shares = dict.fromkeys((*PARTS, NEIGHBOURS), 0.0)
    for node, credit in explanation.nodes.items():
        shares[PARTS[0 if node in motif else 1 if int(truth.motif_of[node]) >= 0 else 2]] += credit
        shares[NEIGHBOURS] += credit if distance[node] == 1 else 0.0
    # A mask over edges and features: only its nodes say where credit goes.
    if not explanation.edge_credit.players:
        shares[PARTS[3]] = float(explanation.feature_values.sum())
    games = explanation.certificate.games
    has_base = bool(games) and games[0].r2 is not None
    total = explanation.prediction - explanation.base if has_base else sum(shares[p] for p in PARTS)
    return {**shares, "explainable": total}


def _truth_sets(truth: Any, explanations: list[Explanation], level: Level) -> list[set[Key]]:
    """The ground truth of each explanation, without the explained nodes."""
    if hasattr(truth, "motif") and hasattr(truth, "motif_edges"):
        truth_sets = [_motif_truth(truth, explanation, level) for explanation in explanations]
    elif truth is None:
        raise InputError("truth must be given: a set of ids, one set each, or a NodeTruth")
    elif isinstance(truth, Collection) and truth and not isinstance(truth, (set, frozenset)):
        truth_sets = [set(_keys(members)) for members in truth]
        if len(truth_sets) != len(explanations):
            raise InputError(
                f"truth must have one set for each of {len(explanations)} explanations, "
                f"got {len(truth_sets)}"
            )
    else:
        truth_sets = [set(_keys(truth))] * len(explanations)
    if level != "nodes":
        return truth_sets
    return [members - set(e.centres) for members, e in zip(truth_sets, explanations, strict=True)]


def _keys(ids: Any) -> list[Key]:
    if isinstance(ids, Tensor):
        return ids.nonzero()[:, 0].tolist() if ids.dtype == torch.bool else ids.tolist()
    if not isinstance(ids, Collection) or isinstance(ids, (str, bytes)):
        raise InputError(
            "truth must be a set of ids, a sequence with one set for each explanation, or a "
            f"NodeTruth, got {type(ids).__name__}"
        )
    return list(ids)


def _motif_truth(truth: Any, explanation: Explanation, level: Level) -> set[Key]:
    if explanation.kind != "node":
        raise InputError(
            f"a NodeTruth applies to explanations of nodes, got one of a {explanation.kind}"
        )
    if level == "features":
        return set(truth.informative_features or ())
    node = explanation.centres[0]
    return set(truth.motif_edges(node) if level == "edges" else truth.motif(node))


def expected_hits(keys: list[Key], strengths: Tensor, truth: Collection[Key], top: int) -> float:
    """Expected number of the `top` players that are in the truth, over all ways to break ties."""
    if len(keys) <= top:
        return float(sum(key in truth for key in keys))
    last = strengths.sort(descending=True).values[top - 1]
    hit = torch.tensor([key in truth for key in keys])
    above, tied = strengths > last, strengths == last
    open_places = top - int(above.sum())  # of the tied players
    return float((hit & above).sum()) + open_places * float((hit & tied).sum()) / float(tied.sum())


def as_list(explanations: Any) -> list[Explanation]:
    """A single explanation or an iterable of explanations as a list."""
    listed = [explanations] if isinstance(explanations, Explanation) else list(explanations)
    if not listed:
        raise InputError("there must be at least one explanation, got none")
    return listed


def rank_agreement(values: Tensor, reference: Tensor, top: int) -> tuple[float, float]:
    """Spearman's correlation (0 where all values are equal), and the share of a common `top`."""
    first, second = (set(top_positions(v, top, "value").tolist()) for v in (values, reference))
    correlation = spearmanr(values, reference).statistic if float(values.std()) else 0.0
    return float(correlation), len(first & second) / len(second)


HOUSES, MOLECULES = 100, slice(100, 120)
"""The authors' script scores the first houses of BA-2motifs, and these of MUTAG's mutagens with a
group, in the order of the files."""


def scored_by_the_paper(trained: Trained) -> tuple[int, ...]:
    """The nodes or graphs of the authors' script, whatever the model predicts for them."""
    data = trained.dataset
    if data.task == "node":
        return tuple(scored_nodes("paper", dataset=data.name))
    return data.graph_truth.graphs()[MOLECULES] if data.name == "mutag" else tuple(range(HOUSES))


def classified_right(trained: Trained) -> list[int]:
    """Everything with a known explanation that the model classifies right."""
    data = trained.dataset
    if data.task == "graph":
        return graphs_right(trained, data.graph_truth.graphs())
    nodes = data.node_truth.nodes()
    return nodes[trained.predicted_classes()[nodes] == data.labels[nodes]].tolist()


def graphs_right(trained: Trained, graphs: Sequence[int]) -> list[int]:
    """Those of the graphs that the model classifies right."""
    right = trained.predicted_classes(graphs) == trained.dataset.labels[list(graphs)]
    return [graph for graph, is_right in zip(graphs, right.tolist(), strict=True) if is_right]


def classified_alike(models: Sequence[Trained], count: int) -> list[int]:
    """Test nodes of the first model's data for which all models predict the same class."""
    classes, data = torch.stack([m.predicted_classes() for m in models]), models[0].dataset
    same = data.split.test[(classes == classes[0]).all(0)[data.split.test]]
    return sorted(draw(same.tolist(), count, data.seed, "consistency"))
