"""Evaluation measures for explanations: functions of explanations, and of model and data if needed.

    against ground truth          accuracy (protocols "paper" and "strict"), auroc
    against the model             fidelity, characterization, unfaithfulness, efficiency_residual
    of the explanation itself     sparsity, contrastivity
    against other explanations    stability, consistency

Credit may have any sign: `by="value"` ranks signed values (positive credit supports the
prediction), `by="absolute"` their magnitude.
"""

from graphsvx.metrics.agreement import consistency, contrastivity, similarity, stability
from graphsvx.metrics.faithful import (
    Fidelity,
    characterization,
    efficiency_residual,
    fidelity,
    sparsity,
    unfaithfulness,
)
from graphsvx.metrics.truth import (
    PAPER_PROTOCOLS,
    PaperProtocol,
    accuracy,
    auroc,
    scored_nodes,
)

__all__ = [
    "PAPER_PROTOCOLS",
    "Fidelity",
    "PaperProtocol",
    "accuracy",
    "auroc",
    "characterization",
    "consistency",
    "contrastivity",
    "efficiency_residual",
    "fidelity",
    "scored_nodes",
    "similarity",
    "sparsity",
    "stability",
    "unfaithfulness",
]
