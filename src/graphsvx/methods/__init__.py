"""GraphSVX and the other explainers, each described by its three blocks: MASK, GEN and EXPL.

from graphsvx.methods import GNNExplainer
graphsvx.explain(model, data, node=42, method=GNNExplainer())
"""

from graphsvx.methods.base import Block, Blocks, Method, Properties
from graphsvx.methods.gnnexplainer import GNNExplainer
from graphsvx.methods.graphlime import GraphLIME
from graphsvx.methods.graphsvx import GraphSVX
from graphsvx.methods.greedy import Greedy
from graphsvx.methods.integrated_gradients import IntegratedGradients
from graphsvx.methods.lime import LIME
from graphsvx.methods.pgexplainer import PGExplainer
from graphsvx.methods.pgm_explainer import PGMExplainer
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
from graphsvx.methods.random import Random
from graphsvx.methods.saliency import Saliency
from graphsvx.methods.settings import Budget
from graphsvx.methods.shap import SHAP
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
