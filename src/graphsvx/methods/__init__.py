"""GraphSVX and the other explainers, each described by its three blocks: MASK, GEN and EXPL.

from graphsvx.methods import GNNExplainer
graphsvx.explain(model, data, node=42, method=GNNExplainer())
"""

from typing import TYPE_CHECKING

from graphsvx.methods.baseline import Block, Blocks, Method, Properties
from graphsvx.methods.graphsvx import GraphSVX
from graphsvx.methods.increments import Budget
from graphsvx.methods.player_kinds import (
    Cells,
    EdgeFeatures,
    Edges,
    Features,
    MetaPaths,
    Nodes,
    NodesAndFeatures,
    PlayerKind,
    Relations,
    SubgraphFeatures,
)
from graphsvx.utils.imports import lazy_attributes

if TYPE_CHECKING:
    from graphsvx.methods.gradients import IntegratedGradients, Saliency
    from graphsvx.methods.greedy import Greedy
    from graphsvx.methods.learned import GNNExplainer, PGExplainer
    from graphsvx.methods.perturbing import PGMExplainer, Random
    from graphsvx.methods.surrogates import LIME, SHAP, GraphLIME
    from graphsvx.methods.xgnn import MUTAG_VALENCES, XGNN

__all__ = [
    "LIME",
    "MUTAG_VALENCES",
    "SHAP",
    "XGNN",
    "Block",
    "Blocks",
    "Budget",
    "Cells",
    "EdgeFeatures",
    "Edges",
    "Features",
    "GNNExplainer",
    "GraphLIME",
    "GraphSVX",
    "Greedy",
    "IntegratedGradients",
    "MetaPaths",
    "Method",
    "Nodes",
    "NodesAndFeatures",
    "PGExplainer",
    "PGMExplainer",
    "PlayerKind",
    "Properties",
    "Random",
    "Relations",
    "Saliency",
    "SubgraphFeatures",
]

# Imported at first use: an explanation by GraphSVX needs none of them.
_BASELINES = {
    "gradients": ("IntegratedGradients", "Saliency"),
    "greedy": ("Greedy",),
    "learned": ("GNNExplainer", "PGExplainer"),
    "perturbing": ("PGMExplainer", "Random"),
    "surrogates": ("LIME", "SHAP", "GraphLIME"),
    "xgnn": ("MUTAG_VALENCES", "XGNN"),
}
__getattr__ = lazy_attributes(
    __name__,
    {name: f"{__name__}.{module}" for module, names in _BASELINES.items() for name in names},
)
