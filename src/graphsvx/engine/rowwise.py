"""Which torch operations treat each row of their input by itself.

Rows are the first dimension: nodes, edges, graphs or pairs of nodes. `is_row_wise` answers for one
call; what it does not know is not row-wise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_map

_ELEMENTWISE = {
    "relu", "relu6", "elu", "celu", "gelu", "selu", "leaky_relu", "silu", "mish", "softplus",
    "hardtanh", "hardsigmoid", "hardswish", "logsigmoid", "prelu", "threshold", "softsign",
    "tanhshrink", "sigmoid", "tanh", "exp", "expm1", "log", "log1p", "log2", "log10", "abs", "neg",
    "negative", "sqrt", "rsqrt", "square", "reciprocal", "sin", "cos", "tan", "atan", "atan2",
    "sinh", "cosh", "erf", "sign", "floor", "ceil", "round", "clamp", "clamp_min", "clamp_max",
    "clip", "nan_to_num", "pow", "add", "sub", "subtract", "rsub", "mul", "multiply", "div",
    "divide", "true_divide", "maximum", "minimum", "where", "lerp", "addcmul", "addcdiv",
    "contiguous", "detach", "clone", "float", "double", "half", "bfloat16", "to", "type",
    "type_as", "long", "int", "bool", "logical_and", "logical_or", "logical_not", "eq", "ne",
    "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "zeros_like", "ones_like", "masked_fill",
    "requires_grad", "__neg__", "__abs__", "__invert__", "__and__", "__or__", "__eq__", "__ne__",
    "__lt__", "__le__", "__gt__", "__ge__", "__add__", "__radd__", "__iadd__", "__sub__",
    "__rsub__", "__isub__", "__mul__", "__rmul__", "__imul__", "__truediv__", "__rtruediv__",
    "__rdiv__", "__itruediv__", "__pow__", "__rpow__", "__ipow__",
}  # fmt: skip
# Operations along a dimension: the position of `dim` among their arguments, and its default.
_COMBINING: dict[str, tuple[int, int | None]] = {
    **dict.fromkeys((
        "sum", "mean", "max", "min", "amax", "amin", "prod", "std", "var", "argmax", "argmin",
        "softmax", "log_softmax", "logsumexp", "cumsum", "median", "nanmedian", "std_mean",
        "var_mean", "aminmax"), (1, None)),
    **dict.fromkeys(("sort", "argsort", "mode"), (1, -1)),
    **dict.fromkeys(("topk", "kthvalue"), (2, -1)),
    **dict.fromkeys(("norm", "vector_norm", "linalg_vector_norm", "quantile"), (2, None)),
}  # fmt: skip
_DIM_ARGUMENT = _COMBINING | {
    **dict.fromkeys(("all", "any", "unsqueeze", "squeeze", "narrow", "select"), (1, None)),
    **dict.fromkeys(("unbind", "flatten"), (1, 0)),
    **dict.fromkeys(("chunk", "split"), (2, 0)),
    "normalize": (2, 1),
    "glu": (1, -1),
}

COMBINES_ROWS = _COMBINING.keys()
"""Operations that combine all rows if they are not along columns. `any` and `all`, which ask
whether inputs are valid, are not among them."""

_GETTERS = {
    getattr(Tensor, name).__get__
    for name in (
        "shape", "dtype", "device", "layout", "ndim", "is_cuda", "is_sparse", "is_quantized",
        "requires_grad", "is_leaf", "grad_fn", "grad", "is_nested", "is_mkldnn", "is_meta",
    )
}  # fmt: skip
_ABOUT = {"dim", "ndimension", "is_floating_point", "is_complex", "element_size", "get_device",
          "is_contiguous", "is_inference"}  # fmt: skip

Traced = Callable[[Any], bool]
"""Whether an argument has the rows in question."""


def name_of(func: Any) -> str:
    """The name of a torch function."""
    return getattr(func, "__name__", str(func))


def is_metadata(func: Any, name: str) -> bool:
    """Whether an operation reads what a tensor is, not its entries."""
    return func in _GETTERS or name in _ABOUT


def mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """All arguments of a call changed, those in tuples, lists and dictionaries too."""
    if type(value) in (tuple, list):
        return type(value)(mapped(change, item) for item in value)
    if type(value) is dict:
        return {key: mapped(change, item) for key, item in value.items()}
    return tree_map(change, value) if isinstance(value, (tuple, list, dict)) else change(value)


def leaves(*values: Any) -> Iterator[Any]:
    """All arguments of a call, those in tuples, lists and dictionaries too."""
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from leaves(*value)
        elif isinstance(value, dict):
            yield from leaves(*value.values())
        else:
            yield value


def tensors(*values: Any) -> list[Tensor]:
    """All tensors among the arguments of a call."""
    return [value for value in leaves(*values) if isinstance(value, Tensor)]


def is_row_wise(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], traced: Traced) -> bool:
    """Whether row i of the result depends on row i of each traced argument alone."""
    arguments = tensors(args, kwargs)
    if name in _ELEMENTWISE or (name in ("max", "min") and len(arguments) == 2):
        return _aligned(arguments, traced)
    rule = _RULES.get(name) or (_along_columns if name in _DIM_ARGUMENT else None)
    return rule is not None and rule(_Call(name, args, kwargs, arguments, traced))


@dataclass(frozen=True, eq=False)
class _Call:
    """One call of a torch function with a traced argument."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tensors: list[Tensor]
    traced: Traced

    def argument(self, position: int, *names: str, default: Any = None) -> Any:
        for name in names:
            if name in self.kwargs:
                return self.kwargs[name]
        return self.args[position] if len(self.args) > position else default

    @property
    def only_first_traced(self) -> bool:
        first, *others = self.tensors
        return (
            bool(self.args)
            and first is self.args[0]
            and self.traced(first)
            and not any(map(self.traced, others))
        )


def _joins_columns(call: _Call) -> bool:
    dim = call.argument(1, "dim", default=1 if call.name == "hstack" else 0)
    depth = call.tensors[0].dim() + (call.name == "stack")
    return (
        all(map(call.traced, call.tensors))
        and _aligned(call.tensors, call.traced)
        and dim % depth != 0
    )


def _keeps_rows(call: _Call) -> bool:
    """Whether a view leaves the first dimension as it is."""
    x, shape = call.args[0], call.args[1:] or tuple(call.kwargs.values())
    sizes = [*shape[0]] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else [*shape]
    if not call.traced(x) or not sizes or not all(isinstance(size, int) for size in sizes):
        return False
    if type(sizes[0]) is not int:  # the number of rows itself
        return True
    return sizes[0] == -1 and -1 not in sizes[1:] and prod(sizes[1:]) == x.shape[1:].numel()


def _multiplies_columns(call: _Call) -> bool:
    flat = all(other.dim() <= 2 for other in call.tensors[1:])
    return call.only_first_traced and call.tensors[0].dim() >= 2 and flat


def _along_columns(call: _Call) -> bool:
    place, default = _DIM_ARGUMENT[call.name]
    dim = call.argument(place, "dim", "axis", "start_dim", default=default)
    dims = [dim] if isinstance(dim, int) else [*dim] if isinstance(dim, (tuple, list)) else []
    depth = call.tensors[0].dim() + (call.name == "unsqueeze")
    return (
        len(call.tensors) == 1
        and bool(dims)
        and all(type(axis) is int and axis % depth != 0 for axis in dims)
    )


def _picks_columns(call: _Call) -> bool:
    x, key = call.args[:2]
    parts = key if isinstance(key, tuple) else (key,)
    if len(call.tensors) > 1 or not all(
        part is None or part is Ellipsis or isinstance(part, (int, slice)) for part in parts
    ):
        return False
    if parts[0] is Ellipsis:
        return sum(part is not None for part in parts[1:]) < x.dim()
    return isinstance(parts[0], slice) and parts[0] == slice(None)


_RULES: dict[str, Callable[[_Call], bool]] = {
    **dict.fromkeys(("cat", "concat", "concatenate", "stack", "hstack"), _joins_columns),
    **dict.fromkeys(("view", "reshape"), _keeps_rows),
    **dict.fromkeys(("linear", "matmul", "mm", "__matmul__"), _multiplies_columns),
    **dict.fromkeys(
        ("dropout", "alpha_dropout", "feature_alpha_dropout", "dropout1d"),
        lambda call: not call.argument(2, "training", default=True),
    ),
    "addmm": lambda call: [*map(call.traced, call.tensors)] == [False, True, False],
    "layer_norm": lambda call: call.only_first_traced and len(call.args[1]) < call.tensors[0].dim(),
    "batch_norm": lambda call: (
        call.only_first_traced
        and call.args[1] is not None
        and not call.argument(5, "training", default=False)
    ),
    "__getitem__": _picks_columns,
}


def _aligned(arguments: list[Tensor], traced: Traced) -> bool:
    """Traced tensors have their rows in the first dimension; the others are the same for all."""
    depth = max(tensor.dim() for tensor in arguments)
    return all(
        tensor.dim() == depth
        if traced(tensor)
        else tensor.dim() < depth or depth == 0 or tensor.shape[0] == 1
        for tensor in arguments
    )
