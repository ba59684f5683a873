"""Every baseline of the paper, in the same three blocks: MASK, GEN and EXPL.

from graphsvx.baselines import GNNExplainer
graphsvx.explain(model, data, node=42, method=GNNExplainer())
"""

from graphsvx.baselines.blocks import Block, Blocks, Properties
from graphsvx.baselines.gnnexplainer import GNNExplainer
from graphsvx.baselines.gradients import IntegratedGradients, Saliency
from graphsvx.baselines.graphlime import GraphLIME
from graphsvx.baselines.greedy import Greedy
from graphsvx.baselines.pgexplainer import PGExplainer
from graphsvx.baselines.pgm import PGMExplainer
from graphsvx.baselines.random import Random
from graphsvx.baselines.tabular import LIME, SHAP
from graphsvx.baselines.xgnn import MUTAG_VALENCES, XGNN

__all__ = [
    "LIME",
    "MUTAG_VALENCES",
    "SHAP",
    "XGNN",
    "Block",
    "Blocks",
    "GNNExplainer",
    "GraphLIME",
    "Greedy",
    "IntegratedGradients",
    "PGExplainer",
    "PGMExplainer",
    "Properties",
    "Random",
    "Saliency",
]
