"""GraphSVX as the studies use it: its settings for each data set.

They were chosen on validation seeds (100 and up), never on a seed that a study scores; the study
`settings` measures the candidates and says where a choice is not the best of its table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from graphsvx.baselines import GNNExplainer, PGExplainer, PGMExplainer
from graphsvx.errors import InputError
from graphsvx.explanation import Ranking
from graphsvx.masks import SmarterSeparate
from graphsvx.methods import GraphSVX
from graphsvx.model import Scale
from graphsvx.zoo import Settings

Kind = Literal["paper", "default", "edges"]
"""The paper's own method (SmarterSeparate, its budgets), the default estimator (`GraphSVX()`), or
that one with edges as players."""

TRUTH_SETS = ("ba-shapes", "ba-community", "tree-cycles", "tree-grid", "ba-2motifs", "mutag")
"""The data sets with a known explanation, in the paper's order."""
NODE_SETS = TRUTH_SETS[:4]
GRAPH_SETS = TRUTH_SETS[4:]
TITLES = {
    "ba-shapes": "BA-Shapes",
    "ba-community": "BA-Community",
    "tree-cycles": "Tree-Cycles",
    "tree-grid": "Tree-Grid",
    "ba-2motifs": "BA-2motifs",
    "mutag": "MUTAG",
}


@dataclass(frozen=True)
class Choice:
    """How GraphSVX is asked, and how its answer is ranked.

    method: with all its settings.
    scale: the explained score: probability or log-odds.
    by: rank nodes by signed value or by magnitude.
    """

    method: GraphSVX
    scale: Scale = "probability"
    by: Ranking = "value"


_PAPER: dict[str, Choice] = {
    "ba-shapes": Choice(GraphSVX.paper("ba-shapes", hops=2)),
    "ba-community": Choice(GraphSVX.paper("ba-community", hops=2, indirect=False)),
    "tree-cycles": Choice(GraphSVX.paper("tree-cycles", indirect=False), "log_odds"),
    "tree-grid": Choice(GraphSVX.paper("tree-grid", indirect=False)),
    "ba-2motifs": Choice(GraphSVX.paper("ba-2motifs")),
    "mutag": Choice(GraphSVX.paper("mutag", erase=True)),
}
_DEFAULT: dict[str, Choice] = {
    "ba-shapes": Choice(GraphSVX(hops=2)),
    "ba-community": Choice(GraphSVX(hops=2)),
    "tree-cycles": Choice(GraphSVX(), "log_odds"),
    "tree-grid": Choice(GraphSVX()),
    "ba-2motifs": Choice(GraphSVX(), "log_odds"),
    "mutag": Choice(GraphSVX(erase=True)),
}
_EDGES: dict[str, Choice] = {
    "ba-shapes": Choice(GraphSVX(players="edges", hops=2), "log_odds", "absolute"),
    "ba-community": Choice(GraphSVX(players="edges", hops=2), by="absolute"),
    "tree-cycles": Choice(GraphSVX(players="edges")),
    "tree-grid": Choice(GraphSVX(players="edges")),
    "ba-2motifs": Choice(GraphSVX(players="edges")),
    "mutag": Choice(GraphSVX(players="edges")),
}
_ALL: dict[Kind, dict[str, Choice]] = {"paper": _PAPER, "default": _DEFAULT, "edges": _EDGES}


def choice(dataset: str, kind: Kind = "paper") -> Choice:
    """The settings for a data set with ground truth."""
    if kind not in _ALL:
        raise InputError(f"kind must be one of {', '.join(_ALL)}, got {kind!r}")
    if dataset not in TRUTH_SETS:
        raise InputError(f"dataset must be one of {', '.join(TRUTH_SETS)}, got {dataset!r}")
    return _ALL[kind][dataset]


def gnnexplainer(dataset: str) -> GNNExplainer:
    """GNNExplainer for a data set with ground truth."""
    return GNNExplainer(lr=0.1) if dataset == "ba-shapes" else GNNExplainer()


def pgm(_dataset: str) -> PGMExplainer:
    """PGM-Explainer; where all nodes have the same features, only zeros change anything."""
    return PGMExplainer(by="zero")


def pgexplainer(dataset: str) -> PGExplainer:
    """PGExplainer before it is trained."""
    return PGExplainer(size=0.005) if dataset == "tree-cycles" else PGExplainer()


def rival_ranking(name: str, dataset: str) -> Ranking:
    """How another explainer's values are ranked; only PGM-Explainer's can be negative."""
    signed = (name, dataset) != ("PGM-Explainer", "ba-community")
    return "value" if signed else "absolute"


def rival(name: str, dataset: str) -> GNNExplainer | PGMExplainer | PGExplainer:
    """One of the three by its name in the tables."""
    if name == "GNNExplainer":
        return gnnexplainer(dataset)
    return pgm(dataset) if name == "PGM-Explainer" else pgexplainer(dataset)


# --- in words -----------------------------------------------------------------------------


def words(one: Choice) -> str:
    """The settings of GraphSVX, in one line of a table."""
    method = one.method
    mask = method.mask
    rows = f"S = {mask.order}, " if isinstance(mask, SmarterSeparate) else ""
    reach = "all hops" if method.hops is None else f"{method.hops} hops"
    joined = f"indirect effect ({method.indirect})" if method.indirect else "no indirect effect"
    erased = ", nodes erased" if method.erase else ""
    ranked = "signed" if one.by == "value" else "absolute"
    score = one.scale.replace("_", "-")
    return f"{rows}{method.samples} calls, {reach}, {joined}{erased}, {score}, {ranked}"


def rival_words(dataset: str) -> str:
    """The settings of the other explainers, in one line of a table."""
    return (
        f"GNNExplainer {rival_setting(gnnexplainer(dataset))}; "
        f"PGM-Explainer {rival_setting(pgm(dataset))}; "
        f"PGExplainer {rival_setting(pgexplainer(dataset))}"
    )


def rival_setting(method: GNNExplainer | PGMExplainer | PGExplainer) -> str:
    """What was varied of another explainer."""
    if isinstance(method, PGMExplainer):
        return f"{method.samples} samples, features to {method.by}"
    size = f", size {method.size:g}" if isinstance(method, PGExplainer) else ""
    return f"{method.epochs} epochs, rate {method.lr:g}{size}"


def model_words(settings: Settings) -> str:
    """What differs from the paper's model, in one line of a table."""
    usual = Settings().to_json()
    changed = [
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in settings.to_json().items()
        if value != usual[name] and name != "model"
    ]
    return ", ".join([settings.model, *changed])
