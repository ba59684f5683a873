"""MASK with feedback: masks learned through the model, PyG's algorithms inside.

Learned       GNNExplainer: M_E and M_F, optimised for one question
EdgeNetwork   PGExplainer: M_E = MLP(z_u, z_v, z_centre), trained once for many questions
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.explain import ModelConfig
from torch_geometric.explain.algorithm import GNNExplainer as Optimiser
from torch_geometric.explain.algorithm import PGExplainer as Network
from torch_geometric.explain.config import ExplainerConfig

from graphsvx.errors import ModelError
from graphsvx.utils.constraints import Checked, Count, Positive, Rate

Call = Any
"""(x, edge_index) -> raw outputs at the explained nodes or for the whole graph."""


class Reader(nn.Module):
    """The explained model as PyG's algorithms call it: eval mode, outputs as its losses need them.

    A single output is read as the logit or probability of the second of two classes; in a
    regression only the explained output is seen.
    """

    def __init__(self, module: object, call: Call, output: str, column: int | None) -> None:
        super().__init__()
        if isinstance(module, nn.Module):
            self.module = module
        self.call = call
        self.output = output
        self.column = column
        # PyG restores *this* flag on all submodules after it has read embeddings.
        self.training = False

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Raw outputs."""
        out: Tensor = self.call(x, edge_index)
        if self.column is not None:
            return out[:, self.column : self.column + 1]
        if out.shape[-1] > 1:
            return out
        if self.output == "raw":
            return torch.cat([torch.zeros_like(out), out], -1)
        if self.output == "probs":
            return torch.cat([1 - out, out], -1)
        return torch.cat([torch.log1p(-out.exp()), out], -1)


def model_config(output: str, regression: bool, whole_graphs: bool) -> ModelConfig:
    """What PyG needs to know about the model."""
    return ModelConfig(
        mode="regression" if regression else "multiclass_classification",
        task_level="graph" if whole_graphs else "node",
        return_type="raw" if regression else output,
    )


@dataclass(frozen=True, eq=False)
class SoftMasks:
    """Learned masks with entries in [0, 1]; None where a kind was not learned."""

    edges: Tensor | None
    features: Tensor | None


@dataclass(frozen=True)
class Learned(Checked):
    """GNNExplainer's MASK: minimise H(Y | A * sigma(M_E), X * sigma(M_F)) + size + entropy."""

    epochs: Count = 100
    lr: Rate = 0.01
    edges: bool = True
    features: bool = True
    coefficients: tuple[tuple[str, float], ...] = ()
    """Weights of the loss that differ from PyG's: edge_size, edge_ent, node_feat_size, ..."""

    def __call__(
        self,
        reader: Reader,
        config: ModelConfig,
        x: Tensor,
        edge_index: Tensor,
        *,
        target: Tensor,
        seed: int,
    ) -> SoftMasks:
        """Masks for the outputs that `reader` returns and their `target`.

        A kind of mask on which the output does not depend at all makes PyG's loss NaN (the mean
        over no entries); it is left out and its entries are 0.
        """
        for with_edges, with_features in _tries(self.edges, self.features):
            use_edges = with_edges and edge_index.shape[1] > 0
            if not use_edges and not with_features:
                continue
            torch.manual_seed(seed)
            algorithm = Optimiser(self.epochs, self.lr, **dict(self.coefficients))
            algorithm.connect(
                ExplainerConfig(
                    explanation_type="phenomenon",
                    node_mask_type="common_attributes" if with_features else None,
                    edge_mask_type="object" if use_edges else None,
                ),
                config,
            )
            try:
                result = algorithm(reader, x, edge_index, target=target)
            except RuntimeError as error:
                if "does not require grad" in str(error):
                    continue  # neither mask reaches the output
                raise ModelError(f"the masks could not be learned: {error}") from error
            except ValueError as error:
                if "Could not compute gradients" not in str(error):
                    raise
                continue  # one of the masks does not reach the output
            learned = SoftMasks(result.get("edge_mask"), result.get("node_mask"))
            if all(
                mask is None or bool(mask.isfinite().all())
                for mask in (learned.edges, learned.features)
            ):
                return self._filled(learned, x, edge_index)
        return self._filled(SoftMasks(None, None), x, edge_index)

    def _filled(self, masks: SoftMasks, x: Tensor, edge_index: Tensor) -> SoftMasks:
        edges, features = masks.edges, masks.features
        if self.edges and edges is None:
            edges = x.new_zeros(edge_index.shape[1])
        if self.features:
            features = x.new_zeros(x.shape[1]) if features is None else features.reshape(-1)
        return SoftMasks(edges, features)


def _tries(edges: bool, features: bool) -> list[tuple[bool, bool]]:
    attempts = [(edges, features)]
    if edges and features:
        attempts += [(True, False), (False, True)]
    return attempts


@dataclass(frozen=True)
class EdgeNetwork(Checked):
    """PGExplainer's MASK: one network for all edges of all questions."""

    epochs: Count = 30
    lr: Rate = 0.003
    size: float = 0.05
    """Weight of the mask's size in the loss (PyG: edge_size)."""
    entropy: float = 1.0
    """Weight of the mask's entropy (PyG: edge_ent)."""
    temperature: tuple[Positive, Positive] = (5.0, 2.0)

    def make(self, config: ModelConfig) -> Any:
        """PyG's algorithm with fresh weights; they come from torch's global random state."""
        algorithm = Network(self.epochs, self.lr)
        # On the instance: PyG's constructor writes settings into the class, for everyone.
        algorithm.coeffs = {
            **Network.coeffs,
            "edge_size": self.size,
            "edge_ent": self.entropy,
            "temp": list(self.temperature),
        }
        explainer = ExplainerConfig(explanation_type="phenomenon", edge_mask_type="object")
        algorithm.connect(explainer, config)
        return algorithm

    def restored(self, config: ModelConfig, state: Mapping[str, Tensor]) -> Any:
        """PyG's algorithm with trained weights."""
        algorithm = self.make(config)
        width = state["0.weight"].shape[1]
        with torch.no_grad():
            algorithm.mlp(torch.zeros(1, width))  # lazy layers take their shape
        algorithm.mlp.to(state["0.weight"].dtype).load_state_dict(dict(state))
        algorithm._curr_epoch = self.epochs
        return algorithm
