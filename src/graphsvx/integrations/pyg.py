"""graphsvx inside `torch_geometric.explain.Explainer`."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain import Explanation as PyGExplanation
from torch_geometric.explain.algorithm import ExplainerAlgorithm
from torch_geometric.explain.config import MaskType, ModelMode, ModelTaskLevel

from graphsvx.api import explain
from graphsvx.core.model import Scale
from graphsvx.errors import UnsupportedError
from graphsvx.methods.base import Method
from graphsvx.methods.graphsvx import GraphSVX
from graphsvx.results.explanation import Explanation


class GraphSVXAlgorithm(ExplainerAlgorithm):
    """An algorithm for `torch_geometric.explain.Explainer`.

        explainer = Explainer(
            model,
            algorithm=GraphSVXAlgorithm(),
            explanation_type="model",
            node_mask_type="object",
            model_config=dict(
                mode="multiclass_classification", task_level="node", return_type="raw"
            ),
        )
        explanation = explainer(data.x, data.edge_index, index=42)
        explanation.node_mask        # [nodes, 1]: signed credit
        explanation.feature_credit   # [features]: signed credit of the node's own features
        explanation.graphsvx         # the full record, with errors and certificate

    `node_mask_type="object"` gives the credit of nodes (the explained node has the sum of its
    own features' credit), `"common_attributes"` that of features as a [1, features] mask, and
    `edge_mask_type="object"` without a node mask that of edges: an edge and its reverse are one
    player and share its credit. Links (`task_level="edge"`) are explained for models that take
    `edge_label_index`.
    """

    def __init__(self, method: Method | None = None, seed: int = 0) -> None:
        super().__init__()
        self.method = method if method is not None else GraphSVX()
        self.seed = seed

    def supports(self) -> bool:
        """True if the configuration is supported; otherwise raises `UnsupportedError`."""
        config = self.explainer_config
        nodes, edges = config.node_mask_type, config.edge_mask_type
        if nodes is not None and edges is not None:
            raise UnsupportedError(
                "GraphSVXAlgorithm gives a node mask or an edge mask, not both: nodes and their "
                "edges would share the same credit"
            )
        if edges is None and nodes not in (MaskType.object, MaskType.common_attributes):
            raise UnsupportedError(
                'GraphSVXAlgorithm needs node_mask_type="object" or "common_attributes", got '
                f"{nodes.value if nodes else None!r}"
            )
        if edges is not None and not isinstance(self.method, GraphSVX):
            raise UnsupportedError("an edge mask needs the method GraphSVX")
        return True

    def forward(
        self,
        model: torch.nn.Module,
        x: Tensor | dict[Any, Tensor],
        edge_index: Tensor | dict[Any, Tensor],
        *,
        target: Tensor,
        index: int | Tensor | None = None,
        **kwargs: Any,
    ) -> PyGExplanation:
        """Explain the output at `index` for its target class."""
        if not isinstance(x, Tensor) or not isinstance(edge_index, Tensor):
            raise UnsupportedError("GraphSVXAlgorithm explains homogeneous graphs only")
        batch = kwargs.pop("batch", None)
        pairs = kwargs.pop("edge_label_index", None)
        unknown = set(kwargs) - {"edge_weight", "edge_attr", "batch_size"}
        if unknown:
            raise UnsupportedError(
                "GraphSVXAlgorithm passes on edge_weight, edge_attr, edge_label_index and batch, "
                f"got {sorted(unknown)}"
            )
        data = Data(
            x=x, edge_index=edge_index, **{k: v for k, v in kwargs.items() if k != "batch_size"}
        )
        explanation = explain(
            model,
            data,
            method=self._method(),
            seed=self.seed,
            output=self._output(),
            scale=self._scale(),
            **self._query(target, index, batch, pairs),
        )
        return self._masks(explanation, edge_index)

    def _method(self) -> Method:
        if self.explainer_config.edge_mask_type is None or not isinstance(self.method, GraphSVX):
            return self.method
        edges: dict[str, Any] = {"players": "edges", "directions": "together"}
        return GraphSVX(**{**self.method.settings(), **edges})

    def _output(self) -> Any:
        returns = self.model_config.return_type
        return "raw" if returns is None else returns.value

    def _scale(self) -> Scale:
        regression = self.model_config.mode == ModelMode.regression
        return "value" if regression else "probability"

    def _query(
        self, target: Tensor, index: int | Tensor | None, batch: Any, pairs: Any
    ) -> dict[str, Any]:
        if self.model_config.task_level == ModelTaskLevel.graph:
            if isinstance(batch, Tensor) and batch.numel() and int(batch.max()) > 0:
                raise UnsupportedError(
                    "GraphSVXAlgorithm explains one graph at a time, got a batch of several"
                )
            return {"graph": True, "target": self._target(target.reshape(-1)[:1])}
        if index is None:
            raise UnsupportedError("GraphSVXAlgorithm needs index=: which output to explain")
        nodes = torch.as_tensor(index).reshape(-1)
        target_class = self._target(target[nodes])
        if self.model_config.task_level == ModelTaskLevel.edge:
            if not isinstance(pairs, Tensor) or len(nodes) != 1:
                raise UnsupportedError(
                    "GraphSVXAlgorithm explains one link at a time, of a model that takes "
                    "edge_label_index"
                )
            return {"edge": tuple(pairs[:, int(nodes)].tolist()), "target": target_class}
        if len(nodes) == 1:
            return {"node": int(nodes), "target": target_class}
        return {"nodes": nodes.tolist(), "target": target_class}

    def _target(self, target: Tensor) -> int | None:
        """The class to explain; None for regression, which has no classes."""
        if self.model_config.mode == ModelMode.regression:
            return None
        classes = torch.unique(target.reshape(-1).long())
        if len(classes) > 1:
            raise UnsupportedError(
                f"GraphSVXAlgorithm explains a group of nodes for one class, got {classes.tolist()}"
            )
        return int(classes)

    def _masks(self, explanation: Explanation, edge_index: Tensor) -> PyGExplanation:
        converted = explanation.to_pyg()
        if self.explainer_config.edge_mask_type is not None:
            del converted.node_mask
            converted.edge_mask = _edge_mask(explanation, edge_index)
            converted.graphsvx = explanation
            return converted
        own = float(explanation.feature_values.sum())
        if explanation.centres:
            converted.node_mask[list(explanation.centres), 0] = own / len(explanation.centres)
        if self.explainer_config.node_mask_type == MaskType.common_attributes:
            converted.node_mask = converted.feature_credit[None, :]
        converted.graphsvx = explanation
        return converted


def _edge_mask(explanation: Explanation, edge_index: Tensor) -> Tensor:
    """Credit [edges] per column of `edge_index`; the columns of one player share it evenly."""
    ends = [(min(u, v), max(u, v)) for u, v in edge_index.t().tolist()]
    count = Counter(ends)
    credit = {(min(u, v), max(u, v)): value for (u, v), value in explanation.edges.items()}
    return torch.tensor([credit.get(pair, 0.0) / count[pair] for pair in ends])
