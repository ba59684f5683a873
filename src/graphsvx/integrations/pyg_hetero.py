"""Typed graphs inside `torch_geometric.explain.Explainer`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.explain import HeteroExplanation
from torch_geometric.explain.config import MaskType

from graphsvx.errors import UnsupportedError
from graphsvx.results.explanation import Explanation
from graphsvx.results.export import feature_credit, node_credit
from graphsvx.results.typed_credit import types_of
from graphsvx.results.typed_export import edge_mask


def hetero_data(
    x_dict: Mapping[Any, Tensor], edge_index_dict: Mapping[Any, Tensor], keywords: Mapping[str, Any]
) -> HeteroData:
    """The dictionaries of a call as one graph; other arguments are named `{attribute}_dict`."""
    data = HeteroData()
    for name, x in x_dict.items():
        data[name].x = x
    for name, edge_index in edge_index_dict.items():
        data[name].edge_index = edge_index
        for end, kind in enumerate((name[0], name[2])):
            if kind not in x_dict:  # no features: at least the nodes that edges name
                count = int(edge_index[end].max()) + 1 if edge_index.numel() else 0
                data[kind].num_nodes = max(count, data[kind].get("num_nodes", 0))
    graphs = 1 + max((int(batch.max()) for batch in (keywords.get("batch_dict") or {}).values()
                      if batch.numel()), default=0)  # fmt: skip
    if graphs > 1:
        raise UnsupportedError(
            f"GraphSVXAlgorithm explains one typed graph at a time, got a batch of {graphs}; call "
            "the explainer for each of batch.to_data_list()"
        )
    for name, values in keywords.items():
        if name in ("batch_dict", "edge_label_index") or values is None:
            continue
        if not name.endswith("_dict") or not isinstance(values, Mapping):
            raise UnsupportedError(
                f"GraphSVXAlgorithm passes on dictionaries such as edge_attr_dict, got {name!r}"
            )
        for kind, value in values.items():
            data[kind][name.removesuffix("_dict")] = value
    return data


def explained_type(data: HeteroData, rows: int) -> str:
    """The node type that the model's output is about: the one with as many nodes."""
    matching = [name for name in data.node_types if data[name].num_nodes == rows]
    if len(matching) != 1:
        raise UnsupportedError(
            f"GraphSVXAlgorithm finds the explained node type by its number of nodes, but {rows} "
            f"outputs fit {matching or 'none'} of {list(data.node_types)}; "
            "say which with GraphSVXAlgorithm(node_type=...)"
        )
    return str(matching[0])


def linked_types(data: HeteroData, node_type: str | tuple[str, str] | None) -> tuple[str, str]:
    """Node types of the two ends of the explained links."""
    if isinstance(node_type, tuple) and len(node_type) == 2:
        return node_type
    if len(data.node_types) == 1:
        return data.node_types[0], data.node_types[0]
    raise UnsupportedError(
        "GraphSVXAlgorithm must know which node types the links join; give both as "
        f"GraphSVXAlgorithm(node_type=({data.node_types[0]!r}, {data.node_types[1]!r})), "
        f"got {node_type!r}"
    )


def set_node_credit(
    converted: HeteroExplanation, explanations: Sequence[Explanation], kind: MaskType
) -> None:
    """Average signed credit of nodes (of their features) by node type, as `node_credit`."""
    types = types_of(explanations[0])
    columns = torch.stack([feature_credit(e) for e in explanations]).mean(0).float()
    nodes = torch.stack([node_credit(e) for e in explanations]).mean(0).float()
    for at, name in enumerate(types.node_types):
        first, last = types.node_starts[at : at + 2]
        feature_columns = columns[types.feature_starts[at] : types.feature_starts[at + 1]]
        converted[name].num_nodes = last - first
        if kind == MaskType.common_attributes:
            if len(feature_columns):
                converted[name].node_credit = feature_columns[None]
            continue
        width = max(1, len(feature_columns)) if kind == MaskType.attributes else 1
        credit = nodes[first:last, None].repeat(1, width) / width
        for explanation in explanations:
            for centre in explanation.centres:
                if first <= centre < last:
                    share = feature_credit(explanation).float() / len(explanation.centres)
                    share = share[types.feature_starts[at] : types.feature_starts[at + 1]]
                    credit[centre - first] += (
                        share if width == len(share) and width > 1 else share.sum()
                    ) / len(explanations)
        converted[name].node_credit = credit


def set_edge_credit(converted: HeteroExplanation, explanations: Sequence[Explanation]) -> None:
    """Average signed credit of edges by edge type, as `edge_credit`."""
    types = types_of(explanations[0])
    total = torch.stack([edge_mask(e, types_of(e)) for e in explanations]).mean(0)
    for at, name in enumerate(types.edge_types):
        first, last = types.edge_starts[at : at + 2]
        converted[name].edge_credit = total[first:last]
