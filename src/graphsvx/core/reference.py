"""Reference values of switched-off features: the mean, a node, a class mean or a vector."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Annotated, Any

import torch
from torch import Tensor

from graphsvx.core.arrays import Ids, no_ids
from graphsvx.core.graph import Graph
from graphsvx.core.types import Types
from graphsvx.errors import InputError
from graphsvx.utils.constraints import Converted, checked, shown

Reference = int | str | tuple[float, ...] | None

_NO_CENTRES = no_ids()


def freeze_reference(reference: Any, name: str = "reference") -> Reference:
    """Validate a reference and make it hashable: vectors become tuples."""
    if reference is None:
        return None
    frozen: Reference = ""
    with suppress(InputError):
        frozen = checked(reference, tuple[float, ...] | Reference, name)
    if isinstance(frozen, str) and not re.fullmatch(r"class:\d+", frozen):
        raise InputError(
            f'{name} must be a node id, "class:c" or a vector of finite numbers, got '
            f"{shown(reference)}"
        )
    return frozen


ReferenceSetting = Annotated[Reference, Converted(freeze_reference)]
"""A reference as a field of settings."""


def resolve_reference(graph: Graph, reference: Reference, centres: Ids = _NO_CENTRES) -> Tensor:
    """Reference vector xi, [features of all types], float64 (the paper's contrastive extension).

    The mean of a node's type; a node id, "class:c" (the mean of the nodes of a class, `data.y`) or
    a vector are features of the type of the explained nodes.
    """
    if reference is None:
        return graph.statistics.mean
    types = graph.types
    if not len(centres) and len(types.node_types) > 1:
        raise InputError(
            "reference= refers to the type of the explained node, but a graph is explained"
        )
    name = types.node_types[types.kinds(centres[:1])[0] if len(centres) else 0]
    width, owner = types.width(name), "" if types.flat else f" of {name!r}"
    if not width and (not types.flat or name not in types.features):
        raise InputError(f"reference= is about features, but {name!r} has none")
    vector = graph.statistics.mean.clone()
    vector[types.blocks[name]] = _referred(types, name, width, owner, reference).to(vector)
    return vector


def _referred(types: Types, name: str, width: int, owner: str, reference: Any) -> Tensor:
    """The features of one type that a reference means."""
    x = types.features[name]
    match reference:
        case int():
            types.number(name, reference, "reference")  # an InputError unless there is one
            return x[reference].double()
        case str():
            y = types.node_values.get("y", {}).get(name)
            if y is None or y.is_floating_point():
                raise InputError(
                    f'reference="{reference}" needs the class of every node; set data.y, or give '
                    "the vector itself"
                )
            members = x[y == int(reference.partition(":")[2])]
            if not len(members):
                labels = sorted(set(y.tolist()))[:10]
                raise InputError(
                    f'reference="{reference}" names a class without nodes; data.y has {labels}'
                )
            return _typical(members)
    if len(reference) != width:
        raise InputError(
            f"reference must have one value for each of the {width} features{owner}, "
            f"got {len(reference)}"
        )
    return torch.tensor(reference, dtype=torch.float64)


def monte_carlo_mean(graph: Graph, draws: int, rng: torch.Generator) -> Tensor:
    """The mean of `draws` nodes drawn from the data, with replacement (float64)."""
    rows = torch.randint(graph.num_nodes, (draws,), generator=rng)
    return _typical(graph.x[rows.to(graph.x.device)])


def _typical(rows: Tensor) -> Tensor:
    return (
        rows.double().mean(0) if rows.is_floating_point() else rows.long().mode(0).values.double()
    )
