"""GraphSVX and the other explainers, each described by its three blocks: MASK, GEN and EXPL.

from graphsvx.methods import GNNExplainer
graphsvx.explain(model, data, node=42, method=GNNExplainer())
"""

from typing import TYPE_CHECKING

from graphsvx.methods.base import Block, Blocks, Method, Properties
from graphsvx.methods.graphsvx import GraphSVX
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
from graphsvx.methods.settings import Budget
from graphsvx.utils.lazy import lazy_attributes

if TYPE_CHECKING:
    from graphsvx.methods.gnnexplainer import GNNExplainer
    from graphsvx.methods.gradients import IntegratedGradients, Saliency
    from graphsvx.methods.graphlime import GraphLIME
    from graphsvx.methods.greedy import Greedy
    from graphsvx.methods.pgexplainer import PGExplainer
    from graphsvx.methods.pgm_explainer import PGMExplainer
    from graphsvx.methods.random import Random
    from graphsvx.methods.tabular import LIME, SHAP
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
_MODULES = {
    "GNNExplainer": "gnnexplainer",
    "GraphLIME": "graphlime",
    "Greedy": "greedy",
    "IntegratedGradients": "gradients",
    "LIME": "tabular",
    "MUTAG_VALENCES": "xgnn",
    "PGExplainer": "pgexplainer",
    "PGMExplainer": "pgm_explainer",
    "Random": "random",
    "SHAP": "tabular",
    "Saliency": "gradients",
    "XGNN": "xgnn",
}
__getattr__ = lazy_attributes(
    __name__, {name: f"{__name__}.{module}" for name, module in _MODULES.items()}
)
