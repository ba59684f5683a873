"""`graphsvx.integrations.pyg` by its short name: graphsvx inside PyG's `Explainer`."""

from graphsvx.integrations.pyg import GraphSVXAlgorithm

__all__ = ["GraphSVXAlgorithm"]
