"""The explained model f: how it is called, and how its output becomes a score."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from types import FunctionType, MethodType
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from graphsvx.core.graph import Graph
from graphsvx.errors import InputError, ModelError
from graphsvx.utils.constraints import checked
from graphsvx.utils.exclusive import exclusive, taking_back

Output = Literal["raw", "probs", "log_probs"]
Scale = Literal["probability", "logit", "log_odds", "value"]

_PARAMETERS: WeakKeyDictionary[Any, Mapping[str, inspect.Parameter]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Model:
    """A model with its call signature and the meaning of its output."""

    call: Callable[..., Any]
    takes: frozenset[str]
    """Which of edge_weight, edge_attr, batch and edge_label_index are passed to it."""
    output: Output = "raw"
    scale: Scale = "probability"

    def __call__(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
        batch: Tensor | None = None,
        pairs: Tensor | None = None,
    ) -> Tensor:
        """The model's raw output for one graph, [nodes, graphs or pairs, outputs]."""
        given = {
            "edge_weight": edge_weight,
            "edge_attr": edge_attr,
            "batch": batch,
            "edge_label_index": pairs,
        }
        named = {name: given[name] for name in self.takes if given[name] is not None}
        try:
            out = self.call(x, edge_index, **named)
        except (KeyboardInterrupt, MemoryError):
            raise
        except Exception as error:
            raise ModelError(
                f"the model failed on a graph with {x.shape[0]} nodes and {edge_index.shape[1]} "
                f"edges: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(out, Tensor):
            raise ModelError(
                f"the model must return one tensor, got {type(out).__name__}; wrap it in a "
                f"function that returns the scores"
            )
        must_be_real(out)
        rows = x.shape[0] if batch is None else int(batch[-1]) + 1
        if self.scores_pairs and pairs is not None:
            rows = pairs.shape[1]
        if out.dim() == 1 and out.shape[0] == rows:
            out = out[:, None]
        if out.dim() != 2 or out.shape[0] != rows or out.shape[1] == 0:
            raise ModelError(
                f"the model must return a tensor of shape [{rows}, outputs], got {list(out.shape)}"
            )
        return out

    @cached_property
    def submodules(self) -> list[nn.Module]:
        """The module and all its submodules, listed at first access; empty for a function."""
        return modules(self.call)

    @property
    def scores_pairs(self) -> bool:
        """Whether the model takes pairs of nodes and returns one row per pair."""
        return "edge_label_index" in self.takes

    def scores(self, out: Tensor) -> Tensor:
        """The explained scores: the model's output on the chosen scale, float64.

        A single output on a probability scale is read as the logit (or probability) of the
        second of two classes.
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
        if out.shape[-1] == 1:
            out = self._two_classes(out)
        if self.scale == "probability":
            if self.output == "raw":
                return out.softmax(-1)
            return out if self.output == "probs" else out.exp()
        if self.output == "probs":
            out = out.log()
        scores = out if self.scale == "logit" else log_odds(out)
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
        sums = out.exp().sum(-1) if self.output == "log_probs" else out.sum(-1)
        sums_to_one = out.shape[-1] == 1 or bool(((sums - 1).abs() <= slack).all())
        if self.output == "probs" and not (least >= -slack and most <= 1 + slack and sums_to_one):
            raise ModelError(
                'output="probs" promises probabilities that sum to 1, the model returned '
                f"{least:.3g} to {most:.3g}; say what it returns by "
                'output="raw", "probs" or "log_probs"'
            )
        if self.output == "log_probs" and not (most <= slack and sums_to_one):
            raise ModelError(
                'output="log_probs" promises logarithms of probabilities, the model returned '
                f"{least:.3g} to {most:.3g}; say what it returns by "
                'output="raw", "probs" or "log_probs"'
            )

    def _two_classes(self, out: Tensor) -> Tensor:
        if self.output == "raw":
            return torch.cat([torch.zeros_like(out), out], -1)
        if self.output == "probs":
            return torch.cat([1 - out, out], -1)
        return torch.cat([torch.log1p(-out.exp()), out], -1)


def must_be_real(out: object) -> None:
    """Refuse outputs that are no plain real numbers; their scores would be something else."""
    if isinstance(out, Tensor) and (out.dtype.is_complex or out.layout != torch.strided):
        kind = "complex" if out.dtype.is_complex else "sparse"
        raise ModelError(
            f"the model must return real numbers in a dense tensor, got a {kind} one; wrap it in "
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
    return log_probs - rest.scatter(-1, best, others)


def check_model(
    model: Callable[..., Any],
    graph: Graph,
    output: Output = "raw",
    scale: Scale = "probability",
    whole_graphs: bool = False,
    links: bool = False,
) -> Model:
    """Validate the model, and read from its signature which graph attributes it takes."""
    if not callable(model):
        raise InputError(f"model must be a module or a callable, got {type(model).__name__}")
    output, scale = checked(output, Output, "output"), checked(scale, Scale, "scale")
    parameters = signature_of(model)
    available = {
        "edge_weight": graph.edge_weight is not None,
        "edge_attr": graph.edge_attr is not None,
        "batch": whole_graphs,
        "edge_label_index": links,
    }
    for name, parameter in list(parameters.items())[2:]:
        required = parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        )
        if required and not available.get(name, False):
            raise InputError(
                f"the model needs {name!r}, which "
                + (
                    f"data does not have; set data.{name}"
                    if name in available
                    else "graphsvx cannot supply; what belongs to edges can be taken as edge_attr "
                    "(set data.edge_attr), the rest in a wrapper of (x, edge_index)"
                )
            )
    takes = frozenset(name for name, present in available.items() if present and name in parameters)
    if whole_graphs and "batch" not in takes:
        raise InputError(
            "explaining a graph needs a model that takes `batch`, got a model with the arguments "
            f"{list(parameters)}"
        )
    return Model(model, takes, output, scale)


def signature_of(model: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Parameters of a model's forward, by name; empty where Python cannot tell."""
    return _parameters(model.forward if isinstance(model, nn.Module) else model)


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Parameters of a function; cached for methods."""
    code = function.__func__ if isinstance(function, MethodType) else None
    if code in _PARAMETERS:
        return _PARAMETERS[code]
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # some builtins have no signature
        return {}
    if isinstance(code, FunctionType):
        _PARAMETERS[code] = parameters
    return parameters


def modules(module: object) -> list[nn.Module]:
    """A module and all its submodules, each once; much faster than `Module.modules`.

    Empty for anything that is not a module.
    """
    if not isinstance(module, nn.Module):
        return []
    reached, seen = [module], {id(module)}
    for parent in reached:  # it grows on the way
        for child in parent._modules.values():
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                reached.append(child)
    return reached


@contextmanager
def evaluation_mode(modules: list[nn.Module]) -> Iterator[None]:
    """Context manager: eval mode without gradients; restores all modules on exit.

    Only one thread can hold it at a time. Restored: each submodule's train/eval mode,
    gradient mode, torch's random state and number of threads (one in between: another number
    would round differently), and what layers with `cached=True` have cached for the user's
    graph, which must not be used for perturbed graphs.
    """
    with exclusive():
        training = [module for module in modules if module.training]
        caching = [module for module in modules if module.__dict__.get("cached") is True]
        remembered = [
            {name: value for name, value in vars(module).items() if name.startswith("_cached")}
            for module in caching
        ]
        state = torch.get_rng_state()

        def restore() -> None:
            for module, memory in zip(caching, remembered, strict=True):
                vars(module).update(memory, cached=True)
            for module in training:
                module.training = True
            torch.set_rng_state(state)

        with taking_back(restore):
            for module in training:
                module.training = False
            for module, memory in zip(caching, remembered, strict=True):
                vars(module).update(dict.fromkeys(memory), cached=False)
            yield


def message_passing_depth(model: Model, graph: Graph) -> int | None:
    """Number of message-passing rounds in one call: the radius of the receptive field.

    Counted by running the model once on a graph of one node, which also sees layers that pass
    messages several times (APPNP, SGC). None if no round was counted (not a PyG model). A
    ModelError where that graph is too small for the model.
    """
    layers = [layer for layer in model.submodules if isinstance(layer, MessagePassing)]
    if not layers:
        return None
    rounds = 0

    def count(*_: Any) -> None:
        nonlocal rounds
        rounds += 1

    hooks: list[Any] = []

    def remove() -> None:
        for hook in hooks:
            hook.remove()

    none = slice(0, 0)
    with taking_back(remove):
        hooks += [layer.register_propagate_forward_pre_hook(count) for layer in layers]
        model(
            graph.x[:1],
            graph.edge_index[:, none],
            None if graph.edge_weight is None else graph.edge_weight[none],
            None if graph.edge_attr is None else graph.edge_attr[none],
            torch.zeros(1, dtype=torch.long, device=graph.x.device),
            torch.zeros(2, 1, dtype=torch.long, device=graph.x.device),
        )
    return rounds or None
