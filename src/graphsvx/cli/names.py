"""Names of methods and their settings, read from their source: checked before torch is imported."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphsvx.errors import DataError, InputError, MissingExtraError
from graphsvx.utils.printable import did_you_mean
from graphsvx_lab.datasets.catalogue import CATALOGUE, suggestion

if TYPE_CHECKING:
    from torch_geometric.data import Data


METHODS: dict[str, tuple[str, ...]] = {
    "graphsvx": ("graphsvx.GraphSVX", "settings.FlatSettings"),
    "graphsvx-paper": ("graphsvx.GraphSVX", "settings.FlatSettings"),
    "gnnexplainer": ("gnnexplainer.GNNExplainer",),
    "pgexplainer": ("pgexplainer.PGExplainer",),
    "graphlime": ("graphlime.GraphLIME",),
    "pgm-explainer": ("pgm_explainer.PGMExplainer",),
    "xgnn": ("xgnn.XGNN",),
    "lime": ("tabular.LIME",),
    "shap": ("tabular.SHAP",),
    "greedy": ("greedy.Greedy",),
    "random": ("random.Random",),
    "saliency": ("gradients.Saliency",),
    "integrated-gradients": ("gradients.IntegratedGradients",),
}
"""Module and name of the classes whose fields are the settings of a method."""

BASELINES = {
    "pgm-explainer": "pgmpy",
    "lime": "lime",
    "shap": "shap",
    "saliency": "captum",
    "integrated-gradients": "captum",
}
"""Packages of the extra `baselines` that methods need."""

ZOO = ("gcn", "gat", "gin", "graphconv", "sage", "rgcn", "released")
"""Models of the zoo; which of them a data set has, the zoo says."""

_ALSO = {"graphsvx-paper": ("dataset",), "pgexplainer": ("load",)}
"""What `registry.method` takes besides the fields."""
_EARLIER = ("regression", "r", "features_of")
"""Earlier names of settings of GraphSVX, which says what they are called now."""


def setting_names(method: str) -> tuple[str, ...]:
    """Names of the settings of a method: the annotated fields of its classes."""
    names = [name for place in METHODS[method] for name in _field_names(*place.split("."))]
    return (*names, *_ALSO.get(method, ()))


def _field_names(module: str, name: str) -> list[str]:
    file = Path(__file__).parent.parent / "methods" / f"{module}.py"
    return [
        field.target.id
        for statement in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(statement, ast.ClassDef) and statement.name == name
        for field in statement.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if "ClassVar" not in ast.unparse(field.annotation) and field.target.id != "trained"
    ]


def check_method_name(name: str) -> None:
    """Raise for a method that does not exist, with the name that was probably meant."""
    plugins = [point.name for point in entry_points(group="graphsvx.methods")]
    # Once the registry is imported, there may be registered ones: it looks itself.
    if name in METHODS or name in plugins or "graphsvx.methods.registry" in sys.modules:
        return
    names = [*METHODS, *plugins]
    raise InputError(
        f"there is no method {name!r}; {did_you_mean(name, names)}choose one of {', '.join(names)}"
    )


def check_settings(method: str, pairs: Iterable[str]) -> None:
    """Raise for a setting (NAME=VALUE) that the method does not have, and suggest one."""
    for pair in pairs:
        key, equals, _ = pair.partition("=")
        if not equals or not key:
            raise InputError(f"--set takes NAME=VALUE, got {pair!r}")
        if method not in METHODS:
            continue
        names = setting_names(method)
        if key.strip() not in names and not (
            method.startswith("graphsvx") and key.strip() in _EARLIER
        ):
            raise InputError(
                f"{method} has no setting {key.strip()!r}; {did_you_mean(key, names)}"
                f"it has {', '.join(sorted(names))}"
            )


def check_dataset(name: str) -> None:
    """Raise for a name that is neither a data set nor a file, or whose extra is missing."""
    if name not in CATALOGUE and not Path(name).exists():
        raise DataError(f"{name!r} is neither a data set nor a file; {suggestion(name)}")
    extra = CATALOGUE[name].extra if name in CATALOGUE else None
    if extra is not None:
        check_extra("rdkit", extra)


def check_model_name(name: str) -> None:
    """Raise for a model that the zoo does not have, and suggest one."""
    if name not in ZOO:
        raise InputError(
            f"the zoo has no model {name!r}; {did_you_mean(name, ZOO)}choose one of "
            f"{', '.join(ZOO)}, or name your own as my_module:build"
        )


def check_extra(package: str, extra: str) -> None:
    """Raise if an optional package is not installed, before the work that it is needed for."""
    if find_spec(package) is None:
        raise MissingExtraError(package, extra)


def target(text: str | None) -> int | str | None:
    """The number of a class, or its name."""
    if text is None:
        return None
    return int(text) if text.lstrip("-").isdecimal() else text


def types_of_nodes(graph: Any) -> list[str]:
    """Node types of a typed graph; none of a plain graph, or of several."""
    types: list[str] = getattr(graph, "node_types", [])
    return types


def parse_nodes(graph: Data, text: str, option: str, count: int | None = None) -> list[Any]:
    """Nodes separated by commas: numbers or names, paper:3 or paper:name of typed graphs.

    `paper:1,2` are two papers.
    """
    types = types_of_nodes(graph)
    if not types:
        words = [word.strip() for word in text.split(",")]
        if not getattr(graph, "node_names", None):
            return parse_numbers(text, option, count)
        nodes: list[Any] = [int(word) if word.isdecimal() else word for word in words]
    else:
        nodes, kind = [], ""
        for word in text.split(","):
            named, colon, number = word.strip().rpartition(":")
            kind = named if colon else kind
            named_nodes = kind in types and "names" in graph[kind]
            if not kind or not (number.isdecimal() or named_nodes):
                raise InputError(f"{option} takes nodes such as {types[0]}:0, got {text!r}")
            nodes.append((kind, int(number) if number.isdecimal() else number))
    if count is not None and len(nodes) != count:
        raise InputError(f"{option} takes {count} nodes separated by commas, got {text!r}")
    return nodes


def parse_numbers(text: str, option: str, count: int | None = None) -> list[int]:
    """Parse integers separated by commas, `count` of them if it is given."""
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or (count is not None and len(numbers) != count):
        expected = "numbers" if count is None else f"{count} numbers"
        raise InputError(f"{option} takes {expected} separated by commas, got {text!r}")
    return numbers


def parse_relation(text: str) -> int | str:
    """A relation by number or by name."""
    return int(text) if text.isdecimal() else text
