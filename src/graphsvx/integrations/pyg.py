"""graphsvx inside `torch_geometric.explain.Explainer`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, starmap
from types import EllipsisType
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.explain import Explanation as PyGExplanation
from torch_geometric.explain import HeteroExplanation
from torch_geometric.explain.algorithm import ExplainerAlgorithm
from torch_geometric.explain.config import MaskType, ModelMode, ModelTaskLevel
from torch_geometric.utils import subgraph

from graphsvx.api import explain
from graphsvx.core.model import Scale
from graphsvx.errors import UnsupportedError
from graphsvx.methods.baseline import Method
from graphsvx.methods.graphsvx import GraphSVX
from graphsvx.methods.player_kinds import Cells, DefaultPlayers, Edges, SubgraphFeatures
from graphsvx.results.credit import OTHER_FEATURES
from graphsvx.results.explanation import Explanation
from graphsvx.results.export import (
    CreditedExplanation,
    CreditedHeteroExplanation,
    edge_credit,
    feature_credit,
    mask,
    node_credit,
)
from graphsvx.results.summary import Explanations

MOST_CELLS = 20
"""Nodes with cells of their own in `node_mask_type="attributes"`, those with the most credit."""


@dataclass(frozen=True, eq=False)
class _Question:
    """One output of the model: the graph that it is about, and the arguments of `explain`."""

    data: Data | HeteroData
    arguments: dict[str, Any]
    nodes: Tensor | EllipsisType = ...
    """Ids of the nodes of `data` in the graph that was given; ...: all."""
    edges: Tensor | EllipsisType = ...
    """Positions of its edges there."""


class GraphSVXAlgorithm(ExplainerAlgorithm):
    """An algorithm for `torch_geometric.explain.Explainer`, in the place of `GNNExplainer`.

        explainer = Explainer(
            model,
            algorithm=GraphSVXAlgorithm(),
            explanation_type="model",
            node_mask_type="object",
            edge_mask_type="object",
            model_config=dict(
                mode="multiclass_classification", task_level="node", return_type="raw"
            ),
        )
        explanation = explainer(data.x, data.edge_index, index=42)
        explanation.node_mask     # in [0, 1], as PyG's metrics and plots expect
        explanation.node_credit   # signed credit, in the shape of the mask
        explanation.graphsvx      # the full record, with errors and certificate

    Masks are by the size of the credit: 0 where there is none, 1 up to a hundredth where there is
    some. The hundredth carries the order, so that `threshold_config=("topk", k)` keeps the k
    players that matter most, for the prediction or against it; the sign is in `node_credit` and
    `edge_credit`, and pictures draw their sizes. The explained nodes, which take no part in the
    game of nodes, have mask 1 in `node_mask_type="object"`.

    `node_mask_type`: "object" is the credit of nodes [nodes, 1] (an explained node has that of its
    own features), "common_attributes" that of features in the whole neighbourhood [1, features],
    "attributes" that of each feature of each node [nodes, features] (`players="cells"`; what nodes
    earn by their edges alone is in no column). `edge_mask_type="object"` is the
    credit of edges, from a game of their own; an edge and its reverse are one player and share it.

    Several outputs (`index` with several entries, or None for all) are explained one by one, and
    credit is their average; `explanation.graphsvx` is then the list of records. Graphs of a batch
    are explained one by one.

    Dictionaries by type (`explainer(data.x_dict, data.edge_index_dict)`) give a
    `HeteroExplanation` with masks and credit by type; `node_type` says which type the model's
    outputs are about, where their number does not tell. Of links (`edge_label_index=`) it is the
    pair of types that they join: `GraphSVXAlgorithm(node_type=("user", "item"))`.
    """

    def __init__(
        self,
        method: Method | None = None,
        seed: int = 0,
        node_type: str | tuple[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.node_type = node_type
        self.method = method if method is not None else GraphSVX()
        self.seed = seed

    def supports(self) -> bool:
        """True if the configuration is supported; otherwise raises `UnsupportedError`."""
        edges, nodes = self.explainer_config.edge_mask_type, self.explainer_config.node_mask_type
        if edges is not None and not isinstance(self.method, GraphSVX):
            raise UnsupportedError("an edge mask needs the method GraphSVX")
        if nodes == MaskType.attributes and not isinstance(self.method, GraphSVX):
            raise UnsupportedError('node_mask_type="attributes" needs the method GraphSVX')
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
    ) -> PyGExplanation | HeteroExplanation:
        """Explain the outputs at `index` (all if None) for their target classes."""
        nodes, edges = self.explainer_config.node_mask_type, self.explainer_config.edge_mask_type
        typed = isinstance(x, dict) and isinstance(edge_index, dict)
        converted: Any = CreditedHeteroExplanation() if typed else CreditedExplanation()
        if isinstance(x, dict) and isinstance(edge_index, dict):
            data, pairs = hetero_data(x, edge_index, kwargs), kwargs.get("edge_label_index")
            questions = self._hetero_questions(data, target, index, pairs)
        elif isinstance(x, Tensor) and isinstance(edge_index, Tensor):
            questions = self._questions(x, edge_index, target, index, kwargs)
        else:
            raise UnsupportedError(
                "GraphSVXAlgorithm needs x and edge_index as tensors, or both as dictionaries"
            )
        records: list[Explanation] = []
        if nodes is not None:
            # Typed graphs have no cells: the credit of a node is spread over its columns.
            spread = typed and nodes == MaskType.attributes
            method = self.method if spread else self._node_method()
            explained = [self._explain(model, question, method) for question in questions]
            records += explained
            set_node_credit(converted, questions, explained, nodes, x)
            set_masks(converted, "node")
            if nodes == MaskType.object and index is not None:
                types = explained[0].types if typed else None
                for centre in [node for e in explained for node in e.centres]:
                    name, at = (None, centre) if types is None else types.node(centre)
                    (converted[name] if typed else converted).node_mask[at] = 1.0
        if edges is not None:
            method = self._edge_method()
            explained = [self._explain(model, question, method) for question in questions]
            records += explained
            set_edge_credit(converted, questions, explained, edge_index)
            set_masks(converted, "edge")
        converted = converted.to(target.device if isinstance(x, dict) else x.device)
        converted._graphsvx = records[0] if len(records) == 1 else Explanations(records)
        return converted

    # --- questions -----------------------------------------------------------------------

    def _hetero_questions(
        self, data: HeteroData, target: Tensor, index: int | Tensor | None, pairs: Tensor | None
    ) -> list[_Question]:
        """One question for each output that is to be explained."""
        level = self.model_config.task_level
        counts = [data[name].num_nodes for name in data.node_types]
        if level == ModelTaskLevel.graph and (len(target) == 1 or len(target) not in counts):
            return self._asked(data, target, [0], lambda _: {"graph": True})
        if level == ModelTaskLevel.edge:
            links, ends = _links(pairs), linked_types(data, self.node_type)
            return self._asked(
                data,
                target,
                _positions(index, len(links)),
                lambda i: {"edge": tuple(zip(ends, links[i], strict=True))},
            )
        node_type = self.node_type or explained_type(data, len(target))
        positions = _positions(index, len(target))
        return self._asked(data, target, positions, lambda i: {"node": (node_type, i)})

    def _questions(
        self,
        x: Tensor,
        edge_index: Tensor,
        target: Tensor,
        index: int | Tensor | None,
        keywords: dict[str, Any],
    ) -> list[_Question]:
        """One question for each output that is to be explained."""
        attributes = {key: value for key, value in keywords.items() if isinstance(value, Tensor)}
        batch, pairs = attributes.pop("batch", None), attributes.pop("edge_label_index", None)
        other = set(keywords) - set(attributes) - {"batch", "edge_label_index", "batch_size"}
        if any(keywords[key] is not None for key in other):
            raise UnsupportedError(
                f"GraphSVXAlgorithm passes tensors on to the model, got {sorted(other)}"
            )
        data = Data(x=x, edge_index=edge_index, **attributes)
        level = self.model_config.task_level
        per_graph = batch is not None and len(target) == int(batch.max()) + 1 != x.shape[0]
        if level == ModelTaskLevel.graph or (level == ModelTaskLevel.node and per_graph):
            if batch is None:
                batch = x.new_zeros(x.shape[0], dtype=torch.long)
            positions = _positions(index, int(batch.max()) + 1)
            graphs = [_part(data, (batch == i).nonzero()[:, 0]) for i in positions]
            return [
                _Question(graph, {"graph": True, "target": self._target(target, i)}, nodes, edges)
                for i, (graph, nodes, edges) in zip(positions, graphs, strict=True)
            ]
        if level == ModelTaskLevel.edge:
            links = _links(pairs)
            positions = _positions(index, len(links))
            return self._asked(data, target, positions, lambda i: {"edge": links[i]})
        return self._asked(data, target, _positions(index, x.shape[0]), lambda i: {"node": i})

    def _asked(
        self,
        data: Any,
        target: Tensor,
        positions: list[int],
        argument: Callable[[int], dict[str, Any]],
    ) -> list[_Question]:
        return [
            _Question(data, {**argument(i), "target": self._target(target, i)}) for i in positions
        ]

    def _target(self, target: Tensor, position: int) -> int | None:
        """The class to explain; None for regression, which has no classes."""
        if self.model_config.mode == ModelMode.regression:
            return None
        return int(target.reshape(-1)[position])

    def _explain(self, model: torch.nn.Module, question: _Question, method: Method) -> Explanation:
        returns = self.model_config.return_type
        regression = self.model_config.mode == ModelMode.regression
        scale: Scale = "value" if regression else "probability"
        output: Any = "raw" if returns is None else returns.value
        return explain(
            model,
            question.data,
            method=method,
            seed=self.seed,
            output=output,
            scale=scale,
            **question.arguments,
        )

    def _node_method(self) -> Method:
        method = self.method
        if not isinstance(method, GraphSVX) or not isinstance(method.players, DefaultPlayers):
            return method
        kind = method.players
        if self.explainer_config.node_mask_type == MaskType.attributes:
            cells = Cells(
                hops=kind.hops,
                features=kind.features,
                reference=kind.reference,
                top_nodes=MOST_CELLS,
                top_features=16,
            )
            return method.with_settings(players=cells)
        if self.explainer_config.node_mask_type == MaskType.common_attributes:
            players = SubgraphFeatures(
                hops=kind.hops, features=kind.features, reference=kind.reference
            )
            return method.with_settings(players=players)
        return method

    def _edge_method(self) -> Method:
        if not isinstance(self.method, GraphSVX):
            raise UnsupportedError("an edge mask needs the method GraphSVX")
        return self.method.with_settings(players=Edges(hops=self.method.players.hops))


def _links(pairs: Any) -> list[tuple[int, ...]]:
    """The explained links, each as a pair of nodes."""
    if not isinstance(pairs, Tensor):
        raise UnsupportedError(
            "GraphSVXAlgorithm explains links of a model that takes edge_label_index"
        )
    return [tuple(pair) for pair in pairs.reshape(2, -1).t().tolist()]


def _positions(index: int | Tensor | None, count: int) -> list[int]:
    if index is None:
        return list(range(count))
    indices = torch.as_tensor(index)
    if indices.dtype == torch.bool:
        indices = indices.nonzero()
    positions: list[int] = indices.reshape(-1).tolist()
    return [position % count for position in positions]


def _part(data: Data, nodes: Tensor) -> tuple[Data, Tensor, Tensor]:
    """The graph on `nodes`, its nodes, and the positions of its edges."""
    count, edges = data.x.shape[0], data.edge_index.shape[1]
    edge_index, _, inside = subgraph(
        nodes, data.edge_index, relabel_nodes=True, num_nodes=count, return_edge_mask=True
    )
    positions = inside.nonzero()[:, 0]
    attributes = {
        key: value[nodes]
        if value.shape[:1] == (count,)
        else value[positions]
        if value.shape[:1] == (edges,)
        else value
        for key, value in data.to_dict().items()
        if isinstance(value, Tensor) and key not in ("x", "edge_index")
    }
    part = Data(x=data.x[nodes], edge_index=edge_index, **attributes)
    return part, nodes.cpu(), positions.cpu()


# Signed credit as the masks of `torch_geometric.explain`.


def set_masks(converted: Any, side: str) -> None:
    """Masks of all types on one scale."""
    stores = converted.node_stores if side == "node" else converted.edge_stores
    credited = [store for store in stores if f"{side}_credit" in store]
    parts = [store[f"{side}_credit"] for store in credited]
    masked = mask(torch.cat([part.reshape(-1) for part in parts]))
    values = torch.split(masked, [part.numel() for part in parts])
    for store, part, of_part in zip(credited, parts, values, strict=True):
        store[f"{side}_mask"] = of_part.reshape(part.shape).clone()


def set_node_credit(
    converted: Any,
    questions: Sequence[_Question],
    explanations: Sequence[Explanation],
    kind: MaskType,
    x: Tensor | Mapping[Any, Tensor],
) -> None:
    """Average signed credit of nodes, or of their features, as `node_credit` by node type.

    An explained node has the credit of its own features.
    """
    features = torch.stack([feature_credit(e) for e in explanations])
    if kind == MaskType.attributes and isinstance(x, Tensor):
        cells = torch.zeros(x.shape, dtype=torch.float64)
        for question, explanation in zip(questions, explanations, strict=True):
            cells[question.nodes] += cell_credit(explanation, question.data)
        converted.node_credit = (cells / len(explanations)).float()
        return
    if isinstance(x, Tensor):
        parts = [(converted, (0, len(x)), slice(None))]
        converted.feature_credit = features.mean(0).float()
    else:
        types = explanations[0].require_types()
        columns = starmap(slice, pairwise(types.feature_starts))
        stores = [converted[name] for name in types.node_types]
        parts = list(zip(stores, pairwise(types.node_starts), columns, strict=True))
        for store, (first, last), _ in parts:
            store.num_nodes = last - first
    nodes = torch.zeros(parts[-1][1][1], dtype=torch.float64)
    for question, explanation in zip(questions, explanations, strict=True):
        nodes[question.nodes] += node_credit(explanation) / len(explanations)
    for store, (first, last), type_columns in parts:
        mean = features[:, type_columns].mean(0)
        if kind == MaskType.common_attributes:
            if len(mean):
                store.node_credit = mean[None].float()
            continue
        width = max(1, len(mean)) if kind == MaskType.attributes else 1
        credit = nodes[first:last, None].repeat(1, width) / width
        for explanation, of_features in zip(explanations, features[:, type_columns], strict=True):
            for centre in explanation.centres:
                if first <= centre < last:
                    share = of_features / (len(explanation.centres) * len(explanations))
                    credit[centre - first] += share if width > 1 else share.sum()
        store.node_credit = credit.float()


def set_edge_credit(
    converted: Any,
    questions: Sequence[_Question],
    explanations: Sequence[Explanation],
    edge_index: Tensor | Mapping[Any, Tensor],
) -> None:
    """Average signed credit of edges as `edge_credit` by edge type."""
    if isinstance(edge_index, Tensor):
        parts = [(converted, (0, edge_index.shape[1]))]
    else:
        types = explanations[0].require_types()
        stores = [converted[name] for name in types.edge_types]
        parts = list(zip(stores, pairwise(types.edge_starts), strict=True))
    total = torch.zeros(parts[-1][1][1], dtype=torch.float64)
    for question, explanation in zip(questions, explanations, strict=True):
        columns = question.data.edge_index if isinstance(edge_index, Tensor) else None
        total[question.edges] += edge_credit(explanation, columns) / len(explanations)
    for store, (first, last) in parts:
        store.edge_credit = total[first:last].float()


def cell_credit(explanation: Explanation, data: Data) -> Tensor:
    """Credit of each feature of each node, [nodes, features].

    The credit of features that share a cell, and that of nodes without cells, is spread evenly
    over their columns.
    """
    if explanation.cells is None:
        return explanation.to_captum(data)[0][0].double().cpu()
    matrix, row = explanation.cell_matrix, explanation.outputs.index(explanation.target)
    columns_of: dict[int, set[int]] = {}
    for node, feature in zip(explanation.cells.nodes, explanation.cells.features, strict=True):
        columns_of.setdefault(node, set()).add(feature)
    values = explanation.cells.values[row].tolist()
    for node, feature, value in zip(
        explanation.cells.nodes, explanation.cells.features, values, strict=True
    ):
        others = [column for column in range(matrix.shape[1]) if column not in columns_of[node]]
        if feature == OTHER_FEATURES and others:
            matrix[node, others] += value / len(others)
    for node, value in explanation.nodes.items():
        if node not in columns_of and node >= 0:
            matrix[node] += value / matrix.shape[1]
    return matrix


# Typed graphs inside `torch_geometric.explain.Explainer`.


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
    graphs = 1 + max(
        (
            int(batch.max())
            for batch in (keywords.get("batch_dict") or {}).values()
            if batch.numel()
        ),
        default=0,
    )
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
