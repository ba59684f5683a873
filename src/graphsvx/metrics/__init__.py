"""Evaluation measures for explanations: functions of explanations, and of model and data if needed.

    against the model             fidelity, characterization, unfaithfulness, efficiency_residual
    of the explanation itself     sparsity, contrastivity
    against other explanations    similarity, stability, consistency, relative_error, expected_error

Credit may have any sign: `by="value"` ranks signed values (positive credit supports the
prediction), `by="absolute"` their magnitude. Measures against ground truth: `graphsvx_lab.metrics`.
"""

from graphsvx.metrics.agreement import (
    consistency,
    contrastivity,
    expected_error,
    relative_error,
    similarity,
    stability,
)
from graphsvx.metrics.faithful import (
    Fidelity,
    characterization,
    efficiency_residual,
    fidelity,
    sparsity,
    unfaithfulness,
)

__all__ = [
    "Fidelity",
    "characterization",
    "consistency",
    "contrastivity",
    "efficiency_residual",
    "expected_error",
    "fidelity",
    "relative_error",
    "similarity",
    "sparsity",
    "stability",
    "unfaithfulness",
]
