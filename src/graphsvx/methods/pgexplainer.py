"""PGExplainer: a network trained on many queries that predicts the edge mask of a new one."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from graphsvx.core.graph import check_graph
from graphsvx.core.model import Output, Scale
from graphsvx.core.modules import evaluation_mode
from graphsvx.core.query import Query, build_query, node_list
from graphsvx.errors import DataError, InputError, ModelError, UnsupportedError, first_line
from graphsvx.estimators.direct import mask_as_credit
from graphsvx.generators.replace import SoftEdges
from graphsvx.masks.learned import EdgeNetwork, Reader
from graphsvx.methods.base import Block, Blocks, Properties
from graphsvx.methods.baseline import Baseline, build_explanation, game_report
from graphsvx.methods.local_graph import (
    LocalGraph,
    local_graph_of,
    message_passing_module,
    model_restored,
)
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import Checked, Count, Positive, Rate
from graphsvx.utils.files import as_path, atomic_write

FORMAT = "graphsvx.pgexplainer"
VERSION = 1


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

    blocks: ClassVar[Blocks] = Blocks(
        title="PGExplainer",
        mask=Block(
            "M_E = MLP(z_u, z_v, z_centre), trained through f on many questions", EdgeNetwork
        ),
        gen=Block("A' = A * rho(M_E), rho a concrete sample while training", SoftEdges),
        expl=Block("the mask itself", mask_as_credit),
        explains=("edges",),
        tasks=("node", "nodes", "graph"),
        properties=Properties(general=True),
        source="Luo et al. 2020",
        package="torch_geometric",
        notes="inductive; once trained, another seed changes nothing",
    )

    @property
    def mask(self) -> EdgeNetwork:
        """MASK with these settings."""
        return EdgeNetwork(self.epochs, self.lr, self.size, self.entropy, self.temperature)

    # --- training -----------------------------------------------------------------------

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
        message_passing_module(queries[0], self)
        with evaluation_mode(queries[0].model.submodules):
            training_queries = [_TrainingQuery.of(query, seed) for query in queries]
            with model_restored(model):
                torch.manual_seed(seed)
                algorithm = self.mask.make(training_queries[0].config)
                algorithm.mlp.to(training_queries[0].local_graph.x)
                for epoch in range(self.epochs):
                    for query in training_queries:
                        loss = query.train(algorithm, epoch)
                        if not np.isfinite(loss):
                            raise ModelError(
                                f"training broke down: the loss is {loss} in epoch {epoch}; "
                                f"lower lr (it is {self.lr})"
                            )
        weights = {
            k: v.detach().cpu().clone().contiguous() for k, v in algorithm.mlp.state_dict().items()
        }
        level: Literal["node", "graph"] = "node" if nodes is not None else "graph"
        return replace(self, trained=Trained(weights, level, len(queries)))

    # --- explaining ---------------------------------------------------------------------

    def explain(self, query: Query, seed: int) -> Explanation:
        """Predict the mask of the field's edges; for a group, the mean over its nodes."""
        message_passing_module(query, self)
        trained = self._ready(query)
        local_graph = local_graph_of(query, seed)
        prediction, parts = local_graph.prediction(), [query]
        if query.kind == "nodes":
            centres = np.split(query.centres, len(query.centres))
            parts = [replace(query, kind="node", centres=centre) for centre in centres]
        rows = []
        with model_restored(query.model.call):
            for output in prediction.outputs:
                questions = [_TrainingQuery.of(part, seed, output) for part in parts]
                masks = [self._mask(local_graph, question, trained) for question in questions]
                rows.append(torch.stack(masks).mean(0))
        return build_explanation(
            self,
            seed,
            prediction,
            edges=mask_as_credit(local_graph.edge_ids(), rows),
            meaning=(
                "probability between 0 and 1 that the trained network gives the edge of being "
                "needed for the prediction"
            ),
            game=game_report("edges", rows[0].shape[0], len(parts), "EdgeNetwork"),
            questions_trained_on=trained.questions,
        )

    def _ready(self, query: Query) -> Trained:
        if self.trained is None:
            raise UnsupportedError(
                "PGExplainer must be trained before it explains: "
                "PGExplainer().fit(model, data, nodes=[...]), or fit(model, [graph, ...])"
            )
        level = "graph" if query.kind == "graph" else "node"
        if self.trained.level != level:
            raise UnsupportedError(
                f"this PGExplainer was trained on {self.trained.level}s, got a question about a "
                f"{level}; train another one"
            )
        return self.trained

    def _mask(self, local_graph: LocalGraph, wider: _TrainingQuery, trained: Trained) -> Tensor:
        """The mask of a single node or graph, over the edges of the query's field."""
        algorithm = self.mask.restored(wider.config, trained.weights)
        algorithm.mlp.to(wider.local_graph.x)
        try:
            mask: Tensor = wider.explain(algorithm)
        except RuntimeError as error:
            raise InputError(
                f"this PGExplainer was trained for a model with other embeddings: {error}"
            ) from error
        inner = local_graph.edges[local_graph.inner_edges.numpy()]
        # A group's field is wider than that of each of its nodes: edges outside the latter get 0.
        position = np.searchsorted(wider.local_graph.edges, inner).clip(
            max=max(0, len(wider.local_graph.edges) - 1)
        )
        if len(wider.local_graph.edges) == 0:
            return torch.zeros(len(inner))
        present = wider.local_graph.edges[position] == inner
        return torch.where(torch.from_numpy(present), mask.detach().cpu()[position], 0.0)

    # --- files --------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write weights and settings to one safetensors file.

        Raises:
            InputError: it has not been trained.

        """
        if self.trained is None:
            raise InputError("there is nothing to save before fit()")
        settings = {k: v for k, v in asdict(replace(self, trained=None)).items() if k != "trained"}
        card = {
            "format": FORMAT,
            "version": VERSION,
            "level": self.trained.level,
            "questions": self.trained.questions,
            "settings": settings,
        }
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
                card = json.loads((file.metadata() or {}).get("card", "{}"))
                weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (no mapping)
        except FileNotFoundError:
            raise DataError(f"there is no file {str(path)!r}") from None
        except (SafetensorError, OSError, json.JSONDecodeError, RecursionError) as error:
            raise DataError(f"{str(path)!r} is no saved PGExplainer: {error}") from error
        if not isinstance(card, dict) or (card.get("format"), card.get("version")) != (
            FORMAT,
            VERSION,
        ):
            raise DataError(f"{str(path)!r} is no PGExplainer of version {VERSION}")
        try:
            trained = Trained(weights, card["level"], card["questions"])
            return PGExplainer(**card["settings"], trained=trained)
        except (InputError, KeyError, TypeError) as error:
            raise DataError(f"{str(path)!r} is damaged: {first_line(error)}") from error


@dataclass(frozen=True, eq=False)
class _TrainingQuery:
    """The arguments of PyG's PGExplainer for one query.

    `local_graph` is wider than the query's receptive field: the network takes the last layer's
    embeddings of all nodes of the field, which depend on the receptive fields of these nodes.
    """

    local_graph: LocalGraph
    reader: Reader
    config: Any
    target: Tensor
    index: Tensor | None

    @staticmethod
    def of(query: Query, seed: int, output: int | None = None) -> _TrainingQuery:
        local_graph = local_graph_of(query, seed)
        if output is None:
            output = query.choose_outputs(local_graph.scores())[1]
        index = None
        if query.kind != "graph":
            field = local_graph.evaluator.field
            wide = replace(query, kind="nodes", centres=np.sort(field.ids[: field.size]))
            local_graph = local_graph_of(wide, seed)
            index = torch.from_numpy(np.searchsorted(local_graph.ids, query.centres))
        return _TrainingQuery(local_graph, *local_graph.for_pyg(output, centres_only=False), index)

    def train(self, algorithm: Any, epoch: int) -> float:
        """One training step; returns the loss."""
        if self.local_graph.edge_index.shape[1] == 0:
            return 0.0  # the mean over no edges would be NaN
        with warnings.catch_warnings():
            # PyG turns the loss into a float without detaching it, at the end of the step.
            warnings.filterwarnings("ignore", "Converting a tensor with requires_grad=True")
            loss: float = algorithm.train(
                epoch,
                self.reader,
                self.local_graph.x,
                self.local_graph.edge_index,
                target=self.target,
                index=self.index,
            )
        return loss

    def explain(self, algorithm: Any) -> Tensor:
        """Edge mask [edges] of `local_graph`."""
        result = algorithm(
            self.reader,
            self.local_graph.x,
            self.local_graph.edge_index,
            target=self.target,
            index=self.index,
        )
        mask: Tensor = result.edge_mask
        return mask
