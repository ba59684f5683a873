"""GNNExplainer and PGExplainer: masks that are learned through the model, PyG's algorithms inside.

GNNExplainer   M_E and M_F, optimised to keep one prediction (mutual information)
PGExplainer    M_E = MLP(z_u, z_v, z_centre), a network trained once for many questions
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch_geometric.explain import ModelConfig
from torch_geometric.explain.algorithm import GNNExplainer as Optimiser
from torch_geometric.explain.algorithm import PGExplainer as Network
from torch_geometric.explain.config import ExplainerConfig
from torch_geometric.nn import MessagePassing

from graphsvx.core.data import check_graph
from graphsvx.core.model import Output, Scale, evaluation_mode
from graphsvx.core.query import Query, build_query, node_list
from graphsvx.errors import DataError, InputError, ModelError, UnsupportedError, first_line
from graphsvx.estimators.direct import mask_as_credit
from graphsvx.generators.replace import SoftEdges
from graphsvx.methods.baseline import Baseline, Block, Blocks, Properties, game_report
from graphsvx.methods.local_graph import LocalGraph, local_graph_of, model_restored
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import Checked, Count, Positive, Rate
from graphsvx.utils.files import as_path, atomic_write

_FORM = {"format": "graphsvx.pgexplainer", "version": 1}
_NO_INFLUENCE = "does not require grad", "Could not compute gradients"
"""What torch and PyG say of masks that do not reach the output."""


# --- the model as PyG's algorithms take it ---------------------------------------------------


class PyGQuestion(nn.Module):
    """One explained output as PyG's algorithms take it: a model, its input and its target.

    The model is in eval mode. A single output is read as the logit or probability of the second of
    two classes; in a regression only the explained output is seen.
    """

    def __init__(self, graph: LocalGraph, output: int, index: Tensor | None = None) -> None:
        """Of the explained nodes or graph; with `index`, of all nodes, among which it is one."""
        super().__init__()
        model = graph.query.model
        if isinstance(model.call, nn.Module):
            self.module = model.call
        self.graph, self.index = graph, index
        self.column = output if model.scale == "value" else None
        # PyG restores *this* flag on all submodules after it has read embeddings.
        self.training = False
        with torch.no_grad():
            out = self(graph.x, graph.edge_index)
        is_class = self.column is None
        self.target = torch.full((len(out),), output, device=out.device) if is_class else out

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Raw outputs as the losses of the algorithms need them."""
        out = self.graph.outputs(x, edge_index=edge_index)
        if self.index is None:
            out = self.graph.explained(out)
        return as_classes(out, self.graph.query.model.output, self.column)

    def put_to(self, algorithm: Callable[..., Any]) -> Any:
        """What the algorithm, or its method for training, returns."""
        graph = self.graph
        return algorithm(self, graph.x, graph.edge_index, target=self.target, index=self.index)


def as_classes(out: Tensor, output: str, column: int | None) -> Tensor:
    """Outputs of at least two classes, or of a single `column`; `output` says what they are."""
    if column is not None:
        return out[:, column : column + 1]
    if out.shape[-1] > 1:
        return out
    if output == "raw":
        return torch.cat([torch.zeros_like(out), out], -1)
    if output == "probs":
        return torch.cat([1 - out, out], -1)
    return torch.cat([torch.log1p(-out.exp()), out], -1)


def configured(algorithm: Any, query: Query, **mask_types: str | None) -> Any:
    """An algorithm of PyG that knows what it learns and how the model's output is to be read."""
    regression = query.model.scale == "value"
    config = ModelConfig(
        mode="regression" if regression else "multiclass_classification",
        task_level="graph" if query.kind == "graph" else "node",
        return_type="raw" if regression else query.model.output,
    )
    algorithm.connect(ExplainerConfig(explanation_type="phenomenon", **mask_types), config)
    return algorithm


def require_message_passing(query: Query, method: object) -> None:
    """Raise an UnsupportedError unless the model has PyG layers that take an edge mask."""
    module, sets = query.model.call, [names[0] for names in query.graph.form.edge_sets]
    if sets:
        raise UnsupportedError(
            f"{type(method).__name__} weighs the messages along one edge_index, got a model of "
            f"{', '.join(sets)}; use GraphSVX or Greedy"
        )
    layers = module.modules() if isinstance(module, nn.Module) else ()
    if not any(
        isinstance(layer, MessagePassing) and layer.explain is not False for layer in layers
    ):
        raise UnsupportedError(
            f"{type(method).__name__} weighs messages, so it needs a torch module with PyG "
            f"MessagePassing layers, got {type(module).__name__} without any; use GraphSVX, "
            f"Greedy or PGMExplainer, which only call the model"
        )


# --- GNNExplainer -----------------------------------------------------------------------------


@dataclass(frozen=True)
class GNNExplainer(Baseline):
    """PyG's GNNExplainer on the receptive field of the question.

    For a group of nodes one mask is learned for all of them together.
    """

    epochs: Count = 100
    lr: Rate = 0.01
    edges: bool = True
    """Learn M_E; needs a model of PyG layers."""
    features: bool = True
    """Learn M_F, one entry a column of X, for all nodes of the field together."""
    edge_size: float = 0.005
    edge_entropy: float = 1.0
    feature_size: float = 1.0
    feature_entropy: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.edges and not self.features:
            raise InputError("at least one of edges and features must be learned, got neither")

    def learn(self, question: PyGQuestion, seed: int) -> tuple[Tensor, Tensor]:
        """MASK: minimise H(Y | A * sigma(M_E), X * sigma(M_F)) + size + entropy.

        A kind of mask on which the output does not depend at all makes PyG's loss NaN (the mean
        over no entries); it is left out and its entries are 0.

        Raises:
            ModelError: no mask can be learned.

        """
        graph = question.graph
        zeros = graph.x.new_zeros(len(graph.edges)), graph.x.new_zeros(graph.x.shape[1])
        use_edges = self.edges and len(graph.edges) > 0
        attempts = (use_edges, self.features), (use_edges, False), (False, self.features)
        for with_edges, with_features in filter(any, attempts):
            torch.manual_seed(seed)
            algorithm = configured(
                Optimiser(
                    self.epochs,
                    self.lr,
                    edge_size=self.edge_size,
                    edge_ent=self.edge_entropy,
                    node_feat_size=self.feature_size,
                    node_feat_ent=self.feature_entropy,
                ),
                graph.query,
                node_mask_type="common_attributes" if with_features else None,
                edge_mask_type="object" if with_edges else None,
            )
            try:
                learned = question.put_to(algorithm)
            except (RuntimeError, ValueError) as error:
                if any(reason in str(error) for reason in _NO_INFLUENCE):
                    continue
                raise ModelError(f"the masks could not be learned: {error}") from error
            edges = learned.edge_mask if with_edges else zeros[0]
            features = learned.node_mask.reshape(-1) if with_features else zeros[1]
            if bool(edges.isfinite().all()) and bool(features.isfinite().all()):
                return edges, features
        return zeros

    blocks: ClassVar[Blocks] = Blocks(
        title="GNNExplainer",
        mask=Block("M_E, M_F continuous, learned through f to maximise mutual information", learn),
        gen=Block("A' = A * sigma(M_E), X' = X * sigma(M_F)", SoftEdges),
        expl=Block("the masks themselves", mask_as_credit),
        explains=("edges", "features"),
        meaning="weight of a learned mask between 0 and 1: how much of the edge's messages, or "
        "of the feature, is needed to keep the prediction",
        properties=Properties(general=True, selective=True),
        source="Ying et al. 2019",
        package="torch_geometric",
    )

    def explain(self, query: Query, seed: int) -> Explanation:
        """Learn masks for each explained output."""
        if self.edges:
            require_message_passing(query, self)
        local_graph = local_graph_of(query, seed)
        prediction = local_graph.prediction()
        with model_restored(query.model.call):
            masks = [self.learn(PyGQuestion(local_graph, k), seed) for k in prediction.outputs]
        inner = local_graph.inner_edges[: None if self.edges else 0]
        columns = torch.arange(local_graph.x.shape[1] if self.features else 0)
        calls = self.epochs * len(masks)
        ends = local_graph.edge_ids()[:, : len(inner)]
        scores = tuple(
            float(self._masked_scores(local_graph, *mask)[output])
            for mask, output in zip(masks, prediction.outputs, strict=True)
        )
        return self.record(
            seed,
            prediction,
            edges=mask_as_credit(ends, [edges.cpu()[inner] for edges, _ in masks]),
            features=mask_as_credit(columns, [part[: len(columns)] for _, part in masks]),
            game=game_report("masks", len(inner) + len(columns), calls, "Learned"),
            masked_scores=scores,
        )

    def _masked_scores(self, local_graph: LocalGraph, edges: Tensor, features: Tensor) -> Tensor:
        """The scores that the masked graph still has: what the masks are worth."""
        x, module = local_graph.x, local_graph.query.model.call
        x = x * features if self.features else x
        with model_restored(module), torch.no_grad():
            if self.edges and isinstance(module, nn.Module):
                SoftEdges()(module, local_graph.edge_index, edges)
            return local_graph.scores(x)


# --- PGExplainer ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Trained(Checked):
    """Weights of the edge network, the level of its queries and their number."""

    weights: Mapping[str, Tensor]
    level: Literal["node", "graph"]
    questions: Count


@dataclass(frozen=True)
class PGExplainer(Baseline):
    """PyG's PGExplainer. `fit` returns a trained copy, which can explain.

    The network takes the embeddings of an edge's ends (and of the explained node), so it also
    explains nodes and graphs that it was not trained on.
    """

    epochs: Count = 30
    lr: Rate = 0.003
    size: float = 0.05
    """Weight of the mask's size in the loss."""
    entropy: float = 1.0
    """Weight of the mask's entropy in the loss."""
    temperature: tuple[Positive, Positive] = (5.0, 2.0)
    """First and last temperature of the concrete distribution."""
    trained: Trained | None = field(default=None, repr=False, compare=False)

    def network(self, query: Query) -> Any:
        """MASK: PyG's algorithm, as it was trained or with weights of torch's random state."""
        algorithm = configured(Network(self.epochs, self.lr), query, edge_mask_type="object")
        # On the instance: PyG's constructor writes settings into the class, for everyone.
        weights = {"edge_size": self.size, "edge_ent": self.entropy}
        algorithm.coeffs = {**Network.coeffs, **weights, "temp": list(self.temperature)}
        if self.trained is not None:
            state = dict(self.trained.weights)
            with torch.no_grad():  # lazy layers take their shape
                algorithm.mlp(torch.zeros(1, state["0.weight"].shape[1]))
            algorithm.mlp.to(state["0.weight"].dtype).load_state_dict(state)
            algorithm._curr_epoch = self.epochs
        algorithm.mlp.to(query.graph.x)
        return algorithm

    blocks: ClassVar[Blocks] = Blocks(
        title="PGExplainer",
        mask=Block("M_E = MLP(z_u, z_v, z_centre), trained through f on many questions", network),
        gen=Block("A' = A * rho(M_E), rho a concrete sample while training", SoftEdges),
        expl=Block("the mask itself", mask_as_credit),
        explains=("edges",),
        meaning="probability between 0 and 1 that the trained network gives the edge of being "
        "needed for the prediction",
        properties=Properties(general=True),
        source="Luo et al. 2020",
        package="torch_geometric",
        notes="inductive; once trained, another seed changes nothing",
    )

    def fit(
        self,
        model: Callable[..., Any],
        data: Any,
        *,
        nodes: Sequence[int] | Tensor | None = None,
        target: int | None = None,
        output: Output = "raw",
        scale: Scale = "probability",
        seed: int = 0,
    ) -> PGExplainer:
        """Train on the predictions for `nodes` of `data`, or for each graph of the list `data`.

        `target`: the class or output to keep; the predicted class of each by default.

        Raises:
            InputError: there is nothing to train on.
            ModelError: training breaks down (the loss is not finite).

        """
        options: dict[str, Any] = {"output": output, "scale": scale, "target": target}
        if nodes is not None:
            node_ids = node_list(nodes, check_graph(data).num_nodes)
            queries = [build_query(model, data, node=node, **options) for node in node_ids]
        else:
            graphs = data if isinstance(data, Iterable) and not hasattr(data, "x") else [data]
            queries = [build_query(model, graph, graph=True, **options) for graph in graphs]
        if not queries:
            raise InputError("fit needs at least one node or graph, got none")
        require_message_passing(queries[0], self)
        with evaluation_mode(queries[0].model.submodules):
            questions = [_question(query, seed) for query in queries]
            with model_restored(model):
                torch.manual_seed(seed)
                algorithm = replace(self, trained=None).network(queries[0])
                self._train(algorithm, questions)
        state = algorithm.mlp.state_dict()
        weights = {name: w.detach().cpu().clone().contiguous() for name, w in state.items()}
        level: Literal["node", "graph"] = "graph" if nodes is None else "node"
        return replace(self, trained=Trained(weights, level, len(queries)))

    def _train(self, algorithm: Any, questions: Sequence[PyGQuestion]) -> None:
        # The mean over no edges would be NaN.
        questions = [question for question in questions if len(question.graph.edges)]
        for epoch in range(self.epochs):
            for question in questions:
                with warnings.catch_warnings():
                    # PyG turns the loss into a float without detaching it, at the end of the step.
                    warnings.filterwarnings("ignore", "Converting a tensor with requires_grad=True")
                    loss = question.put_to(partial(algorithm.train, epoch))
                if not np.isfinite(loss):
                    raise ModelError(
                        f"training broke down: the loss is {loss} in epoch {epoch}; "
                        f"lower lr (it is {self.lr})"
                    )

    def explain(self, query: Query, seed: int) -> Explanation:
        """One pass of the trained network over the edges; the mean of a group's nodes.

        Raises:
            UnsupportedError: the method is not trained, or was trained for other questions.

        """
        require_message_passing(query, self)
        level = "graph" if query.kind == "graph" else "node"
        if self.trained is None:
            raise UnsupportedError(
                "PGExplainer must be trained before it explains: "
                "PGExplainer().fit(model, data, nodes=[...]), or fit(model, [graph, ...])"
            )
        if self.trained.level != level:
            raise UnsupportedError(
                f"this PGExplainer was trained on {self.trained.level}s, got a question about a "
                f"{level}; train another one"
            )
        local_graph = local_graph_of(query, seed)
        prediction, parts = local_graph.prediction(), [query]
        if query.kind == "nodes":
            centres = np.split(query.centres, len(query.centres))
            parts = [replace(query, kind="node", centres=centre) for centre in centres]
        inner = local_graph.edges[local_graph.inner_edges.numpy()]
        with model_restored(query.model.call):
            rows = [
                torch.stack([self._mask(_question(part, seed, output), inner) for part in parts])
                for output in prediction.outputs
            ]
        credit = mask_as_credit(local_graph.edge_ids(), [masks.mean(0) for masks in rows])
        report = game_report("edges", len(inner), len(parts), "EdgeNetwork")
        details = {"questions_trained_on": self.trained.questions}
        return self.record(seed, prediction, edges=credit, game=report, **details)

    def _mask(self, question: PyGQuestion, edges: np.ndarray) -> Tensor:
        """The mask of a single node or graph at these edges, 0 outside its field."""
        graph = question.graph
        try:
            mask: Tensor = question.put_to(self.network(graph.query)).edge_mask.detach().cpu()
        except RuntimeError as error:
            raise InputError(
                f"this PGExplainer was trained for a model with other embeddings: {error}"
            ) from error
        _, to, source = np.intersect1d(edges, graph.edges, return_indices=True)
        values = mask.new_zeros(len(edges))
        values[to] = mask[source]
        return values

    def save(self, path: str | Path) -> None:
        """Write weights and settings to one safetensors file.

        Raises:
            InputError: it has not been trained.

        """
        if self.trained is None:
            raise InputError("there is nothing to save before fit()")
        settings = {name: value for name, value in vars(self).items() if name != "trained"}
        about = {"level": self.trained.level, "questions": self.trained.questions}
        card = {**_FORM, **about, "settings": settings}
        with atomic_write(path) as part:
            save_file(dict(self.trained.weights), part, metadata={"card": json.dumps(card)})

    @staticmethod
    def load(path: str | Path) -> PGExplainer:
        """Read a file that `save` wrote.

        Raises:
            DataError: the file is missing, damaged, or of another version.

        """
        try:
            with safe_open(as_path(path), framework="pt") as file:
                card = json.loads((file.metadata() or {})["card"])
                weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (no mapping)
            if {name: card[name] for name in _FORM} != _FORM:
                raise ValueError(f"it is not of the form {_FORM}")
            trained = Trained(weights, card["level"], card["questions"])
            return PGExplainer(**card["settings"], trained=trained)
        except FileNotFoundError:
            raise DataError(f"there is no file {str(path)!r}") from None
        except (SafetensorError, OSError, ValueError, RecursionError, KeyError, TypeError) as error:
            reason = f"no {error}" if isinstance(error, KeyError) else first_line(error)
            raise DataError(f"{str(path)!r} is no saved PGExplainer: {reason}") from error


def _question(query: Query, seed: int, output: int | None = None) -> PyGQuestion:
    """What the edge network is asked of one node or graph.

    Its graph is wider than the receptive field: the network takes the last layer's embeddings of
    all nodes of the field, which depend on the receptive fields of these nodes.
    """
    local_graph = local_graph_of(query, seed)
    if output is None:
        output = query.choose_outputs(local_graph.scores())[1]
    if query.kind == "graph":
        return PyGQuestion(local_graph, output)
    field = local_graph.evaluator.field
    wide = replace(query, kind="nodes", centres=np.sort(field.ids[: field.size]))
    local_graph = local_graph_of(wide, seed)
    index = torch.from_numpy(np.searchsorted(local_graph.ids, query.centres))
    return PyGQuestion(local_graph, output, index)
