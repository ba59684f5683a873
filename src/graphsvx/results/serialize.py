"""Explanations to and from JSON.

The fields are those of the dataclasses (`Explanation` and the records inside it);
`utils.constraints` writes and reads them by their annotations.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from graphsvx.errors import DataError
from graphsvx.utils import constraints
from graphsvx.utils.files import as_path, atomic_write

if TYPE_CHECKING:
    from graphsvx.results.explanation import Explanation

FORMAT = "graphsvx.explanation"
VERSION = 2


def to_dict(explanation: Explanation) -> dict[str, Any]:
    """Plain lists and numbers, ready for JSON; `from_dict` gives the same bits back."""
    return {"format": FORMAT, "version": VERSION, **constraints.as_json(explanation)}


def from_dict(record: dict[str, Any], kind: type[Explanation]) -> Explanation:
    """The inverse of `to_dict`, of this class; a DataError if it is none."""
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise DataError(f"this is no saved explanation: its format is not {FORMAT!r}")
    check_version(record)
    try:
        values = {name: value for name, value in record.items() if name not in _HEADER}
        explanation: Explanation = constraints.from_json(kind, values, "it")
        _check(explanation)
        return explanation
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError, RuntimeError) as error:
        raise DataError(
            f"the saved explanation is damaged: {type(error).__name__}: {error}"
        ) from error


def json_schema(kind: type[Explanation]) -> dict[str, Any]:
    """The JSON Schema document of saved explanations (docs/schema.json)."""
    document = constraints.schema_of(kind)
    header = {"format": {"const": FORMAT}, "version": {"const": VERSION}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **document,
        "properties": {**header, **document["properties"]},
        "required": [*header, *document["required"]],
    }


_HEADER = ("format", "version")


def check_version(record: dict[str, Any]) -> None:
    """Raise a DataError unless a saved record, or a part of one, is of this version."""
    if record.get("version") != VERSION:
        raise DataError(
            f"the explanation has version {record.get('version')}, this graphsvx reads version "
            f"{VERSION}; use the graphsvx that wrote it"
        )


def _check(explanation: Explanation) -> None:
    """A ValueError if fields contradict each other; their types are right by now."""
    field, outputs = explanation.field, explanation.outputs
    if explanation.target not in outputs:
        raise ValueError("the target is not among the outputs")
    counts = (field.num_nodes, field.num_features)
    if min((*explanation.centres, *outputs, explanation.rather_than or 0, *counts)) < 0:
        raise ValueError("centres, outputs and counts must be 0 or more")
    sides, sets, cells = explanation.credit_by_kind, explanation.interactions, explanation.cells
    nodes, players = len(field.ids), sum(side.players for side in sides.values())
    shapes: list[tuple[Tensor | None, tuple[int, ...]]] = [
        (explanation.bases, (len(outputs),)),
        (explanation.predictions, (len(outputs),)),
        (field.hops, (nodes,)),
        (field.classes, (nodes,)),
    ]
    limits = [(field.ids, field.num_nodes), (field.edge_index, field.num_nodes)]
    named: list[tuple[Sequence[str] | None, int]] = [(field.names, nodes)]
    for kind, side in sides.items():
        count = side.ids.shape[-1]
        shapes += [(part, (len(outputs), count)) for part in (side.values, side.errors)]
        limits.append((side.ids, field.num_features if kind == "feature" else field.num_nodes))
        named.append((side.names, count))
    if sets is not None:
        count = sets.members.shape[1]
        shapes.append((sets.members, (sets.order, count)))
        shapes += [(part, (len(outputs), count)) for part in (sets.values, sets.errors)]
        limits.append((sets.members + 1, players + 1))
    if cells is not None:
        count = len(cells.nodes)
        shapes += [(part, (len(outputs), count)) for part in (cells.values, cells.errors)]
    for array, shape in shapes:
        if array is not None and tuple(array.shape) != shape:
            raise ValueError(f"expected an array {list(shape)}, got {list(array.shape)}")
    for ids, limit in limits:
        if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < limit:
            raise ValueError(f"ids must be from 0 to {limit - 1}")
    for names, count in named:
        if names is not None and len(names) != count:
            raise ValueError(f"expected {count} names, got {len(names)}")
    prediction, credit = explanation.prediction, explanation.total
    explained = explanation.base + credit + explanation.certificate.residual
    if abs(prediction - explained) > 1e-6 * max(1.0, abs(prediction), abs(credit)):
        raise ValueError(
            f"the prediction is {prediction:g}, but base, credit and residual add up to "
            f"{explained:g}"
        )


def to_json(explanation: Explanation) -> str:
    """The JSON text that `write_file` writes."""
    return json.dumps(to_dict(explanation), allow_nan=False)


def write_file(explanation: Explanation, path: str | Path) -> None:
    """Write a versioned JSON file."""
    with atomic_write(path) as part:
        part.write_text(to_json(explanation), encoding="utf-8")


def read_file(path: str | Path, kind: type[Explanation]) -> Explanation:
    """Read a file written by `write_file`."""
    path = as_path(path)
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"there is no file {str(path)!r}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{str(path)!r} cannot be read as an explanation: {error}") from error
    return from_dict(record, kind)


def same(a: Explanation, b: Explanation) -> bool:
    """Bit-equal in everything that is saved."""
    return json.dumps(to_dict(a), sort_keys=True) == json.dumps(to_dict(b), sort_keys=True)
