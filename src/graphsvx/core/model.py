"""The explained model f: how it is called, and how its output becomes a score."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_leaves, tree_map

from graphsvx.core.arrays import Ids, unreadable
from graphsvx.core.calling import USUAL, CallPlan, Inputs, method_of, signature_of, values_by_type
from graphsvx.core.graph import Graph
from graphsvx.core.names import attribute_names
from graphsvx.errors import InputError, ModelError, error_text, see
from graphsvx.utils.constraints import checked
from graphsvx.utils.exclusive import exclusive, stop_if_unwanted, taking_back

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


_OPTIONAL = frozenset(("edge_weight", "edge_attr", "batch", "edge_label_index"))
_LABELS = ("multilabel", "multilabel_probs")
_CONVERSIONS: dict[Reading, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "raw": (lambda out: out.softmax(-1), torch.positive),
    "probs": (torch.positive, torch.log),
    "log_probs": (torch.exp, torch.positive),
    "multilabel": (torch.sigmoid, torch.positive),
    "multilabel_probs": (torch.positive, torch.logit),
}
"""Outputs as probabilities, and as logits up to a constant."""


class _Holder(nn.Module):
    """Runs a function with other parameters of a model, for `functional_call`."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, run: Callable[..., Any], *args: Any) -> Any:
        return run(*args)


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
        with _as_model_error(lambda error: self._failure(error, len(x), [edge_index], [x])):
            out = self.returned(inputs)
        rows = x.shape[0]
        if self.whole_graphs:
            rows = 1 if batch is None else int(batch[-1]) + 1
        if self.scores_pairs and pairs is not None:
            rows = pairs.shape[1]
        out = _plain_tensor(out, self.pick is not None)
        if out.dim() == 1 and rows == 1 and self.whole_graphs and "batch" not in self.takes:
            out = out.reshape(1, -1)
        expected = f"the model must return a tensor of shape [{rows}, outputs]"
        return _table(out, rows, expected, self._other_level(out, x.shape[0]))

    def run(self, graph: Graph, inputs: Inputs, rows_of_tables: bool = False) -> Any:
        """The raw output for parts of a graph by type: a tensor, or one for each node type.

        `rows_of_tables`: parameters with a row for each node of a type are cut to the rows of the
        nodes that are there.
        """
        nodes = {name: len(rows) for name, rows in inputs.node_rows.items()}
        edges, features = [*inputs.edge_index.values()], [*inputs.x.values()]
        stop_if_unwanted()
        with _as_model_error(lambda error: self._failure(error, nodes, edges, features)):
            values = values_by_type(graph, inputs, self.plan.attributes)
            if rows_of_tables and isinstance(self.call, nn.Module):
                tables = self.plan.cut_tables(self.call, inputs.node_rows)
                return functional_call(_Holder(self.call), tables, (self.returned, values))
            return self.returned(values)

    def returned(self, inputs: dict[str, Any]) -> Any:
        """The model's scores for a graph given by its attributes, which stay as they are."""
        return call_without_writing(self.call, self.returned_for, inputs)

    def returned_for(self, inputs: dict[str, Any]) -> Any:
        """The model's scores, extracted by `pick`; the model may write to the inputs."""
        x = inputs.get("x")
        if "batch" in self.takes and inputs.get("batch") is None and x is not None:
            inputs["batch"] = torch.zeros(x.shape[0], dtype=torch.long, device=x.device)
        with torch.set_grad_enabled(torch.is_grad_enabled()):  # which the model may change
            out = self.plan(self.call, inputs)
        return out if self.pick is None else self.pick(out)

    def _other_level(self, out: Tensor, nodes: int) -> str:
        """Advice where a model of graphs is asked about nodes, or the other way round."""
        if self.whole_graphs and out.shape[:1] == (nodes,):
            return (
                "; it returns a row for each node: ask with node=..., or pool the rows "
                "into one for graph=True"
            )
        is_single = out.dim() == 1 or out.shape[:1] == (1,)
        if is_single and not self.whole_graphs and not self.scores_pairs:
            return "; it returns one row for the whole graph: ask with graph=True"
        return ""

    def _failure(
        self, error: BaseException, nodes: object, edges: list[Tensor], features: list[Tensor]
    ) -> str:
        """What failed, with advice for the usual reasons."""
        shape, parameter = self.plan.form.row_shape, next(iter(signature_of(self.call)), "data")
        device = edges[0].device if edges else None
        stored = (w for m in self.submodules[:1] for w in chain(m.parameters(), m.buffers()))
        elsewhere = next((w.device for w in stored if device not in (None, w.device)), None)
        count = sum(index.shape[1] for index in edges)
        integers = next((x.dtype for x in features if not x.is_floating_point()), None)
        of_features, of_weights = (
            " and ".join(sorted({str(x.dtype).removeprefix("torch.") for x in tensors}))
            for tensors in (filter(Tensor.is_floating_point, features), self.weights)
        )
        hints = {
            f'the model is on {elsewhere} and the data on {device}: use model.to("{device}")': (
                elsewhere is not None
            ),
            "a graph in which players are switched off has few nodes or edges, over which this "
            "layer cannot normalise: use batch_norm or track_running_stats=True": (
                "Expected more than 1" in error_text(error)
            ),
            "without its players a graph may have no edges, which this model does not take: add "
            "self-loops to it (torch_geometric.transforms.AddSelfLoops())": not count,
            f"its one argument {parameter!r} was a Data object: if it is something else, give a "
            "function that computes it, as in def model(x, edge_index): return net(...)": (
                self.plan.as_data and parameter not in ("data", "batch", "graph", "g")
            ),
            "data has no x, so the model was given None": not self.plan.form.has_x,
            f"features are {of_features}, weights {of_weights}: convert the model "
            "(model.double()) or x (data.x.float(), data[type].x.float())": (
                of_features != "" and of_weights not in ("", of_features)
            ),
            f"data.x is {integers}: if these are numbers and not categories for an embedding, use "
            "data.x.float()": integers is not None,
            f"data.x is of shape [nodes{''.join(f', {n}' for n in shape or ())}]": shape
            is not None,
        }
        hint = next((f"; {hint}" for hint, applies in hints.items() if applies), "")
        return (
            f"the model failed on a graph with {nodes} nodes and {count} edges: "
            f"{error_text(error)}{hint}{see('the-model-failed')}"
        )

    @property
    def takes(self) -> frozenset[str]:
        """Which of edge_weight, edge_attr, batch and edge_label_index are passed to it."""
        return self.plan.attributes & _OPTIONAL

    @cached_property
    def submodules(self) -> list[nn.Module]:
        """The module and all its submodules, listed at first access; empty for a function."""
        return modules(self.call)

    @property
    def weights(self) -> Iterator[Tensor]:
        """Parameters of floating types, those of each module after another."""
        parameters = (w for module in self.submodules[:1] for w in module.parameters())
        return filter(Tensor.is_floating_point, parameters)

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
        of_classes = self.output not in _LABELS
        if of_classes and out.shape[-1] == 1:
            out = self._two_classes(out)
        as_probabilities, as_logits = _CONVERSIONS[self.output]
        if self.scale == "probability":
            return as_probabilities(out)
        out = as_logits(out)
        if self.scale == "log_odds" and of_classes:
            out = log_odds(out)
        if not bool(torch.isfinite(out).all()):
            raise ModelError(
                f"a probability of exactly 0 or 1 has no finite {self.scale}; "
                f'use scale="probability", or output="raw" with a model that returns logits'
            )
        return out

    def _check_range(self, out: Tensor, least: float, most: float) -> None:
        slack, are_logs = 1e-3, self.output == "log_probs"
        in_range = most <= slack if are_logs else least >= -slack and most <= 1 + slack
        match self.output:
            case "raw":
                # A softmax is never 0 nor 1 nor the same everywhere; small whole numbers may sum
                # to 1 too.
                if least > 0 and most < 1 and out.shape[-1] > 1 and _looks_like_softmax(out):
                    warnings.warn(
                        "the model seems to return probabilities, which would be squashed again; "
                        'if so, say output="probs"',
                        stacklevel=2,
                    )
            case "multilabel_probs" if not in_range:
                raise ModelError(
                    "the model seemed to return a probability for each label, but returned "
                    f'{least:.3g} to {most:.3g}; say what it returns by output="multilabel", '
                    '"class" or "regression"'
                )
            case "probs" | "log_probs":
                sums = (out.exp() if are_logs else out).sum(-1)
                if in_range and (out.shape[-1] == 1 or bool(((sums - 1).abs() <= slack).all())):
                    return
                means = "logarithms of probabilities" if are_logs else "probabilities that sum to 1"
                raise ModelError(
                    f'output="{self.output}" means {means}, the model returned {least:.3g} to '
                    f'{most:.3g}; say what it returns by output="raw", "probs" or "log_probs"'
                )

    def _two_classes(self, out: Tensor) -> Tensor:
        match self.output:
            case "raw":  # as a logit by itself, 0 would say nothing of the first class
                first = -out if self.scale == "logit" else torch.zeros_like(out)
            case "probs":
                first = 1 - out
            case _:
                first = torch.log1p(-out.exp())
        return torch.cat([first, out], -1)


@contextmanager
def _as_model_error(describe: Callable[[BaseException], str]) -> Iterator[None]:
    """What the user's code raises in this block becomes a ModelError, described so."""
    try:
        yield
    except MemoryError:
        raise
    except StopIteration as error:  # which contextlib lets pass if it is a cause
        raise ModelError(describe(error)) from None
    except (Exception, SystemExit) as error:
        raise ModelError(describe(error)) from error


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
    expected = (
        f"the model must return a tensor of shape [{rows}, outputs] for the {rows} nodes of "
        f"type {node_type!r}"
    )
    return _table(_plain_tensor(out), rows, expected)


def _table(out: Tensor, rows: int, expected: str, hint: str = "") -> Tensor:
    """Outputs as [rows, outputs]; a vector has one output for each row."""
    if out.dim() == 1 and out.shape[0] == rows:
        out = out[:, None]
    if out.dim() != 2 or out.shape[0] != rows or out.shape[1] == 0:
        raise ModelError(f"{expected}, got {list(out.shape)}{hint}")
    return out


def _plain_tensor(out: Any, picked: bool = False) -> Tensor:
    """Refuse outputs that are no plain real numbers; their scores would be something else."""
    if not isinstance(out, Tensor):
        raise ModelError(_no_tensor(out, picked))
    kind = unreadable(out)
    if kind is None and (out.dtype.is_complex or out.layout != torch.strided):
        kind = "a complex one" if out.dtype.is_complex else "a sparse one"
    if kind is not None:
        raise ModelError(
            f"the model must return real numbers in a dense tensor, got {kind}; wrap it in "
            f"a function that returns the scores"
        )
    return out


def _looks_like_softmax(out: Tensor) -> bool:
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


def _no_tensor(out: Any, picked: bool) -> str:
    if picked:
        return f"the function given as output= must return one tensor, got {type(out).__name__}"
    got, example = type(out).__name__, "out[0]"
    if isinstance(out, Mapping):
        keys = [*map(repr, out)] or ["..."]
        got, example = f"a dictionary with {', '.join(keys)}", f"out[{keys[0]}]"
    else:
        names = out._fields if hasattr(out, "_fields") else attribute_names(out)
        fields = [name for name in names if isinstance(getattr(out, name), Tensor)]
        if fields:
            example = f"out.{'logits' if 'logits' in fields else fields[0]}"
            got += f" with {', '.join(fields)}"
        elif isinstance(out, (tuple, list)):
            got += f" of {len(out)}"
    return (
        f"the model must return one tensor, got {got}; say where the scores are by a function, "
        f"such as output=lambda out: {example}{see('the-model-must-return-one-tensor')}"
    )


def described_model(
    model: Callable[..., Any],
    output: Output | Pick | None,
    scale: Scale | None,
    plan: CallPlan,
    whole_graphs: bool = False,
) -> Model:
    """A model that is called as `plan` says, whose outputs are what the user says, validated."""
    pick: Pick | None = None
    if callable(output):
        pick, output = output, None if scale is None else "raw"
    name = checked(output, Output | None, "output")
    scale_name = checked(scale, Scale | None, "scale")
    if name == "regression" and scale_name not in (None, "value"):
        raise InputError(
            f'output="regression" has values, not classes: scale must be "value", got {scale!r}'
        )
    return Model(
        model,
        plan,
        output=_NAMED_OUTPUTS[name or "raw"],
        scale=scale_name or ("value" if name == "regression" else "probability"),
        whole_graphs=whole_graphs,
        pick=pick,
        output_is_given=name is not None,
        scale_is_given=scale_name is not None,
    )


def call_on(model: Model, graph: Graph) -> Tensor:
    """The model's raw output for a whole graph; for models of pairs, of the pair (0, 0)."""
    batch, pairs = (
        torch.zeros(size, dtype=torch.long, device=graph.x.device)
        for size in ((graph.num_nodes,), (2, 1))
    )
    return model(
        graph.x,
        graph.edge_index,
        graph.edge_weight,
        graph.edge_attr,
        batch if model.whole_graphs else None,
        pairs if model.scores_pairs else None,
        graph.attributes_at(None, None),
    )


# --- decoders: scores of links from the embeddings of their two ends -----------------------

Decoder = Callable[[Tensor, Tensor], Tensor]
"""Embeddings of the two ends [pairs, width] each, to scores [pairs] or [pairs, outputs]."""


def inner_product(source: Tensor, target: Tensor) -> Tensor:
    """Inner product z_u . z_v, the logit of a link: the usual decoder of graph autoencoders."""
    return (source * target).sum(-1)


def decode(decoder: Decoder, out: Tensor) -> Tensor:
    """Embeddings of the two ends [batch, 2, width] to scores [batch, outputs]."""
    with _as_model_error(lambda error: f"the decoder failed: {error_text(error)}"):
        scores = decoder(out[:, 0], out[:, 1])
    count = len(out)
    expected = (
        f"the decoder must return one score (or one row of scores) a pair, [{count}] or "
        f"[{count}, outputs]"
    )
    if not isinstance(scores, Tensor):
        raise ModelError(f"{expected}, got {type(scores).__name__}")
    return _table(_plain_tensor(scores), count, expected)


def with_relation(decoder: Callable[..., Tensor], relation: int | None) -> Decoder:
    """A decoder of (source, target) from one of (source, target, relation)."""
    if relation is None:
        return decoder
    return lambda source, target: decoder(
        source, target, torch.full((len(source),), relation, device=source.device)
    )


def link_decoder(model: Any, graph: Graph, centres: Ids, relation: int | None = None) -> Decoder:
    """What scores a link where the user gives no decoder: of typed graphs the model's own.

    `decode` and `decoder` take rows of source and target, or as in PyG's `GAE` all embeddings (of
    HeteroData by node type) and the pairs; then the relation where they take a third argument.
    `decoder` is used only if a relation is asked for.
    """
    if not graph.has_types:
        return inner_product
    types = graph.types
    inner = method_of(model, "decoder")
    function = method_of(model, "decode") if hasattr(model, "encode") else None
    if function is None and relation is not None:
        function = inner
        if function is None:
            raise InputError(
                "relation= needs a decoder of (source, target, relation), a model with one as "
                "`decoder` or `decode`, or one that takes edge_label_index and edge_label_type"
            )
    if function is None:
        return inner_product
    names = _positional(function)
    if not names and isinstance(inner, nn.Module):  # decode(*args) of GAE
        names = _positional(inner)
    logits = {"sigmoid": False} if "sigmoid" in names else {}
    parameters = [name for name in names if name != "sigmoid"]
    if relation is not None and len(parameters) < 3:
        raise InputError(
            f"the decoder takes {parameters}; give decoder=, of (source, target, relation)"
        )
    needed = [name for name in parameters[2:] if names[name]]
    if relation is None and needed:
        raise InputError(
            f"the model's decoder needs {needed[0]!r}; write relation=, the number of the link's "
            "edge type, or decoder=, a function of (source, target)"
        )
    if len(parameters) < 2 or "edge" not in parameters[1]:
        return with_relation(function, relation)

    def of_pairs(source: Tensor, target: Tensor, *relations: Tensor) -> Tensor:
        first = torch.arange(len(source), device=source.device)
        second, embeddings = first + len(source), torch.cat([source, target])
        start, end = (types.node_types[at] for at in types.kinds(centres))
        tables: Any = embeddings if types.flat else {start: embeddings}
        if start != end:
            second, tables = first, {start: source, end: target}
        return function(tables, torch.stack([first, second]), *relations, **logits)

    return with_relation(of_pairs, relation)


def _positional(function: Callable[..., Any]) -> dict[str, bool]:
    """Parameters that can be given by position, and whether they must be given."""
    return {
        name: parameter.default is parameter.empty
        for name, parameter in signature_of(function).items()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    }


def modules(module: object) -> list[nn.Module]:
    """A module and all its submodules, each once; empty for anything that is not a module."""
    return [*module.modules()] if isinstance(module, nn.Module) else []


@contextmanager
def evaluation_mode(modules: list[nn.Module]) -> Iterator[None]:
    """Context manager: eval mode without gradients; restores all modules on exit.

    Only one thread can hold it at a time. Restored: each submodule's train/eval mode and
    `compile()`, gradient mode, torch's random state and number of threads (one in between:
    another number would round differently), and what layers with `cached=True` have cached for
    the user's graph, which must not be used for perturbed graphs.
    """
    with exclusive():
        state = torch.get_rng_state()
        changes = [(module, _to_evaluate(module)) for module in modules]
        before = [
            (module, {name: getattr(module, name) for name in new}) for module, new in changes
        ]

        def restore() -> None:
            _set_attributes(before)
            torch.set_rng_state(state)

        with taking_back(restore):
            _set_attributes(changes)
            yield


def _to_evaluate(module: nn.Module) -> dict[str, Any]:
    """The attributes of a module that are changed in evaluation mode, and their values there."""
    new: dict[str, Any] = {"training": False} if module.training else {}
    if module._compiled_call_impl is not None:  # it would be compiled again for each size
        new["_compiled_call_impl"] = None
    if vars(module).get("cached") is True:
        cached = (name for name in vars(module) if name.startswith("_cached"))
        new |= {**dict.fromkeys(cached), "cached": False}
    return new


def _set_attributes(of_modules: list[tuple[nn.Module, dict[str, Any]]]) -> None:
    for module, attributes in of_modules:
        for name, value in attributes.items():
            setattr(module, name, value)


_WRITES: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
"""Whether a model changed an input in its first call, which got copies."""


def call_without_writing(
    model: Callable[..., Any], run: Callable[[dict[str, Any]], Any], inputs: dict[str, Any]
) -> Any:
    """`run(inputs)`, with copies in the first call of a model and wherever that changed them."""
    writes = None
    with suppress(TypeError):  # a callable without weak references or hash
        writes = _WRITES.get(model)
    if writes is False:
        return run(inputs)
    copies = tree_map(lambda value: value.clone() if _is_plain(value) else value, inputs)
    versions = [(value, value._version) for value in tree_leaves(copies) if _is_plain(value)]
    out = run(copies)
    if writes is None:
        changed = any(value._version != version for value, version in versions)
        with suppress(TypeError):
            _WRITES[model] = changed
    return out


def _is_plain(value: Any) -> bool:
    return type(value) is Tensor and not value.is_inference()
