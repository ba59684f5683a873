"""The explained model f: how it is called, and how its output becomes a score."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn

from graphsvx.core.callers import Inputs, values_by_type
from graphsvx.core.calling import USUAL, CallPlan, plan_call, signature_of
from graphsvx.core.graph import Graph
from graphsvx.core.modules import call_without_writing, modules
from graphsvx.core.readable import unreadable
from graphsvx.errors import InputError, ModelError, error_text, see
from graphsvx.utils.constraints import checked
from graphsvx.utils.interruption import stop_if_unwanted

Output = Literal["raw", "class", "probs", "log_probs", "multilabel", "regression"]
Reading = Literal["raw", "probs", "log_probs", "multilabel", "multilabel_probs", "values"]
"""What outputs are: scores of classes, their (log-)probabilities, logits or probabilities of
labels that do not exclude each other, or plain values."""
Scale = Literal["probability", "logit", "log_odds", "value"]
Pick = Callable[[Any], Any]
"""A function from the model's return value to the scores."""

_NAMED_OUTPUTS: dict[str, Reading] = {
    "raw": "raw",
    "class": "raw",
    "probs": "probs",
    "log_probs": "log_probs",
    "multilabel": "multilabel",
    "regression": "values",
}


@dataclass(frozen=True, eq=False)
class Model:
    """A model with its call signature and the meaning of its output."""

    call: Callable[..., Any]
    plan: CallPlan = USUAL
    output: Reading = "raw"
    scale: Scale = "probability"
    whole_graphs: bool = False
    """Whether the model returns one row per graph."""
    pick: Pick | None = None
    """Finds the scores in a tuple, dictionary or other object that the model returns."""
    output_is_given: bool = True
    """False: the meaning of the outputs is inferred by `graphsvx.engine.reading`."""
    scale_is_given: bool = True

    def __call__(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
        batch: Tensor | None = None,
        pairs: Tensor | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> Tensor:
        """The model's raw output for one graph, [nodes, graphs or pairs, outputs]."""
        inputs = {
            "batch": batch,  # of nodes of a batch of graphs: one of the attributes
            **(attributes or {}),
            "x": x,
            "edge_index": edge_index,
            "edge_weight": edge_weight,
            "edge_attr": edge_attr,
            "edge_label_index": pairs,
            "num_nodes": x.shape[0],
        }
        stop_if_unwanted()
        try:
            out = self.returned(inputs)
        except (KeyboardInterrupt, MemoryError):
            raise
        except (Exception, SystemExit) as error:
            raise ModelError(
                f"the model failed on a graph with {x.shape[0]} nodes and {edge_index.shape[1]} "
                f"edges: {error_text(error)}{self._advice(x, edge_index, error)}"
                + see("the-model-failed")
            ) from error
        if not isinstance(out, Tensor):
            raise ModelError(no_tensor(out, self.pick is not None))
        must_be_real(out)
        rows = x.shape[0]
        if self.whole_graphs:
            rows = 1 if batch is None else int(batch[-1]) + 1
        if self.scores_pairs and pairs is not None:
            rows = pairs.shape[1]
        if out.dim() == 1 and out.shape[0] == rows:
            out = out[:, None]
        elif out.dim() == 1 and rows == 1 and self.whole_graphs and "batch" not in self.takes:
            out = out[None]
        if out.dim() != 2 or out.shape[0] != rows or out.shape[1] == 0:
            raise ModelError(
                f"the model must return a tensor of shape [{rows}, outputs], got "
                f"{list(out.shape)}{self._other_level(out, x.shape[0])}"
            )
        return out

    def returned(self, inputs: dict[str, Any]) -> Any:
        """The model's scores for a graph given by its attributes, which stay as they are."""
        return call_without_writing(self.call, self.returned_for, inputs)

    def returned_for(self, inputs: dict[str, Any]) -> Any:
        """The model's scores, extracted by `pick`; the model may write to the inputs."""
        if inputs["batch"] is None and "batch" in self.takes:
            x = inputs["x"]
            inputs["batch"] = torch.zeros(x.shape[0], dtype=torch.long, device=x.device)
        with torch.set_grad_enabled(torch.is_grad_enabled()):  # which the model may change
            out = self.plan(self.call, inputs)
        return out if self.pick is None else self.pick(out)

    def run(self, graph: Graph, inputs: Inputs, rows_of_tables: bool = False) -> Any:
        """The raw output for parts of a graph by type: a tensor, or one for each node type.

        `rows_of_tables`: parameters with a row for each node of a type are cut to the rows of the
        nodes that are there.
        """

        def call(values: dict[str, Any]) -> Any:
            with torch.set_grad_enabled(torch.is_grad_enabled()):  # which the model may change
                return self.plan(self.call, values, cut)

        try:
            cut = self.plan.cut(self.call, inputs.node_rows) if rows_of_tables else {}
            values = values_by_type(graph, inputs, self.plan)
            out = call_without_writing(self.call, call, values)
            return out if self.pick is None else self.pick(out)
        except (KeyboardInterrupt, MemoryError):
            raise
        except (Exception, SystemExit) as error:
            counts = {name: len(rows) for name, rows in inputs.node_rows.items()}
            raise ModelError(
                f"the model failed on a graph with {counts} nodes: {error_text(error)}"
                f"{self._other_numbers(inputs)}"
            ) from error

    def _other_numbers(self, inputs: Inputs) -> str:
        """Advice where features and weights have different devices or floating types."""
        device = next((x.device for x in inputs.edge_index.values()), None)
        if device is not None and (advice := on_other_device(self.submodules, device)):
            return f"; {advice}"
        weights = {
            w.dtype
            for m in self.submodules
            for w in m._parameters.values()
            if w is not None and w.is_floating_point()
        }
        features = {x.dtype for x in inputs.x.values() if x.is_floating_point()}
        if not weights or not features or weights == features:
            return ""
        of_features, of_weights = (
            " and ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
            for dtypes in (features, weights)
        )
        return (
            f"; features are {of_features}, weights {of_weights}: convert the model "
            f"(model.double()) or x of each type (data[type].x.float())"
        )

    def _other_level(self, out: Tensor, nodes: int) -> str:
        """Advice where a model of graphs is asked about nodes, or the other way round."""
        if self.whole_graphs and out.shape[:1] == (nodes,):
            return (
                "; it returns a row for each node: ask with node=..., or pool the rows "
                "into one for graph=True"
            )
        if (
            not self.whole_graphs
            and not self.scores_pairs
            and (out.dim() == 1 or out.shape[:1] == (1,))
        ):
            return "; it returns one row for the whole graph: ask with graph=True"
        return ""

    def _advice(self, x: Tensor, edge_index: Tensor, error: BaseException) -> str:
        """Advice for the usual reasons of a model's failure."""
        shape, parameter = self.plan.form.row_shape, next(iter(signature_of(self.call)), "data")
        elsewhere = on_other_device(self.submodules, x.device)
        hints = {
            elsewhere: elsewhere != "",
            "a graph in which players are switched off has few nodes or edges, over which this "
            "layer cannot normalise: use batch_norm or track_running_stats=True": (
                "Expected more than 1" in error_text(error)
            ),
            "without its players a graph may have no edges, which this model does not take: add "
            "self-loops to it (torch_geometric.transforms.AddSelfLoops())": not edge_index.shape[1],
            f"its one argument {parameter!r} was a Data object: if it is something else, give a "
            "function that computes it, as in def model(x, edge_index): return net(...)": (
                self.plan.as_data and parameter not in ("data", "batch", "graph", "g")
            ),
            "data has no x, so the model was given None": not self.plan.form.has_x,
            f"data.x is {x.dtype}: if these are numbers and not categories for an embedding, use "
            "data.x.float()": not x.is_floating_point(),
            f"data.x is of shape [nodes{''.join(f', {n}' for n in shape or ())}]": shape
            is not None,
        }
        return next((f"; {hint}" for hint, applies in hints.items() if applies), "")

    @property
    def takes(self) -> frozenset[str]:
        """Which of edge_weight, edge_attr, batch and edge_label_index are passed to it."""
        return self.plan.attributes & _OPTIONAL

    @cached_property
    def submodules(self) -> list[nn.Module]:
        """The module and all its submodules, listed at first access; empty for a function."""
        return modules(self.call)

    @property
    def scores_pairs(self) -> bool:
        """Whether the model takes pairs of nodes and returns one row per pair."""
        return "edge_label_index" in self.takes or self.plan.through == "encode and decode"

    def without_nodes(self, out: Tensor) -> Tensor:
        """Raw output for a graph without nodes, in the shape of `out`: values or logits of 0."""
        even = 0.5 if out.shape[-1] == 1 or self.output == "multilabel_probs" else 1 / out.shape[-1]
        value = {"probs": even, "multilabel_probs": even, "log_probs": math.log(even)}
        return torch.full_like(out, value.get(self.output, 0.0))

    def scores(self, out: Tensor) -> Tensor:
        """The explained scores: the model's output on the chosen scale, float64.

        A single output on a probability scale is read as the logit z (or probability) of the
        second of two classes; on the scale of logits, the first one has -z.
        """
        out = out.double()
        least, most = map(float, out.detach().aminmax() if out.numel() else (0, 0))
        # A certain prediction has log-probability -inf; that is a valid probability of 0.
        lowest = least > -math.inf or (self.output == "log_probs" and least == -math.inf)
        if not (lowest and most < math.inf):  # NaN is neither
            raise ModelError("the model returned NaN or infinite scores; nothing can be explained")
        if self.scale == "value":
            return out
        self._check_range(out, least, most)
        if self.output in ("multilabel", "multilabel_probs"):
            return self._label_scores(out)
        if out.shape[-1] == 1:
            out = self._two_classes(out)
        if self.scale == "probability":
            if self.output == "raw":
                return out.softmax(-1)
            return out if self.output == "probs" else out.exp()
        if self.output == "probs":
            out = out.log()
        return self._finite(out if self.scale == "logit" else log_odds(out))

    def _label_scores(self, out: Tensor) -> Tensor:
        """Labels that do not exclude each other: a sigmoid for each."""
        if self.scale == "probability":
            return out.sigmoid() if self.output == "multilabel" else out
        return self._finite(out if self.output == "multilabel" else out.logit())

    def _finite(self, scores: Tensor) -> Tensor:
        if not bool(torch.isfinite(scores).all()):
            raise ModelError(
                f"a probability of exactly 0 or 1 has no finite {self.scale}; "
                f'use scale="probability", or output="raw" with a model that returns logits'
            )
        return scores

    def _check_range(self, out: Tensor, least: float, most: float) -> None:
        """Raise if the outputs contradict `output` (for example no probabilities)."""
        if self.output == "raw":
            # A softmax is never 0 nor 1 nor the same everywhere; small whole numbers may sum to
            # 1 too.
            if least > 0 and most < 1 and out.shape[-1] > 1 and _looks_like_softmax(out):
                warnings.warn(
                    "the model seems to return probabilities, which would be squashed again; "
                    'if so, say output="probs"',
                    stacklevel=2,
                )
            return
        slack = 1e-3
        if self.output == "multilabel":
            return
        if self.output == "multilabel_probs":
            if not (least >= -slack and most <= 1 + slack):
                raise ModelError(
                    "the model seemed to return a probability for each label, but returned "
                    f'{least:.3g} to {most:.3g}; say what it returns by output="multilabel", '
                    '"class" or "regression"'
                )
            return
        sums = out.exp().sum(-1) if self.output == "log_probs" else out.sum(-1)
        sums_to_one = out.shape[-1] == 1 or bool(((sums - 1).abs() <= slack).all())
        if self.output == "probs" and not (least >= -slack and most <= 1 + slack and sums_to_one):
            raise ModelError(
                'output="probs" means probabilities that sum to 1, the model returned '
                f"{least:.3g} to {most:.3g}; say what it returns by "
                'output="raw", "probs" or "log_probs"'
            )
        if self.output == "log_probs" and not (most <= slack and sums_to_one):
            raise ModelError(
                'output="log_probs" means logarithms of probabilities, the model returned '
                f"{least:.3g} to {most:.3g}; say what it returns by "
                'output="raw", "probs" or "log_probs"'
            )

    def _two_classes(self, out: Tensor) -> Tensor:
        if self.output == "raw":
            # As a logit by itself, 0 would say nothing of the first class.
            first = -out if self.scale == "logit" else torch.zeros_like(out)
            return torch.cat([first, out], -1)
        if self.output == "probs":
            return torch.cat([1 - out, out], -1)
        return torch.cat([torch.log1p(-out.exp()), out], -1)


def rows_of(out: Any, node_type: str, rows: int) -> Tensor:
    """The outputs of the nodes of one type, [nodes, outputs]."""
    if isinstance(out, Mapping):
        if node_type not in out:
            example = (
                f"; if these are no node types, say output=lambda out: out[{next(iter(out))!r}]"
            )
            raise ModelError(
                f"the model returns outputs for the node types {sorted(map(str, out))}, "
                f"not for {node_type!r}{example}"
            )
        out = out[node_type]
    if not isinstance(out, Tensor):
        raise ModelError(no_tensor(out, picked=False))
    must_be_real(out)
    if out.dim() == 1 and out.shape[0] == rows:
        out = out[:, None]
    if out.dim() != 2 or out.shape[0] != rows or out.shape[1] == 0:
        raise ModelError(
            f"the model must return a tensor of shape [{rows}, outputs] for the {rows} nodes of "
            f"type {node_type!r}, got {list(out.shape)}"
        )
    return out


def on_other_device(submodules: list[nn.Module], device: torch.device) -> str:
    """Advice where weights of a model are on another device than the data; "" if none is."""
    weights = (w for m in submodules for w in (*m._parameters.values(), *m._buffers.values()))
    other = next((w.device for w in weights if w is not None and w.device != device), None)
    if other is None:
        return ""
    return f'the model is on {other} and the data on {device}: use model.to("{device}")'


def must_be_real(out: object) -> None:
    """Refuse outputs that are no plain real numbers; their scores would be something else."""
    if not isinstance(out, Tensor):
        return
    kind = unreadable(out)
    if kind is None and (out.dtype.is_complex or out.layout != torch.strided):
        kind = "a complex one" if out.dtype.is_complex else "a sparse one"
    if kind is not None:
        raise ModelError(
            f"the model must return real numbers in a dense tensor, got {kind}; wrap it in "
            f"a function that returns the scores"
        )


def _looks_like_softmax(out: Tensor) -> bool:
    """Whether all rows sum to 1 and at least four of them differ."""
    rows = out.reshape(-1, out.shape[-1])
    return bool(((rows.sum(-1) - 1).abs() <= 1e-5).all()) and len(torch.unique(rows, dim=0)) >= 4


def log_odds(logits: Tensor) -> Tensor:
    """log p_c / (1 - p_c) for every class, without leaving log space."""
    log_probs = logits.log_softmax(-1)
    # 1 - p loses digits where p is near 1. Only the largest can be above 1/2: its 1 - p is the
    # sum over the others, and its own p is set to 0, which also keeps gradients finite.
    best = logits.argmax(-1, keepdim=True)
    others = log_probs.scatter(-1, best, -torch.inf).logsumexp(-1, keepdim=True)
    rest = torch.log1p(-log_probs.exp().scatter(-1, best, 0.0))
    # Several largest ones stay equal, so that argmax chooses among them as among the logits.
    tied = (logits == logits.amax(-1, keepdim=True)).sum(-1, keepdim=True) > 1
    largest = log_probs.amax(-1, keepdim=True).exp().clamp(max=0.75)
    return log_probs - rest.scatter(-1, best, torch.where(tied, torch.log1p(-largest), others))


_OPTIONAL = frozenset(("edge_weight", "edge_attr", "batch", "edge_label_index"))


def no_tensor(out: Any, picked: bool) -> str:
    """Message for a model that returns something else than one tensor."""
    if picked:
        return f"the function given as output= must return one tensor, got {type(out).__name__}"
    example = "out[0]"
    if isinstance(out, Mapping):
        keys = list(out)
        example = f"out[{keys[0]!r}]" if keys else "out[...]"
        got = f"a dictionary with {', '.join(map(repr, keys))}"
    elif type(out).__name__ != "tuple" and (fields := _tensor_fields(out)):
        example = f"out.{'logits' if 'logits' in fields else fields[0]}"
        got = f"{type(out).__name__} with {', '.join(fields)}"
    else:
        got = type(out).__name__
        got += f" of {len(out)}" if isinstance(out, (tuple, list)) else ""
    return (
        f"the model must return one tensor, got {got}; say where the scores are by a function, "
        f"such as output=lambda out: {example}{see('the-model-must-return-one-tensor')}"
    )


def _tensor_fields(out: Any) -> list[str]:
    """Attributes of a dataclass, named tuple or object that are tensors."""
    names = getattr(out, "_fields", None) or list(getattr(out, "__dict__", ()))
    return [name for name in names if isinstance(getattr(out, name, None), Tensor)]


def check_model(
    model: Callable[..., Any],
    graph: Graph,
    output: Output | Pick | None = "raw",
    scale: Scale | None = "probability",
    whole_graphs: bool = False,
    links: bool = False,
    plan: CallPlan | None = None,
) -> Model:
    """Validate the model and the description of its outputs.

    `plan`: how it is called; as (x, edge_index) and what else it takes of `graph` by default.
    """
    if not callable(model):
        raise InputError(f"model must be a module or a callable, got {type(model).__name__}")
    if plan is None:
        plan = plan_call(
            model, graph, arguments=None, whole_graphs=whole_graphs, links=links, decoder=False
        )
    return Model(model, plan, whole_graphs=whole_graphs, **_read_outputs(output, scale))


def _read_outputs(output: Output | Pick | None, scale: Scale | None) -> dict[str, Any]:
    """Fields of a `Model` that say what its outputs are, validated."""
    pick: Pick | None = None
    if callable(output):
        pick, output = output, None if scale is None else "raw"
    name = checked(output, Output | None, "output")
    scale_name = checked(scale, Scale | None, "scale")
    if name == "regression" and scale_name not in (None, "value"):
        raise InputError(
            f'output="regression" has values, not classes: scale must be "value", got {scale!r}'
        )
    return {
        "output": _NAMED_OUTPUTS[name or "raw"],
        "scale": scale_name or ("value" if name == "regression" else "probability"),
        "pick": pick,
        "output_is_given": name is not None,
        "scale_is_given": scale_name is not None,
    }


def call_on(model: Model, graph: Graph) -> Tensor:
    """The model's raw output for a whole graph; for models of pairs, of the pair (0, 0)."""
    device = graph.x.device
    return model(
        graph.x,
        graph.edge_index,
        graph.edge_weight,
        graph.edge_attr,
        torch.zeros(graph.num_nodes, dtype=torch.long, device=device)
        if model.whole_graphs
        else None,
        torch.zeros(2, 1, dtype=torch.long, device=device) if model.scores_pairs else None,
        graph.attributes_at(None, None),
    )
