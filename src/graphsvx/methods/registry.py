"""Methods and blocks by name, for command lines and study files. In code, use the classes.

registry.names()
registry.method("gnnexplainer", epochs=200)
registry.method("pgexplainer", load="trained.safetensors")
registry.method("graphsvx", mask="Paired(stretch=8)")

A method, mask, generator or estimator of one's own gets a name by `register`, or by an entry point
of its package in one of the groups "graphsvx.methods", "graphsvx.masks", "graphsvx.generators" and
"graphsvx.estimators".
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any, Literal, TypeVar, get_args

from graphsvx import estimators, generators, masks, methods
from graphsvx.errors import InputError
from graphsvx.methods.baseline import Block, Blocks, Method, Properties
from graphsvx.methods.graphsvx import RENAMED, SETTINGS, GraphSVX
from graphsvx.utils.printable import did_you_mean

Factory = Callable[..., Any]
Kind = Literal["method", "mask", "generator", "estimator", "index"]
"""What can be registered."""


def _of(package: ModuleType, names: str) -> dict[str, Factory]:
    return {name: getattr(package, name) for name in names.split()}


_KNOWN: dict[Kind, dict[str, Factory]] = {
    "method": {
        "graphsvx": GraphSVX,
        "graphsvx-paper": GraphSVX,
        "gnnexplainer": methods.GNNExplainer,
        "pgexplainer": methods.PGExplainer,
        "graphlime": methods.GraphLIME,
        "pgm-explainer": methods.PGMExplainer,
        "xgnn": methods.XGNN,
        "lime": methods.LIME,
        "shap": methods.SHAP,
        "greedy": methods.Greedy,
        "random": methods.Random,
        "saliency": methods.Saliency,
        "integrated-gradients": methods.IntegratedGradients,
    },
    "mask": _of(masks, "All Auto Connected Paired Random Smart SmartSeparate SmarterSeparate"),
    "generator": _of(generators, "CutEdges Indirect Isolate ReplaceRows"),
    "estimator": _of(estimators, "GaussianProcess Lasso WLR WLS"),
    "index": _of(estimators, "KSII SII STII FSII BII"),
}
_METHODS = tuple(_KNOWN["method"])
_GROUPS = {kind: f"graphsvx.{kind}s" for kind in _KNOWN} | {"index": "graphsvx.indices"}
"""Entry points of other packages."""

Registered = TypeVar("Registered", bound=Factory)


def register(kind: Kind, name: str) -> Callable[[Registered], Registered]:
    """Name a class (or a function that returns an instance) of one's own, as a decorator.

    @register("mask", "coin-flips")
    class CoinFlips: ...

    Args:
        kind: "method", "mask", "generator", "estimator" or "index".
        name: a word, by which the command line and `graphsvx.methods.registry` know it.

    Returns:
        The decorator; it gives the class back as it is.

    Raises:
        InputError: the name is taken or is not a word, or `kind` is unknown.

    """
    if kind not in _KNOWN:
        raise InputError(f"kind must be one of {', '.join(get_args(Kind))}, got {kind!r}")
    if not isinstance(name, str) or not name or set(name) & set(" =()\"'"):
        raise InputError(f"a name must be text without spaces, '=', quotes or (), got {name!r}")

    def registered(factory: Registered) -> Registered:
        if not callable(factory):
            raise InputError(f"a {kind} is registered by its class, got {factory!r}")
        before = _KNOWN[kind].get(name, factory)
        first, second = (
            [getattr(entry, part, None) for part in ("__module__", "__qualname__")]
            for entry in (before, factory)
        )
        if first != second:  # equal: its module was reloaded
            raise InputError(f"there is already a {kind} {name!r}: {before!r}; take another name")
        _KNOWN[kind][name] = factory
        return factory

    return registered


def available(kind: Kind) -> tuple[str, ...]:
    """All names of a kind: this library's, those that were registered, those of entry points."""
    plugins = [point.name for point in entry_points(group=_GROUPS[kind])]
    return tuple(dict.fromkeys([*_KNOWN[kind], *plugins]))


def find(kind: Kind, name: str) -> Any:
    """The class behind a name."""
    if name in _KNOWN[kind]:
        return _KNOWN[kind][name]
    for point in entry_points(group=_GROUPS[kind], name=name):
        try:
            return point.load()
        except Exception as error:  # another package's code
            raise InputError(
                f"the {kind} {name!r} of the entry point {point.value!r} cannot be imported: "
                f"{type(error).__name__}: {error}"
            ) from error
    names = available(kind)
    raise InputError(
        f"there is no {kind} {name!r}; {did_you_mean(name, names)}choose one of {', '.join(names)}"
    )


def block(kind: Kind, text: str) -> Any:
    """A block from its name, with or without settings: "Paired" or "Paired(stretch=8)"."""
    name, bracket, rest = text.strip().partition("(")
    factory, settings = find(kind, name.strip()), {}
    if bracket:
        try:
            call: Any = ast.parse(f"block({rest}", mode="eval").body
            if call.args:
                raise ValueError
            settings = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
        except (SyntaxError, ValueError, AttributeError):
            raise InputError(
                f"settings are written as {name}(setting=value, ...), got {text!r}"
            ) from None
    _refuse_unknown(name, settings, inspect.signature(factory).parameters)
    return factory(**settings)


def _refuse_unknown(name: str, settings: Iterable[str], allowed: Iterable[str]) -> None:
    listed = sorted(allowed)
    for unknown in sorted({*settings} - {*listed}):
        raise InputError(
            f"{name} has no setting {unknown!r}; {did_you_mean(unknown, listed)}"
            f"it has {', '.join(listed) or 'none'}"
        )


_SHAPLEY = Properties(
    decomposable=True, general=True, robust=True, meaningful=True, selective=True, contrastive=True
)
_GRAPHSVX: dict[str, Blocks] = {
    "graphsvx": Blocks(
        title="GraphSVX",
        mask=Block("M_F, M_N: all coalitions where affordable, else paired samples", masks.Auto),
        gen=Block("Eq. 1-2: features to their mean, nodes without edges", generators.Isolate),
        expl=Block(
            "Shapley values of a kernel interpolation over pairs, or least squares",
            estimators.GaussianProcess,
        ),
        explains=("nodes", "features", "edges"),
        properties=_SHAPLEY,
        source="Duval and Malliaros 2021",
    ),
    "graphsvx-paper": Blocks(
        title="GraphSVX, as in the paper",
        mask=Block("M_F, M_N: SmarterSeparate, small and large sizes first", masks.SmarterSeparate),
        gen=Block(
            "Eq. 1-2 and algorithm 2: cut-off nodes rejoin along a path", generators.Indirect
        ),
        expl=Block(
            "weighted least squares with the Shapley kernel, constraints exact", estimators.WLS
        ),
        explains=("nodes", "features"),
        properties=dataclasses.replace(_SHAPLEY, selective=False),
        source="Duval and Malliaros 2021",
        notes="rows are not weighed by how they were drawn: idle players get a little credit",
    ),
}


def names() -> tuple[str, ...]:
    """All methods of this library, GraphSVX first; `available` has registered ones too."""
    return _METHODS


def blocks(name: str) -> Blocks:
    """MASK, GEN and EXPL of a method, in words and code."""
    return _GRAPHSVX.get(name) or find("method", name).blocks


def settings(name: str) -> dict[str, Any]:
    """The settings of a method with their defaults; those of GraphSVX are its parts."""
    kind = find("method", name)
    if not hasattr(kind, "__dataclass_fields__"):
        parameters = inspect.signature(kind).parameters
        return {key: parameter.default for key, parameter in parameters.items()}
    instance: Any = GraphSVX.paper() if name == "graphsvx-paper" else kind()
    fields = [setting.name for setting in dataclasses.fields(kind) if setting.name != "trained"]
    return {setting: getattr(instance, setting) for setting in fields}


def method(name: str, **changes: Any) -> Method:
    """The method of that name with these settings.

    "graphsvx-paper" also takes `dataset`, for the paper's budgets; "pgexplainer" also takes
    `load`, the file of a trained one. Masks, generators, estimators and interaction indices may be
    given by name.
    """
    kind = find("method", name)
    if name == "pgexplainer" and "load" in changes:
        path = changes.pop("load")
        if changes:
            raise InputError(f"a trained pgexplainer has its settings, got also {sorted(changes)}")
        return kind.load(path)
    defaults = settings(name)
    also = {"graphsvx-paper": ("dataset",), "pgexplainer": ("load",)}.get(name, ())
    if not (kind is GraphSVX and RENAMED.keys() & set(changes)):
        flat = SETTINGS if kind is GraphSVX else ()
        _refuse_unknown(name, changes, {*defaults, *flat, *also})
    for key in {*_KNOWN} & {*changes}:
        if isinstance(changes[key], str) and not isinstance(defaults[key], str):
            changes[key] = block(key, changes[key])
    return GraphSVX.paper(**changes) if name == "graphsvx-paper" else kind(**changes)


def parse_setting(text: str) -> Any:
    """A setting as text, as a command line has it: 200, nodes, [1, 2], None."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):  # a word, or what only looks like JSON
        return {"None": None, "True": True, "False": False}.get(text, text)

    def fixed(value: Any) -> Any:
        return tuple(fixed(item) for item in value) if isinstance(value, list) else value

    return fixed(value)
