"""The compared explainers: candidates for their settings, and the ones that were selected.

Every explainer has the same number of candidates on every data set, asked the same questions about
the same models of validation seeds (100 and up, which no other study scores): a few settings, each
read in several ways. The study `settings` measures them all and says where a selected one is not
the best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graphsvx.baselines import GNNExplainer, PGExplainer, PGMExplainer
from graphsvx.errors import InputError
from graphsvx.explanation import Ranking
from graphsvx.masks import SmarterSeparate
from graphsvx.methods import GraphSVX
from graphsvx.model import Scale
from graphsvx.studies.setting import CHANCE, EdgeRule, Setting
from graphsvx.studies.titles import GRAPH_SETS, TRUTH_SETS

OURS = "GraphSVX, the paper's method"
DEFAULT = "GraphSVX, our estimator"
EDGES = "GraphSVX, edges play"
GRAPHSVX = (OURS, DEFAULT, EDGES)
RIVALS = ("GNNExplainer", "PGM-Explainer", "PGExplainer")
EXPLAINERS = (*GRAPHSVX, *RIVALS)
RANDOM = "Random"
CANDIDATES = 12
"""Of each explainer on each data set: settings times readings."""
SCALES: tuple[Scale, ...] = ("probability", "logit", "log_odds")
Reading = tuple[Ranking, EdgeRule]
NODE_READINGS: tuple[Reading, ...] = (("value", "largest"), ("absolute", "largest"))
MASK_READINGS: tuple[Reading, ...] = (
    ("value", "largest"), ("value", "mean"), ("value", "undirected"),
)  # fmt: skip
SIGNED_EDGE_READINGS: tuple[Reading, ...] = (*NODE_READINGS, ("value", "mean"))


def readings(explainer: str) -> tuple[Reading, ...]:
    """Ways to read an answer: the ranking, and the rule from edges to nodes."""
    if explainer == EDGES:
        return SIGNED_EDGE_READINGS
    return MASK_READINGS if explainer in ("GNNExplainer", "PGExplainer") else NODE_READINGS


def candidates(dataset: str, explainer: str) -> list[Setting]:
    """The settings that are tried, each with its first reading."""
    if explainer == "GNNExplainer":
        return [
            Setting(GNNExplainer()),
            Setting(GNNExplainer(lr=0.1)),
            Setting(GNNExplainer(epochs=300)),
            Setting(GNNExplainer(300, 0.1, features=False, edge_size=0.05, edge_entropy=0.1)),
        ]
    if explainer == "PGExplainer":
        return [
            Setting(PGExplainer()),
            Setting(PGExplainer(temperature=(5.0, 1.0))),
            Setting(PGExplainer(size=0.005)),
            Setting(PGExplainer(size=0.005, entropy=0.1)),
        ]
    if explainer == "PGM-Explainer":
        zero = PGMExplainer(by="zero")
        tried = [
            zero, PGMExplainer(), replace(zero, drop=0.1), PGMExplainer(drop=0.1),
            replace(zero, rate=0.25), replace(zero, blanket=12),
        ]  # fmt: skip
        return [Setting(method) for method in tried]
    return _graphsvx(explainer, dataset, dataset in GRAPH_SETS)


def _graphsvx(explainer: str, dataset: str, whole_graphs: bool) -> list[Setting]:
    reaches: Sequence[int | None] = (None, 2)
    if explainer == EDGES:
        edges = (
            [GraphSVX(players="edges"), GraphSVX(players="edges", directions="apart")]
            if whole_graphs
            else [GraphSVX(players="edges", hops=hops) for hops in reaches]
        )
        scales: tuple[Scale, ...] = ("probability", "log_odds")
        return [Setting(method, scale) for method in edges for scale in scales]
    if explainer == DEFAULT:
        methods = (
            [GraphSVX(erase=erase) for erase in (False, True)]
            if whole_graphs
            else [GraphSVX(hops=hops) for hops in reaches]
        )
        return [Setting(method, scale) for method in methods for scale in SCALES]
    if whole_graphs:
        paper = [GraphSVX.paper(dataset, erase=erase) for erase in (False, True)]
        deeper = [replace(method, mask=SmarterSeparate(order=2)) for method in paper]
        return [Setting(m) for m in (*paper, *deeper)] + [Setting(m, "log_odds") for m in paper]
    joined = [GraphSVX.paper(dataset, hops=hops) for hops in reaches]
    apart = [replace(method, indirect=False) for method in joined]
    return [Setting(m) for m in (*joined, *apart)] + [Setting(m, "log_odds") for m in apart]


_SELECTED: dict[str, dict[str, Setting]] = {
    OURS: {
        "ba-shapes": Setting(GraphSVX.paper("ba-shapes", hops=2)),
        "ba-community": Setting(GraphSVX.paper("ba-community", hops=2, indirect=False)),
        "tree-cycles": Setting(GraphSVX.paper("tree-cycles", indirect=False), "log_odds"),
        "tree-grid": Setting(GraphSVX.paper("tree-grid", indirect=False)),
        "ba-2motifs": Setting(GraphSVX.paper("ba-2motifs")),
        "mutag": Setting(GraphSVX.paper("mutag", erase=True)),
    },
    DEFAULT: {
        "ba-shapes": Setting(GraphSVX(hops=2)),
        "ba-community": Setting(GraphSVX(hops=2)),
        "tree-cycles": Setting(GraphSVX(), "log_odds"),
        "tree-grid": Setting(GraphSVX()),
        "ba-2motifs": Setting(GraphSVX(), "log_odds"),
        "mutag": Setting(GraphSVX(erase=True)),
    },
    EDGES: {
        "ba-shapes": Setting(GraphSVX(players="edges", hops=2), "log_odds", "absolute"),
        "ba-community": Setting(GraphSVX(players="edges", hops=2), by="absolute"),
    },
    "GNNExplainer": {"ba-shapes": Setting(GNNExplainer(lr=0.1))},
    "PGM-Explainer": {"ba-community": Setting(PGMExplainer(by="zero"), by="absolute")},
    "PGExplainer": {"tree-cycles": Setting(PGExplainer(size=0.005))},
}
"""By explainer, then data set; where nothing is said, the first candidate."""


def selected_setting(dataset: str, explainer: str) -> Setting:
    """The setting of an explainer that the studies use on a data set with ground truth."""
    if dataset not in TRUTH_SETS:
        raise InputError(f"dataset must be one of {', '.join(TRUTH_SETS)}, got {dataset!r}")
    if explainer not in EXPLAINERS:
        raise InputError(f"explainer must be one of {', '.join(EXPLAINERS)}, got {explainer!r}")
    return _SELECTED[explainer].get(dataset) or candidates(dataset, explainer)[0]


def compared_methods(dataset: str, explainers: Sequence[str] = EXPLAINERS) -> dict[str, Setting]:
    """The explainers with their selected settings, and chance."""
    return {**{name: selected_setting(dataset, name) for name in explainers}, RANDOM: CHANCE}
