"""Explanations as objects of other libraries: networkx, PyG, shap."""

from __future__ import annotations

from typing import Any

import networkx as nx
import torch

from graphsvx.results.explanation import Explanation
from graphsvx.utils.extras import require_extra


def to_networkx(explanation: Explanation) -> nx.DiGraph:
    """The neighbourhood with credit on its nodes (the explained ones have 0) and edges."""
    field = explanation.field
    graph = nx.DiGraph(
        base=explanation.base, prediction=explanation.prediction, target=explanation.target
    )
    credit = explanation.nodes
    errors = dict(zip(explanation.node_ids.tolist(), explanation.node_errors.tolist(), strict=True))
    for position, (node, hops) in enumerate(
        zip(field.ids.tolist(), field.hops.tolist(), strict=True)
    ):
        about: dict[str, Any] = {
            "credit": credit.get(node, 0.0),
            "error": errors.get(node, 0.0),
            "hops": hops,
            "explained": node in explanation.centres,
        }
        if field.classes is not None:
            about["label"] = int(field.classes[position])
        graph.add_node(node, **about)
    edges = explanation.edges
    for u, v in field.edge_index.t().tolist():
        graph.add_edge(u, v, **({"credit": edges[(u, v)]} if (u, v) in edges else {}))
    return graph


def to_pyg(explanation: Explanation) -> Any:
    """A `torch_geometric.explain.Explanation` over all nodes of the graph.

    `node_mask` is [nodes, 1] with the signed credit of each node (the explained one has 0, as
    have all nodes that do not play); `feature_credit` is [features].
    """
    from torch_geometric.explain import Explanation as PyGExplanation  # noqa: PLC0415  (slow)

    field = explanation.field
    node_mask = torch.zeros(field.num_nodes, 1)
    node_mask[explanation.node_ids, 0] = explanation.node_values.float()
    features = torch.zeros(field.num_features)
    features[explanation.feature_ids] = explanation.feature_values.float()
    return PyGExplanation(
        node_mask=node_mask,
        feature_credit=features,
        target=torch.tensor([explanation.target]),
        prediction_score=explanation.prediction,
        base=explanation.base,
    )


def to_shap(explanation: Explanation) -> Any:
    """A `shap.Explanation`: features, then nodes, with names that say which."""
    shap = require_extra("shap", quiet=(PendingDeprecationWarning, DeprecationWarning))
    values = torch.cat([explanation.feature_values, explanation.node_values])
    names = [f"feature {i}" for i in explanation.feature_ids.tolist()]
    names += [f"node {i}" for i in explanation.node_ids.tolist()]
    return shap.Explanation(
        values=values.numpy(), base_values=explanation.base, feature_names=names
    )
