"""graphsvx inside `torch_geometric.explain.Explainer`."""

from __future__ import annotations

from dataclasses import dataclass
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
from graphsvx.integrations.pyg_hetero import (
    explained_type,
    hetero_data,
    linked_types,
    set_edge_credit,
    set_node_credit,
)
from graphsvx.integrations.pyg_masks import cell_credit, set_masks
from graphsvx.methods.base import Method
from graphsvx.methods.graphsvx import GraphSVX
from graphsvx.methods.player_kinds import Cells, DefaultPlayers, Edges, SubgraphFeatures
from graphsvx.results.explanation import Explanation
from graphsvx.results.export import edge_credit, feature_credit, node_credit
from graphsvx.results.many import Explanations
from graphsvx.results.pyg_record import CreditedExplanation, CreditedHeteroExplanation, mask
from graphsvx.results.typed_credit import types_of

MOST_CELLS = 20
"""Nodes with cells of their own in `node_mask_type="attributes"`, those with the most credit."""


@dataclass(frozen=True, eq=False)
class _Question:
    """One output of the model: the graph that it is about, and the arguments of `explain`."""

    data: Data | HeteroData
    arguments: dict[str, Any]
    nodes: Tensor
    """Ids of the nodes of `data` in the graph that was given."""
    edges: Tensor
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
        if isinstance(x, dict) and isinstance(edge_index, dict):
            data, pairs = hetero_data(x, edge_index, kwargs), kwargs.get("edge_label_index")
            arguments = self._hetero_questions(data, target, index, pairs)
            return self._hetero(
                model, data, arguments, target.device, fix_centres=index is not None
            )
        if not isinstance(x, Tensor) or not isinstance(edge_index, Tensor):
            raise UnsupportedError(
                "GraphSVXAlgorithm needs x and edge_index as tensors, or both as dictionaries"
            )
        questions = self._questions(x, edge_index, target, index, kwargs)
        nodes, edges = self.explainer_config.node_mask_type, self.explainer_config.edge_mask_type
        converted, records = CreditedExplanation(), []
        if nodes is not None:
            explanations = [
                self._explain(model, question, self._node_method()) for question in questions
            ]
            records += explanations
            credit = self._node_credit(questions, explanations, x)
            converted.node_credit, converted.node_mask = credit, mask(credit)
            if nodes == MaskType.object and index is not None:
                centres = [node for e in explanations for node in e.centres]
                converted.node_mask[centres] = 1.0
            if nodes != MaskType.attributes:
                converted.feature_credit = torch.stack(
                    [feature_credit(e) for e in explanations]
                ).mean(0).float()  # fmt: skip
        if edges is not None:
            explanations = [
                self._explain(model, question, self._edge_method()) for question in questions
            ]
            records += explanations
            total = torch.zeros(edge_index.shape[1], dtype=torch.float64)
            for question, explanation in zip(questions, explanations, strict=True):
                total[question.edges] += edge_credit(explanation, question.data.edge_index)
            converted.edge_credit = (total / len(questions)).float()
            converted.edge_mask = mask(converted.edge_credit)
        converted = converted.to(x.device)
        converted._graphsvx = records[0] if len(records) == 1 else Explanations(records)
        return converted

    def _hetero_questions(
        self, data: HeteroData, target: Tensor, index: int | Tensor | None, pairs: Tensor | None
    ) -> list[dict[str, Any]]:
        """The arguments of `explain` for each output that is to be explained."""
        level = self.model_config.task_level
        counts = [data[name].num_nodes for name in data.node_types]
        if level == ModelTaskLevel.graph and (len(target) == 1 or len(target) not in counts):
            return [{"graph": True, "target": self._target(target, 0)}]
        if level == ModelTaskLevel.edge:
            if not isinstance(pairs, Tensor):
                raise UnsupportedError(
                    "GraphSVXAlgorithm explains links of a model that takes edge_label_index"
                )
            pairs, (u, v) = pairs.reshape(2, -1), linked_types(data, self.node_type)
            return [
                {"edge": ((u, int(pairs[0, i])), (v, int(pairs[1, i]))),
                 "target": self._target(target, i)}
                for i in _positions(index, pairs.shape[1])
            ]  # fmt: skip
        node_type = self.node_type or explained_type(data, len(target))
        return [
            {"node": (node_type, i), "target": self._target(target, i)}
            for i in _positions(index, len(target))
        ]

    def _hetero(
        self, model: torch.nn.Module, data: HeteroData, arguments: list[dict[str, Any]],
        device: torch.device, *, fix_centres: bool,
    ) -> HeteroExplanation:  # fmt: skip
        nodes, edges = self.explainer_config.node_mask_type, self.explainer_config.edge_mask_type
        everything = torch.zeros(0, dtype=torch.long)  # the graph is explained as a whole
        questions = [_Question(data, keywords, everything, everything) for keywords in arguments]
        converted = CreditedHeteroExplanation()
        records: list[Explanation] = []
        if nodes is not None:
            # Typed graphs have no cells: the credit of a node is spread over its columns.
            cells = nodes == MaskType.attributes
            method = self.method if cells else self._node_method()
            explained = [self._explain(model, question, method) for question in questions]
            records += explained
            set_node_credit(converted, explained, nodes)
            set_masks(converted, "node")
            if nodes == MaskType.object and fix_centres:
                for explanation in explained:
                    for kind, i in map(types_of(explanation).node, explanation.centres):
                        converted[kind].node_mask[i] = 1.0
        if edges is not None:
            method = self._edge_method()
            explained = [self._explain(model, question, method) for question in questions]
            records += explained
            set_edge_credit(converted, explained)
            set_masks(converted, "edge")
        converted = converted.to(device)
        converted._graphsvx = records[0] if len(records) == 1 else Explanations(records)
        return converted

    # --- questions -----------------------------------------------------------------------

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
        everything = torch.arange(x.shape[0]), torch.arange(edge_index.shape[1])
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
            if pairs is None:
                raise UnsupportedError(
                    "GraphSVXAlgorithm explains links of a model that takes edge_label_index"
                )
            pairs = pairs.reshape(2, -1)
            return [
                _Question(
                    data,
                    {"edge": tuple(pairs[:, i].tolist()), "target": self._target(target, i)},
                    *everything,
                )
                for i in _positions(index, pairs.shape[1])
            ]
        return [
            _Question(data, {"node": i, "target": self._target(target, i)}, *everything)
            for i in _positions(index, x.shape[0])
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
            model, question.data, method=method, seed=self.seed, output=output, scale=scale,
            **question.arguments,
        )  # fmt: skip

    def _node_method(self) -> Method:
        method = self.method
        if not isinstance(method, GraphSVX) or not isinstance(method.players, DefaultPlayers):
            return method
        kind = method.players
        if self.explainer_config.node_mask_type == MaskType.attributes:
            cells = Cells(
                hops=kind.hops, features=kind.features, reference=kind.reference,
                top_nodes=MOST_CELLS, top_features=16,
            )  # fmt: skip
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

    # --- masks ---------------------------------------------------------------------------

    def _node_credit(
        self, questions: list[_Question], explanations: list[Explanation], x: Tensor
    ) -> Tensor:
        """Average signed credit in the shape of the node mask."""
        kind = self.explainer_config.node_mask_type
        if kind == MaskType.common_attributes:
            return torch.stack([feature_credit(e) for e in explanations]).mean(0)[None].float()
        width = 1 if kind == MaskType.object else x.shape[1]
        total = torch.zeros(x.shape[0], width, dtype=torch.float64)
        for question, explanation in zip(questions, explanations, strict=True):
            if kind == MaskType.object:
                part = node_credit(explanation)[:, None]
                feature_total = feature_credit(explanation).sum()
                centres = list(explanation.centres)
                if centres:
                    part[centres] += feature_total / len(centres)
            else:
                part = cell_credit(explanation, question.data)
            total[question.nodes] += part
        return (total / len(questions)).float()


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
        key: value[nodes] if value.shape[:1] == (count,)
        else value[positions] if value.shape[:1] == (edges,) else value
        for key, value in data.to_dict().items()
        if isinstance(value, Tensor) and key not in ("x", "edge_index")
    }  # fmt: skip
    part = Data(x=data.x[nodes], edge_index=edge_index, **attributes)
    return part, nodes.cpu(), positions.cpu()
