"""Explanations to and from JSON.

The fields are those of the dataclasses (`ExplanationRecord` and the records inside it);
`utils.constraints` writes and reads them by their annotations.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from graphsvx.errors import DataError
from graphsvx.results.record import ExplanationRecord
from graphsvx.utils import constraints
from graphsvx.utils.files import as_path, atomic_write

T = TypeVar("T", bound=ExplanationRecord)

FORMAT = "graphsvx.explanation"
VERSION = 2


def to_dict(explanation: ExplanationRecord) -> dict[str, Any]:
    """Plain lists and numbers, with a format name and version."""
    return {"format": FORMAT, "version": VERSION, **constraints.as_json(explanation)}


def from_dict(record: dict[str, Any], kind: type[T]) -> T:
    """The inverse of `to_dict`, as a record of this class; a DataError if it is none."""
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise DataError(f"this is no saved explanation: its format is not {FORMAT!r}")
    check_version(record)
    try:
        values = {name: value for name, value in record.items() if name not in _HEADER}
        explanation: T = constraints.from_json(kind, values, "it")
        _check(explanation)
        return explanation
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError, RuntimeError) as error:
        raise DataError(
            f"the saved explanation is damaged: {type(error).__name__}: {error}"
        ) from error


def json_schema() -> dict[str, Any]:
    """The JSON Schema document of saved explanations (docs/schema.json)."""
    document = constraints.schema_of(ExplanationRecord)
    header = {"format": {"const": FORMAT}, "version": {"const": VERSION}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **document,
        "title": "Explanation",
        "properties": {**header, **document["properties"]},
        "required": [*header, *document["required"]],
    }


def write_json_schema(path: str | Path) -> None:
    """Write the JSON Schema document."""
    with atomic_write(path) as part:
        part.write_text(json.dumps(json_schema(), indent=2) + "\n", encoding="utf-8")


_HEADER = ("format", "version")


def check_version(record: dict[str, Any]) -> None:
    """Raise a DataError unless a saved record, or a part of one, is of this version."""
    if record.get("version") != VERSION:
        raise DataError(
            f"the explanation has version {record.get('version')}, this graphsvx reads version "
            f"{VERSION}; use the graphsvx that wrote it"
        )


def _check(explanation: ExplanationRecord) -> None:
    """A ValueError if fields contradict each other; their types are right by now."""
    field, outputs = explanation.field, explanation.outputs
    if explanation.target not in outputs:
        raise ValueError("the target is not among the outputs")
    counts = (field.num_nodes, field.num_features)
    if min((*explanation.centres, *outputs, explanation.rather_than or 0, *counts)) < 0:
        raise ValueError("centres, outputs and counts must be 0 or more")
    for values in (explanation.bases, explanation.predictions):
        _must_have_shape(values, (len(outputs),))
    row, residual = explanation.row, explanation.certificate.residual
    sides = explanation.credit_by_kind.values()
    credit = sum(float(side.values[row].sum()) for side in sides if len(side.values) > row)
    prediction = float(explanation.predictions[row])
    explained = float(explanation.bases[row]) + credit + residual
    if abs(prediction - explained) > 1e-6 * max(1.0, abs(prediction), abs(credit)):
        raise ValueError(
            f"the prediction is {prediction:g}, but base, credit and residual add up to "
            f"{explained:g}"
        )

    for kind, side in explanation.credit_by_kind.items():
        _must_be_below(side.ids, field.num_features if kind == "feature" else field.num_nodes)
        players = side.ids.shape[-1]
        _must_have_shape(side.values, (len(outputs), players))
        _must_have_shape(side.errors, (len(outputs), players))
        if side.names is not None and len(side.names) != players:
            raise ValueError("names are not one for each player")
    if explanation.interactions is not None:
        record = explanation.interactions
        sets = record.members.shape[1]
        _must_have_shape(record.members, (record.order, sets))
        _must_be_below(record.members + 1, sum(side.players for side in sides) + 1)
        _must_have_shape(record.values, (len(outputs), sets))
        _must_have_shape(record.errors, (len(outputs), sets))
    _must_be_below(field.ids, field.num_nodes)
    _must_be_below(field.edge_index, field.num_nodes)
    for per_node in (field.hops, field.classes):
        if per_node is not None:
            _must_have_shape(per_node, tuple(field.ids.shape))
    if field.names is not None and len(field.names) != len(field.ids):
        raise ValueError("names are not one for each node of the field")


def _must_be_below(ids: Tensor, limit: int) -> None:
    if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < limit:
        raise ValueError(f"ids must be from 0 to {limit - 1}")


def _must_have_shape(values: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(values.shape) != shape:
        raise ValueError(f"expected an array {list(shape)}, got {list(values.shape)}")


def to_json(explanation: ExplanationRecord) -> str:
    """The JSON text that `write_file` writes."""
    return json.dumps(to_dict(explanation), allow_nan=False)


def write_file(explanation: ExplanationRecord, path: str | Path) -> None:
    """Write JSON atomically."""
    with atomic_write(path) as part:
        part.write_text(to_json(explanation), encoding="utf-8")


def read_file(path: str | Path, kind: type[T]) -> T:
    """Read JSON written by `write_file`."""
    path = as_path(path)
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"there is no file {str(path)!r}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{str(path)!r} cannot be read as an explanation: {error}") from error
    return from_dict(record, kind)


def same(a: ExplanationRecord, b: ExplanationRecord) -> bool:
    """Bit-equal in everything that is saved."""
    return json.dumps(to_dict(a), sort_keys=True) == json.dumps(to_dict(b), sort_keys=True)
