"""graphsvx inside `torch_geometric.explain.Explainer`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.explain import Explanation as PyGExplanation
from torch_geometric.explain import HeteroExplanation
from torch_geometric.explain.algorithm import ExplainerAlgorithm
from torch_geometric.explain.config import MaskType, ModelMode, ModelTaskLevel

from graphsvx.api import explain
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
    node_credit,
    set_masks,
    stores_of,
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


_Answer = tuple[_Question, Explanation]


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
        config = self.explainer_config
        attributes = config.node_mask_type == MaskType.attributes
        if isinstance(self.method, GraphSVX) or not (config.edge_mask_type or attributes):
            return True
        setting = "an edge mask" if config.edge_mask_type else 'node_mask_type="attributes"'
        raise UnsupportedError(f"{setting} needs the method GraphSVX")

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
        typed = isinstance(x, dict)
        if not all(isinstance(part, dict if typed else Tensor) for part in (x, edge_index)):
            raise UnsupportedError(
                "GraphSVXAlgorithm needs x and edge_index as tensors, or both as dictionaries"
            )
        arguments: tuple[Any, Any, dict[str, Any]] = (x, edge_index, kwargs)
        data: Any = hetero_data(*arguments) if typed else plain_data(*arguments)
        questions = self._questions(data, typed, target, index, kwargs)
        converted: Any = CreditedHeteroExplanation() if typed else CreditedExplanation()
        answers: list[_Answer] = []
        if nodes is not None:
            # Typed graphs have no cells: the credit of a node is spread over its columns.
            spread = typed and nodes == MaskType.attributes
            method = self.method if spread else self._node_method()
            answers = self._answers(model, questions, method)
            set_node_credit(converted, answers, nodes, data)
            centres = nodes == MaskType.object and index is not None
            marked = [node for _, e in answers for node in e.centres] if centres else []
            set_masks(converted, answers[0][1].hetero, "node", marked)
        if edges is not None:
            of_nodes: Any = self.method  # GraphSVX, as `supports` says
            method = of_nodes.with_settings(players=Edges(hops=of_nodes.players.hops))
            of_edges = self._answers(model, questions, method)
            set_edge_credit(converted, of_edges, data)
            set_masks(converted, of_edges[0][1].hetero, "edge")
            answers = [*answers, *of_edges]
        converted = converted.to((target if typed else data.x).device)
        records = [explanation for _, explanation in answers]
        converted._graphsvx = records[0] if len(records) == 1 else Explanations(records)
        return converted

    # --- questions -----------------------------------------------------------------------

    def _questions(
        self,
        data: Any,
        typed: bool,
        target: Tensor,
        index: int | Tensor | None,
        keywords: Mapping[str, Any],
    ) -> list[_Question]:
        """One question for each output that is to be explained."""
        level, batch = self.model_config.task_level, keywords.get("batch")

        def asked(
            argument: Callable[[int], Any], count: int, index: int | Tensor | None = index
        ) -> list[_Question]:
            positions = _positions(index, count)
            return [_Question(data, {**argument(i), **self._target(target, i)}) for i in positions]

        if level == ModelTaskLevel.edge:
            pairs = keywords.get("edge_label_index")
            if pairs is None:
                raise UnsupportedError(
                    "GraphSVXAlgorithm explains links of a model that takes edge_label_index"
                )
            links = [tuple(pair) for pair in pairs.reshape(2, -1).t().tolist()]
            if typed:
                ends = linked_types(data, self.node_type)
                links = [tuple(zip(ends, link, strict=True)) for link in links]
            return asked(lambda i: {"edge": links[i]}, len(links))
        if typed:
            counts = [data[name].num_nodes for name in data.node_types]
            if level == ModelTaskLevel.graph and (len(target) == 1 or len(target) not in counts):
                return asked(lambda _: {"graph": True}, 1, None)
            node_type = self.node_type or explained_type(data, len(target))
            return asked(lambda i: {"node": (node_type, i)}, len(target))
        count = data.x.shape[0]
        per_graph = batch is not None and len(target) == int(batch.max()) + 1 != count
        if level == ModelTaskLevel.node and not per_graph:
            return asked(lambda i: {"node": i}, count)
        batch = data.x.new_zeros(count, dtype=torch.long) if batch is None else batch
        questions = []
        for i in _positions(index, int(batch.max()) + 1):
            nodes = batch == i
            edges = nodes[data.edge_index].all(0).nonzero()[:, 0].cpu()
            arguments = {"graph": True, **self._target(target, i)}
            part = data.subgraph(nodes)
            questions.append(_Question(part, arguments, nodes.nonzero()[:, 0].cpu(), edges))
        return questions

    def _target(self, target: Tensor, position: int) -> dict[str, int]:
        """The class to explain; none for regression, which has no classes."""
        if self.model_config.mode == ModelMode.regression:
            return {}
        return {"target": int(target.reshape(-1)[position])}

    def _answers(
        self, model: torch.nn.Module, questions: Sequence[_Question], method: Method
    ) -> list[_Answer]:
        returns = self.model_config.return_type
        regression = self.model_config.mode == ModelMode.regression
        options: dict[str, Any] = {
            "method": method,
            "seed": self.seed,
            "output": "raw" if returns is None else returns.value,
            "scale": "value" if regression else "probability",
        }
        return [(q, explain(model, q.data, **options, **q.arguments)) for q in questions]

    def _node_method(self) -> Method:
        method, mask_type = self.method, self.explainer_config.node_mask_type
        if not isinstance(method, GraphSVX) or not isinstance(method.players, DefaultPlayers):
            return method
        if mask_type == MaskType.object:
            return method
        kind = method.players
        shared: Any = {"hops": kind.hops, "features": kind.features, "reference": kind.reference}
        players: Any = SubgraphFeatures(**shared)
        if mask_type == MaskType.attributes:
            players = Cells(**shared, top_nodes=MOST_CELLS, top_features=16)
        return method.with_settings(players=players)


def _positions(index: int | Tensor | None, count: int) -> list[int]:
    if index is None:
        return list(range(count))
    indices = torch.as_tensor(index)
    if indices.dtype == torch.bool:
        indices = indices.nonzero()
    return [int(position) % count for position in indices.reshape(-1)]


# Signed credit, as the masks of `torch_geometric.explain` are made of.


def set_node_credit(converted: Any, answers: Sequence[_Answer], kind: MaskType, data: Any) -> None:
    """Average signed credit of nodes, or of their features, as `node_credit` by node type.

    An explained node has the credit of its own features.
    """
    types, attributes = answers[0][1].hetero, kind == MaskType.attributes
    if attributes and types is None:
        cells = torch.zeros(data.x.shape, dtype=torch.float64)
        for question, explanation in answers:
            cells[question.nodes] += cell_credit(explanation, question.data)
        converted.node_credit = (cells / len(answers)).float()
        return
    features = torch.stack([feature_credit(explanation) for _, explanation in answers])
    nodes = torch.zeros(data.num_nodes, dtype=torch.float64)
    for question, explanation in answers:
        nodes[question.nodes] += node_credit(explanation) / len(answers)
    if types is None:
        converted.feature_credit = features.mean(0).float()
    columns = stores_of(converted, types, "feature")
    for (store, part), (_, type_columns) in zip(
        stores_of(converted, types, "node"), columns, strict=True
    ):
        inside = range(*part.indices(len(nodes)))
        if types is not None:
            store.num_nodes = len(inside)
        mean = features[:, type_columns].mean(0)
        if kind == MaskType.common_attributes:
            if len(mean):
                store.node_credit = mean[None].float()
            continue
        width = max(1, len(mean)) if attributes else 1
        credit = nodes[part, None].repeat(1, width) / width
        for (_, explanation), of_features in zip(answers, features[:, type_columns], strict=True):
            share = of_features / (max(1, len(explanation.centres)) * len(answers))
            for centre in explanation.centres:
                if centre in inside:
                    credit[centre - inside.start] += share if width > 1 else share.sum()
        store.node_credit = credit.float()


def set_edge_credit(converted: Any, answers: Sequence[_Answer], data: Any) -> None:
    """Average signed credit of edges as `edge_credit` by edge type."""
    types = answers[0][1].hetero
    total = torch.zeros(data.num_edges, dtype=torch.float64)
    for question, explanation in answers:
        columns = question.data.edge_index if types is None else None
        total[question.edges] += edge_credit(explanation, columns) / len(answers)
    for store, part in stores_of(converted, types, "edge"):
        store.edge_credit = total[part].float()


def cell_credit(explanation: Explanation, data: Data) -> Tensor:
    """Credit of each feature of each node, [nodes, features].

    The credit of features that share a cell, and that of nodes without cells, is spread evenly
    over their columns.
    """
    cells = explanation.cells
    if cells is None:
        return explanation.to_captum(data)[0][0].double().cpu()
    matrix, values = explanation.cell_matrix, cells.values[explanation.row].tolist()
    alone = torch.zeros(matrix.shape, dtype=torch.bool)
    for node, feature in zip(cells.nodes, cells.features, strict=True):
        if feature >= 0:
            alone[node, feature] = True
    for node, feature, value in zip(cells.nodes, cells.features, values, strict=True):
        others = ~alone[node]
        if feature == OTHER_FEATURES and others.any():
            matrix[node, others] += value / int(others.sum())
    for node, value in explanation.nodes.items():
        if node not in cells.nodes and node >= 0:
            matrix[node] += value / matrix.shape[1]
    return matrix


# The arguments of a call as a graph.


def plain_data(x: Tensor, edge_index: Tensor, keywords: Mapping[str, Any]) -> Data:
    """The tensors of a call as one graph."""
    of_question = ("batch", "edge_label_index", "batch_size")  # of the question, not of the graph
    others = {name: value for name, value in keywords.items() if name not in of_question}
    attributes = {name: value for name, value in others.items() if isinstance(value, Tensor)}
    left_out = sorted(others.keys() - attributes.keys())
    if any(others[name] is not None for name in left_out):
        raise UnsupportedError(f"GraphSVXAlgorithm passes tensors on to the model, got {left_out}")
    return Data(x=x, edge_index=edge_index, **attributes)


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
    batches = (keywords.get("batch_dict") or {}).values()
    graphs = 1 + max((int(batch.max()) for batch in batches if batch.numel()), default=0)
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
