"""Shapley value explanations for graph neural networks.

import graphsvx
explanation = graphsvx.explain(model, data, node=42)
"""

from graphsvx.api import explain
from graphsvx.certificate import Certificate, GameReport
from graphsvx.explanation import Explanation
from graphsvx.many import Failure, explain_many
from graphsvx.methods import GraphSVX

__version__ = "0.1.0"
__all__ = [
    "Certificate",
    "Explanation",
    "Failure",
    "GameReport",
    "GraphSVX",
    "__version__",
    "explain",
    "explain_many",
]
