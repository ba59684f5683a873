"""Against ground truth: accuracy at top-k under two protocols that are never mixed, and AUROC."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from graphsvx.errors import InputError
from graphsvx.metrics.select import Key, Level, expected_hits, many, scores, strength
from graphsvx.results.explanation import Explanation, Ranking

Protocol = Literal["strict", "paper"]


@dataclass(frozen=True)
class PaperProtocol:
    """How the authors' published script scores one data set.

    Scored are the first nodes of the motifs, whatever the model predicts for them; the truth are
    the ids that follow; the top `top` (by signed value) are taken and hits divided by `divisor`.
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
    # Seven of the grid's eight others are truth, six are taken, five divide: it can pass 1.
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

    Among tied players each is as likely to be taken, and the average over that is what counts: an
    explainer that says nothing scores as chance does.

    Args:
        explanations: one, or several.
        truth: the ids (or edges) that matter: one set for all, a sequence with one set each, or a
            `NodeTruth` of `graphsvx.datasets`. The explained node itself never counts.
        protocol: "strict": the top k, k = size of the truth, hits / k. "paper": the authors'
            script (`PAPER_PROTOCOLS[dataset]`); give `dataset`, not `truth`.
        dataset: name of the data set, for "paper".
        by: rank signed values, as the script does, or magnitudes.
        level: score nodes, edges or features ("strict" only).

    """
    listed = many(explanations)
    if protocol == "paper":
        if truth is not None or level != "nodes":
            raise InputError('protocol="paper" fixes truth and level (nodes): leave them out')
        return _paper(listed, dataset, by)
    if protocol != "strict":
        raise InputError(f'protocol must be "strict" or "paper", got {protocol!r}')
    if dataset is not None:
        raise InputError('dataset is for protocol="paper"; "strict" is given the truth')
    results = []
    for explanation, expected in zip(listed, _each(truth, listed, level), strict=True):
        if not expected:
            raise InputError(
                f"{explanation.title} has an empty truth; score only what has a known explanation"
            )
        keys, values = scores(explanation, level)
        hits = expected_hits(keys, strength(values, by), expected, len(expected))
        results.append(hits / len(expected))
    return sum(results) / len(results)


def _paper(explanations: list[Explanation], dataset: str | None, by: Ranking) -> float:
    if dataset not in PAPER_PROTOCOLS:
        raise InputError(f"dataset must be one of {sorted(PAPER_PROTOCOLS)}, got {dataset!r}")
    rules = PAPER_PROTOCOLS[dataset]
    results = []
    for explanation in explanations:
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
        keys, values = scores(explanation, "nodes")
        hits = expected_hits(keys, strength(values, by), rules.truth(node), rules.top)
        results.append(hits / rules.divisor)
    return sum(results) / len(results)


def scored_nodes(
    protocol: Protocol,
    *,
    dataset: str | None = None,
    candidates: Tensor | Sequence[int] | None = None,
    predicted: Tensor | None = None,
    labels: Tensor | None = None,
) -> list[int]:
    """Which nodes a protocol scores.

    "paper": the first node of each motif of `dataset`, right or wrong. "strict": every candidate
    (all motif nodes: `NodeTruth.nodes()`) that the model classifies right.
    """
    if protocol == "paper":
        if dataset not in PAPER_PROTOCOLS:
            raise InputError(f"dataset must be one of {sorted(PAPER_PROTOCOLS)}, got {dataset!r}")
        return list(PAPER_PROTOCOLS[dataset].scored)
    if candidates is None or predicted is None or labels is None:
        raise InputError('protocol="strict" needs candidates, predicted and labels')
    chosen = torch.as_tensor(candidates)
    right: list[int] = chosen[predicted[chosen] == labels[chosen]].tolist()
    return right


def auroc(
    explanations: Explanation | Iterable[Explanation],
    truth: Any,
    *,
    by: Ranking = "value",
    level: Level = "nodes",
) -> float:
    """Chance that a player of the truth outranks another one, averaged over explanations.

    All players count, and players of the truth that the explanation does not name count with 0.
    Where there are only players of the truth, or none, nothing can be ranked: such explanations
    are left out, and NaN says that none was left. scikit-learn's function; PyG's
    `groundtruth_metrics` gives the same figure but needs torchmetrics and squashes credit through
    a sigmoid first, in single precision, where ties can appear.
    """
    listed = many(explanations)
    results = []
    for explanation, expected in zip(listed, _each(truth, listed, level), strict=True):
        keys, values = scores(explanation, level)
        strengths = strength(values, by).tolist()
        unnamed = expected.difference(keys)
        labels = [key in expected for key in keys] + [True] * len(unnamed)
        if 0 < sum(labels) < len(labels):
            results.append(float(roc_auc_score(labels, strengths + [0.0] * len(unnamed))))
    return sum(results) / len(results) if results else float("nan")


def _each(truth: Any, explanations: list[Explanation], level: Level) -> list[set[Key]]:
    if hasattr(truth, "motif") and hasattr(truth, "motif_edges"):
        known = [_planted(truth, explanation, level) for explanation in explanations]
    elif truth is None:
        raise InputError("truth must be given: a set of ids, one set each, or a NodeTruth")
    elif isinstance(truth, Collection) and truth and not isinstance(truth, (set, frozenset)):
        known = [set(_keys(members)) for members in truth]
        if len(known) != len(explanations):
            raise InputError(
                f"truth must have one set for each of {len(explanations)} explanations, "
                f"got {len(known)}"
            )
    else:
        known = [set(_keys(truth))] * len(explanations)
    if level != "nodes":
        return known
    return [members - set(e.centres) for members, e in zip(known, explanations, strict=True)]


def _keys(ids: Any) -> list[Key]:
    if isinstance(ids, Tensor):
        return ids.nonzero()[:, 0].tolist() if ids.dtype == torch.bool else ids.tolist()
    if not isinstance(ids, Collection) or isinstance(ids, (str, bytes)):
        raise InputError(
            "truth must be a set of ids, a sequence with one set for each explanation, or a "
            f"NodeTruth, got {type(ids).__name__}"
        )
    return list(ids)


def _planted(truth: Any, explanation: Explanation, level: Level) -> set[Key]:
    if explanation.kind != "node":
        raise InputError(f"a NodeTruth speaks of nodes, got an explanation of a {explanation.kind}")
    if level == "features":
        return set(truth.informative_features or ())
    node = explanation.centres[0]
    return set(truth.motif_edges(node) if level == "edges" else truth.motif(node))
