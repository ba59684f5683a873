"""Reference values of switched-off features: the mean, a node, a class mean or a vector."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Ids, no_ids
from graphsvx.core.graph import Graph
from graphsvx.core.types import Types
from graphsvx.errors import InputError
from graphsvx.utils.constraints import Converted, as_int, shown

Reference = int | str | tuple[float, ...] | None

_NO_CENTRES = no_ids()
_EXPECTED = 'reference must be a node id, "class:c" or a vector of numbers'


def freeze_reference(reference: Any, name: str = "reference") -> Reference:
    """Validate a reference and make it hashable: vectors become tuples."""
    if reference is None:
        return None
    if isinstance(reference, str):
        head, _, number = reference.partition(":")
        if head != "class" or not number.isdecimal():
            raise InputError(f"{_EXPECTED}, got {shown(reference)}")
        return reference
    if isinstance(reference, Tensor):
        reference = reference.detach().cpu().double().numpy() if reference.dim() else reference
    try:
        if not isinstance(reference, (tuple, list, np.ndarray)):
            return as_int(reference, name)
        vector = np.asarray(reference, dtype=np.float64)
    except (TypeError, ValueError):  # InputErrors too
        raise InputError(f"{_EXPECTED}, got {shown(reference)}") from None
    if vector.ndim != 1:
        raise InputError(f"{_EXPECTED}, got an array of shape {list(vector.shape)}")
    if not np.isfinite(vector).all():
        feature = int(np.flatnonzero(~np.isfinite(vector))[0])
        raise InputError(f"reference must be finite, got {vector[feature]} for feature {feature}")
    return tuple(vector.tolist())


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
    x, count = types.features[name], types.count(name)
    match reference:
        case int():
            if not 0 <= reference < count:
                raise InputError(
                    f"reference must be a {name} from 0 to {count - 1}, got {reference}"
                )
            return x[reference].double()
        case str():
            y = types.node_values.get("y", {}).get(name)
            return class_mean(x, y, int(reference.partition(":")[2]))
    if len(reference) != width:
        raise InputError(
            f"reference must have one value for each of the {width} features{owner}, "
            f"got {len(reference)}"
        )
    return torch.tensor(reference, dtype=torch.float64)


def class_mean(x: Tensor, y: Tensor | None, label: int) -> Tensor:
    """Mean features of the nodes of a class, float64."""
    if y is None or y.is_floating_point():
        raise InputError(
            f'reference="class:{label}" needs the class of every node; set data.y, '
            f"or give the vector itself"
        )
    members = x[y == label]
    if not len(members):
        labels = sorted(set(y.tolist()))
        raise InputError(
            f'reference="class:{label}" names a class without nodes; data.y has {labels[:10]}'
        )
    return _typical(members)


def monte_carlo_mean(graph: Graph, draws: int, rng: torch.Generator) -> Tensor:
    """The mean of `draws` nodes drawn from the data, with replacement (float64)."""
    rows = torch.randint(graph.num_nodes, (draws,), generator=rng)
    return _typical(graph.x[rows.to(graph.x.device)])


def _typical(rows: Tensor) -> Tensor:
    return (
        rows.double().mean(0) if rows.is_floating_point() else rows.long().mode(0).values.double()
    )
