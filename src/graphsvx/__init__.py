"""Shapley value explanations for graph neural networks.

import graphsvx
explanation = graphsvx.explain(model, data, node=42)
"""

from typing import TYPE_CHECKING

from graphsvx.utils.imports import lazy_attributes

if TYPE_CHECKING:
    from graphsvx.api import explain
    from graphsvx.estimators.estimate import Estimate, estimate
    from graphsvx.explorer import serve
    from graphsvx.many import Failure, explain_many
    from graphsvx.methods.graphsvx import GraphSVX
    from graphsvx.methods.registry import register
    from graphsvx.results.certificate import Certificate, GameReport
    from graphsvx.results.explanation import Explanation
    from graphsvx.results.summary import Explanations

__version__ = "0.2.0"
__all__ = [
    "Certificate",
    "Estimate",
    "Explanation",
    "Explanations",
    "Failure",
    "GameReport",
    "GraphSVX",
    "__version__",
    "estimate",
    "explain",
    "explain_many",
    "register",
    "serve",
]

_PACKAGES = (
    "estimators", "games", "generators", "integrations", "masks", "methods", "metrics", "pyg",
    "results", "runs", "testing", "views",
)  # fmt: skip
# Imported at first use: the command line answers `--help` without torch.
__getattr__ = lazy_attributes(
    __name__,
    {
        "Certificate": "graphsvx.results.certificate",
        "Estimate": "graphsvx.estimators.estimate",
        "Explanation": "graphsvx.results.explanation",
        "Explanations": "graphsvx.results.summary",
        "Failure": "graphsvx.many",
        "GameReport": "graphsvx.results.certificate",
        "GraphSVX": "graphsvx.methods.graphsvx",
        "estimate": "graphsvx.estimators.estimate",
        "explain": "graphsvx.api",
        "explain_many": "graphsvx.many",
        "register": "graphsvx.methods.registry",
        "serve": "graphsvx.explorer",
        **{package: f"graphsvx.{package}" for package in _PACKAGES},
    },
)


def __dir__() -> list[str]:
    return sorted([*__all__, *_PACKAGES])
