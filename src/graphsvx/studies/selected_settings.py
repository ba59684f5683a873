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
Reading = tuple[Ranking, EdgeRule]
"""A way to read an answer: the ranking, and the rule from edges to nodes."""
SIGNED: tuple[Reading, ...] = (("value", "largest"), ("absolute", "largest"))
MASK: tuple[Reading, ...] = (("value", "largest"), ("value", "mean"), ("value", "undirected"))
READINGS: dict[str, tuple[Reading, ...]] = {
    OURS: SIGNED, DEFAULT: SIGNED, EDGES: (*SIGNED, ("value", "mean")),
    "GNNExplainer": MASK, "PGM-Explainer": SIGNED, "PGExplainer": MASK,
}  # fmt: skip
_ZERO = PGMExplainer(by="zero")
_RIVALS = {
    "GNNExplainer": (
        GNNExplainer(), GNNExplainer(lr=0.1), GNNExplainer(epochs=300),
        GNNExplainer(300, 0.1, features=False, edge_size=0.05, edge_entropy=0.1),
    ),
    "PGExplainer": (
        PGExplainer(), PGExplainer(temperature=(5.0, 1.0)), PGExplainer(size=0.005),
        PGExplainer(size=0.005, entropy=0.1),
    ),
    "PGM-Explainer": (
        _ZERO, PGMExplainer(), replace(_ZERO, drop=0.1), PGMExplainer(drop=0.1),
        replace(_ZERO, rate=0.25), replace(_ZERO, blanket=12),
    ),
}  # fmt: skip
"""Usual settings first, then those of the explainers' own papers and others."""


def candidates(dataset: str, explainer: str) -> list[Setting]:
    """The settings that are tried, each with its first reading."""
    if explainer in _RIVALS:
        return [Setting(method) for method in _RIVALS[explainer]]
    whole_graphs, near = dataset in GRAPH_SETS, {"hops": 2}
    if explainer == EDGES:
        other = {"directions": "apart"} if whole_graphs else near
        methods = [GraphSVX(players="edges", **change) for change in ({}, other)]  # type: ignore[arg-type]
        return [Setting(m) for m in methods] + [Setting(m, "log_odds") for m in methods]
    if explainer == DEFAULT:
        other = {"erase": True} if whole_graphs else near  # type: ignore[dict-item]
        methods = [GraphSVX(**change) for change in ({}, other)]  # type: ignore[arg-type]
        scales = ("probability", "logit", "log_odds")
        return [Setting(m, scale) for m in methods for scale in scales]  # type: ignore[arg-type]
    change = {"erase": True} if whole_graphs else near  # type: ignore[dict-item]
    methods = [GraphSVX.paper(dataset), GraphSVX.paper(dataset, **change)]
    plain = [replace(method, indirect=False) for method in methods]
    if whole_graphs:  # without an indirect effect there either
        methods = [replace(method, mask=SmarterSeparate(order=2)) for method in plain]
    return [Setting(m) for m in (*methods, *plain)] + [Setting(m, "log_odds") for m in plain]


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
        "ba-2motifs": Setting(GraphSVX(), "log_odds"),
        "mutag": Setting(GraphSVX(erase=True)),
    },
    EDGES: {
        "ba-shapes": Setting(GraphSVX(players="edges", hops=2), "log_odds", "absolute"),
        "ba-community": Setting(GraphSVX(players="edges", hops=2), by="absolute"),
    },
    "GNNExplainer": {"ba-shapes": Setting(GNNExplainer(lr=0.1))},
    "PGM-Explainer": {"ba-community": Setting(_ZERO, by="absolute")},
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
