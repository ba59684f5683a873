"""Measures for experiments, beside those of `graphsvx.metrics`.

against ground truth          accuracy (protocols "paper" and "strict"), auroc, correlation,
                              credit_shares (where credit goes)
against other models          robust_fidelity, accuracy_without of graphsvx_lab.studies.faithfulness
of nodes alone                effects.leave_one_out, use_of_nodes, largest_changes
of several methods            paired_tests (is one ahead of others on the same questions?)
"""

from graphsvx_lab.metrics.measurements import PairedTest, paired_tests
from graphsvx_lab.metrics.truth import (
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
    "PairedTest",
    "PaperProtocol",
    "accuracy",
    "auroc",
    "correlation",
    "credit_shares",
    "paired_tests",
    "scored_nodes",
]
