"""Every baseline of the paper, in the same three blocks: MASK, GEN and EXPL.

from graphsvx.baselines import GNNExplainer
graphsvx.explain(model, data, node=42, method=GNNExplainer())
"""
