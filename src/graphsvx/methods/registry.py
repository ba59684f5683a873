"""Methods by name, for command lines and study files. In code, use the classes.

registry.names()
registry.method("gnnexplainer", epochs=200)
registry.method("pgexplainer", load="trained.safetensors")
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from graphsvx.errors import InputError
from graphsvx.estimators.gaussian_process import GaussianProcess
from graphsvx.estimators.least_squares import WLS
from graphsvx.generators import Indirect, Isolate
from graphsvx.masks import Auto, SmarterSeparate
from graphsvx.methods import (
    LIME,
    SHAP,
    XGNN,
    GNNExplainer,
    GraphLIME,
    Greedy,
    IntegratedGradients,
    PGExplainer,
    PGMExplainer,
    Random,
    Saliency,
)
from graphsvx.methods.base import Block, Blocks, Method, Properties
from graphsvx.methods.graphsvx import GraphSVX

_CLASSES: dict[str, Any] = {
    "graphsvx": GraphSVX,
    "graphsvx-paper": GraphSVX,
    "gnnexplainer": GNNExplainer,
    "pgexplainer": PGExplainer,
    "graphlime": GraphLIME,
    "pgm-explainer": PGMExplainer,
    "xgnn": XGNN,
    "lime": LIME,
    "shap": SHAP,
    "greedy": Greedy,
    "random": Random,
    "saliency": Saliency,
    "integrated-gradients": IntegratedGradients,
}

_SHAPLEY = Properties(
    decomposable=True, general=True, robust=True, meaningful=True, selective=True, contrastive=True
)

_GRAPHSVX: dict[str, Blocks] = {
    "graphsvx": Blocks(
        title="GraphSVX",
        mask=Block("M_F, M_N: all coalitions where affordable, else paired samples", Auto),
        gen=Block("Eq. 1-2: features to their mean, nodes without edges", Isolate),
        expl=Block(
            "Shapley values of a kernel interpolation over pairs, or least squares", GaussianProcess
        ),
        explains=("nodes", "features", "edges"),
        tasks=("node", "nodes", "graph"),
        properties=_SHAPLEY,
        source="Duval and Malliaros 2021",
    ),
    "graphsvx-paper": Blocks(
        title="GraphSVX, as in the paper",
        mask=Block("M_F, M_N: SmarterSeparate, small and large sizes first", SmarterSeparate),
        gen=Block("Eq. 1-2 and algorithm 2: cut-off nodes rejoin along a path", Indirect),
        expl=Block("weighted least squares with the Shapley kernel, constraints exact", WLS),
        explains=("nodes", "features"),
        tasks=("node", "nodes", "graph"),
        properties=dataclasses.replace(_SHAPLEY, selective=False),
        source="Duval and Malliaros 2021",
        notes="rows are not weighed by how they were drawn: idle players get a little credit",
    ),
}


def names() -> tuple[str, ...]:
    """All methods, GraphSVX first."""
    return tuple(_CLASSES)


def method_class(name: str) -> Any:
    """The class behind a name."""
    return _CLASSES[_checked(name)]


def blocks(name: str) -> Blocks:
    """MASK, GEN and EXPL of a method, in words and code."""
    if _checked(name) in _GRAPHSVX:
        return _GRAPHSVX[name]
    blocks: Blocks = method_class(name).blocks
    return blocks


def settings(name: str) -> dict[str, Any]:
    """The settings of a method with their defaults."""
    kind = method_class(name)
    instance = GraphSVX.paper() if name == "graphsvx-paper" else kind()
    return {
        setting.name: getattr(instance, setting.name)
        for setting in dataclasses.fields(kind)
        if setting.name != "trained"
    }


def method(name: str, **changes: Any) -> Method:
    """The method of that name with these settings.

    "graphsvx-paper" also takes `dataset`, for the paper's budgets; "pgexplainer" also takes
    `load`, the file of a trained one.
    """
    kind = method_class(name)
    allowed = set(settings(name))
    if name == "graphsvx-paper":
        allowed.add("dataset")
    if name == "pgexplainer":
        if "load" in changes:
            path = changes.pop("load")
            if changes:
                raise InputError(
                    f"a trained pgexplainer has its settings, got also {sorted(changes)}"
                )
            loaded: Method = kind.load(path)
            return loaded
        allowed.add("load")
    unknown = sorted(set(changes) - allowed)
    if unknown:
        raise InputError(f"{name} has the settings {sorted(allowed)}, got {unknown}")
    instance: Method = GraphSVX.paper(**changes) if name == "graphsvx-paper" else kind(**changes)
    return instance


def parse_setting(text: str) -> Any:
    """A setting as text, as a command line has it: 200, nodes, [1, 2], None."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):  # a word, or what only looks like JSON
        return {"None": None, "True": True, "False": False}.get(text, text)

    def fixed(value: Any) -> Any:
        return tuple(fixed(each) for each in value) if isinstance(value, list) else value

    return fixed(value)


def _checked(name: str) -> str:
    if name not in _CLASSES:
        raise InputError(f"there is no method {name!r}; choose one of {', '.join(_CLASSES)}")
    return name
