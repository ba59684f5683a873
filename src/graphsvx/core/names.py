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
    def _by_name(self) -> dict[str, int]:
        names = self.nodes or ()
        by_name = {name: i for i, name in enumerate(names)}
        if len(by_name) < len(names):
            twice = next(name for i, name in enumerate(names) if by_name[name] != i)
            raise InputError(
                f"a node can be asked for by its name only if all names differ, got {twice!r} twice"
            )
        return by_name

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
        if not isinstance(node, str):
            return node
        if self.nodes is None:
            raise InputError(
                f"node must be an integer, got {shown(node)}; to ask by name give node_names="
            )
        if node not in self._by_name:
            raise InputError(
                f"there is no node {node!r} among node_names; "
                f"{did_you_mean(node, self.nodes[:10_000])}".rstrip("; ")
            )
        return self._by_name[node]

    def node_group(self, nodes: Any) -> Any:
        """Positions of several nodes, some of which may be given by name."""
        if isinstance(nodes, (Tensor, np.ndarray, str, bytes, type)) or (
            not hasattr(nodes, "__iter__")
        ):
            return nodes
        return [self.node(node) for node in nodes]

    def target(self, target: Any) -> Any:
        """The number of an output given by name; anything else as it is."""
        if not isinstance(target, str):
            return target
        if self.classes is None:
            raise TargetError(
                f"target must be an integer, got {target!r}; to ask by name give class_names="
            )
        if self.classes.count(target) > 1:
            raise TargetError(
                f"an output can be asked for by its name only if all names differ, got {target!r} "
                f"twice; give its number"
            )
        if target not in self.classes:
            raise TargetError(
                f"there is no output {target!r}; {did_you_mean(target, self.classes)}"
                f"class_names are {', '.join(self.classes[:10])}"
            )
        return self.classes.index(target)


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
        stored = _plain(getattr(data, name, None))
        fits = isinstance(stored, (list, tuple)) and all(isinstance(part, str) for part in stored)
        return tuple(stored) if fits and stored else None

    name = getattr(data, "name", None)
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
