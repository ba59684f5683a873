"""Shapley value explanations for graph neural networks.

import graphsvx
explanation = graphsvx.explain(model, data, node=42)
"""

from graphsvx import views as _views  # noqa: F401  (tables and plots become methods of explanations)
from graphsvx.api import Failure, explain, explain_many
from graphsvx.estimators.estimate import Estimate, estimate
from graphsvx.methods.graphsvx import GraphSVX
from graphsvx.methods.registry import register
from graphsvx.results.certificate import Certificate, GameReport
from graphsvx.results.explanation import Explanation

__version__ = "0.1.0"
__all__ = [
    "Certificate",
    "Estimate",
    "Explanation",
    "Failure",
    "GameReport",
    "GraphSVX",
    "__version__",
    "estimate",
    "explain",
    "explain_many",
    "register",
]
