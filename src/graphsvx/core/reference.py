"""Reference values of switched-off features: the mean, a node, a class mean or a vector."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.graph import Graph
from graphsvx.errors import InputError
from graphsvx.utils.constraints import Converted, as_int, shown

Reference = int | str | tuple[float, ...] | None

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
        reference = (
            reference.item() if reference.dim() == 0 else reference.detach().cpu().double().numpy()
        )
    if isinstance(reference, (tuple, list, np.ndarray)):
        try:
            vector = np.asarray(reference, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError(f"{_EXPECTED}, got {shown(reference)}") from None
        if vector.ndim != 1:
            raise InputError(f"{_EXPECTED}, got an array of shape {list(vector.shape)}")
        if not np.isfinite(vector).all():
            feature = int(np.flatnonzero(~np.isfinite(vector))[0])
            raise InputError(
                f"reference must be finite, got {vector[feature]} for feature {feature}"
            )
        return tuple(vector.tolist())
    try:
        return as_int(reference, name)
    except InputError:
        raise InputError(f"{_EXPECTED}, got {shown(reference)}") from None


ReferenceSetting = Annotated[Reference, Converted(freeze_reference)]
"""A reference as a field of settings."""


def resolve_reference(graph: Graph, reference: Reference) -> Tensor:
    """Reference vector xi, [features], float64 (the paper's contrastive extension).

    A class is represented by the mean of its nodes (`data.y`).
    """
    if reference is None:
        return graph.statistics.mean
    x = graph.x
    if isinstance(reference, int):
        if not 0 <= reference < graph.num_nodes:
            raise InputError(
                f"reference must be a node from 0 to {graph.num_nodes - 1}, got {reference}"
            )
        return x[reference].double()
    if isinstance(reference, str):
        return class_mean(x, graph.y, int(reference.partition(":")[2]))
    if len(reference) != graph.num_features:
        raise InputError(
            f"reference must have one value for each of the {graph.num_features} features, "
            f"got {len(reference)}"
        )
    return torch.tensor(reference, dtype=torch.float64, device=x.device)


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
    """Mean of quantities, mode of categories (integers)."""
    return (
        rows.double().mean(0) if rows.is_floating_point() else rows.long().mode(0).values.double()
    )
