"""Evaluation measures for explanations: functions of explanations, and of model and data if needed.

    against ground truth          accuracy (protocols "paper" and "strict"), auroc, correlation,
                                  credit_shares (where credit goes)
    against the model             fidelity, characterization, unfaithfulness, efficiency_residual
    against other models          retraining.robust_fidelity, retraining.accuracy_without
    of nodes alone                effects.leave_one_out, use_of_nodes, largest_changes
    of the explanation itself     sparsity, contrastivity
    against other explanations    stability, consistency, relative_error, expected_error
    of several methods            paired_tests (is one ahead of others on the same questions?)

Credit may have any sign: `by="value"` ranks signed values (positive credit supports the
prediction), `by="absolute"` their magnitude.
"""

from graphsvx.metrics.agreement import (
    consistency,
    contrastivity,
    expected_error,
    relative_error,
    similarity,
    stability,
)
from graphsvx.metrics.comparison import PairedTest, paired_tests
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
    correlation,
    credit_shares,
    scored_nodes,
)

__all__ = [
    "PAPER_PROTOCOLS",
    "Fidelity",
    "PairedTest",
    "PaperProtocol",
    "accuracy",
    "auroc",
    "characterization",
    "consistency",
    "contrastivity",
    "correlation",
    "credit_shares",
    "efficiency_residual",
    "expected_error",
    "fidelity",
    "paired_tests",
    "relative_error",
    "scored_nodes",
    "similarity",
    "sparsity",
    "stability",
    "unfaithfulness",
]
