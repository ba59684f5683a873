"""Names of features, nodes and outputs, given by the user or carried by the data."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from graphsvx.errors import InputError, TargetError
from graphsvx.utils.constraints import checked, shown
from graphsvx.utils.printable import did_you_mean

NameList = tuple[str, ...] | None


def attribute_names(data: Any) -> list[str]:
    """Names of the attributes that `data` holds itself."""
    if hasattr(data, "keys"):
        return [*data.keys()]
    return [*vars(data)] if hasattr(data, "__dict__") else []


def attribute_of(data: Any, name: str) -> Any:
    """An attribute of the user's data; None: it has none."""
    return getattr(data, name, None)


@dataclass(frozen=True, eq=False)
class Names:
    """Names of features (columns of x), nodes and outputs; None: numbers are used."""

    features: NameList = None
    nodes: NameList = None
    classes: NameList = None
    edge_features: NameList = None
    graph: str | None = None
    """The name of the whole graph."""
    positions: Mapping[Hashable, int] | None = None
    """Nodes by what the data calls them itself (networkx)."""

    @cached_property
    def _node_ids(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.nodes or ())}

    def check(self, nodes: int, columns: int, row_shape: tuple[int, ...] | None) -> None:
        """Raise InputError unless every node and feature has a name, where names are given."""
        series = row_shape[-1] if row_shape else columns
        for name, names, counts in (
            ("node_names", self.nodes, {nodes}),
            ("feature_names", self.features, {columns, series}),
        ):
            if names is not None and len(names) not in counts:
                item = name.removesuffix("_names")
                raise InputError(
                    f"{name} must name each of the {min(counts)} {item}s, got {len(names)} names"
                )

    def node(self, node: Any) -> Any:
        """The position of a node given by name; anything else as it is."""
        if self.positions is not None and isinstance(node, Hashable):
            if node in self.positions:
                return self.positions[node]
            raise InputError(f"the graph has no node {shown(node)}")
        return _position(node, "node", "node_names", self.nodes, self._node_ids, InputError)

    def node_group(self, nodes: Any) -> Any:
        """Positions of several nodes, some of which may be given by name."""
        plain = isinstance(nodes, (Tensor, np.ndarray, str, bytes, type))
        if plain or not hasattr(nodes, "__iter__"):
            return nodes
        return [self.node(node) for node in nodes]

    def target(self, target: Any) -> Any:
        """The number of an output given by name; anything else as it is."""
        positions = {name: i for i, name in enumerate(self.classes or ())}
        return _position(target, "target", "class_names", self.classes, positions, TargetError)


def _position(
    name: Any,
    argument: str,
    listed: str,
    names: NameList,
    positions: Mapping[str, int],
    error: type[InputError],
) -> Any:
    if not isinstance(name, str):
        return name
    if names is None:
        raise error(
            f"{argument} must be an integer, got {shown(name)}; to ask by name give {listed}="
        )
    if name not in positions:
        raise error(
            f"{argument} must be one of {listed}, got {shown(name)}; "
            f"{did_you_mean(name, names[:10_000])}they are {', '.join(names[:10])}"
        )
    if len(positions) < len(names) and names.count(name) > 1:
        raise error(
            f"{listed} must differ to ask by name, got {shown(name)} twice; give its number"
        )
    return positions[name]


NUMBERS = Names()


def find_names(
    data: Any,
    *,
    feature_names: Any = None,
    node_names: Any = None,
    class_names: Any = None,
    positions: Mapping[Hashable, int] | None = None,
) -> Names:
    """Names that are given, else those that `data` carries under the same names."""

    def find(value: Any, name: str) -> NameList:
        if value is not None:
            names: NameList = checked(_plain(value), tuple[str, ...] | None, name)
            return names
        stored = _plain(attribute_of(data, name))
        fits = isinstance(stored, (list, tuple)) and all(isinstance(part, str) for part in stored)
        return tuple(stored) if fits and stored else None

    name = attribute_of(data, "name")
    return Names(
        graph=name if isinstance(name, str) and name else None,
        features=find(feature_names, "feature_names"),
        nodes=find(node_names, "node_names"),
        classes=find(class_names, "class_names"),
        edge_features=find(None, "edge_feature_names"),
        positions=positions,
    )


def _plain(names: Any) -> Any:
    return names.tolist() if isinstance(names, np.ndarray) else names
