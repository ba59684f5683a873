"""Explanations to and from JSON.

The fields are those of the dataclasses (`ExplanationRecord` and the records inside it);
`results.schema` writes and reads them by their types. Version 1 had other names and an untyped
`extra`; it is still read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from graphsvx.errors import DataError
from graphsvx.results import schema
from graphsvx.results.credit import Credit
from graphsvx.results.record import ExplanationRecord
from graphsvx.utils.files import as_path, atomic_write

T = TypeVar("T", bound=ExplanationRecord)

FORMAT = "graphsvx.explanation"
VERSION = 2


def to_dict(explanation: ExplanationRecord) -> dict[str, Any]:
    """Plain lists and numbers, with a format name and version."""
    return {"format": FORMAT, "version": VERSION, **schema.encode(explanation)}


def from_dict(record: dict[str, Any], kind: type[T]) -> T:
    """The inverse of `to_dict`, as a record of this class; a DataError if it is none."""
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise DataError(f"this is no saved explanation: its format is not {FORMAT!r}")
    if record.get("version") not in (1, VERSION):
        raise DataError(
            f"the explanation has version {record.get('version')}, this graphsvx reads "
            f"versions 1 and {VERSION}; use the graphsvx that wrote it"
        )
    try:
        values = current(record)
        explanation: T = schema.decode(
            kind, {key: value for key, value in values.items() if key not in _HEADER}
        )
        _check(explanation)
        return explanation
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError, RuntimeError) as error:
        raise DataError(
            f"the saved explanation is damaged: {type(error).__name__}: {error}"
        ) from error


def json_schema() -> dict[str, Any]:
    """The JSON Schema document of saved explanations (docs/schema.json)."""
    document = schema.json_schema(ExplanationRecord)
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

# Version 1: names of fields that differ, and where the values of `extra` are now.
_FIELDS = {"neighbourhood": "field", "nodes": "node_credit", "features": "feature_credit",
           "edges": "edge_credit"}  # fmt: skip
_CERTIFICATE = {"asked": "budget", "made": "calls", "rows": "coalitions", "hops": "depth"}
_EXTRA = ("reference", "groups", "balance", "removed", "neighbours", "masked_scores",
          "questions_trained_on", "network")  # fmt: skip
_GENERATED = ("score", "mean_score_untrained", "mean_score_trained", "history")


def current(record: dict[str, Any]) -> dict[str, Any]:
    """A saved record, or a part of one, under the names of the current version."""
    if record.get("version") == VERSION:
        return record
    values = {_FIELDS.get(name, name): value for name, value in record.items()}
    certificate = values["certificate"]
    values["certificate"] = {
        _CERTIFICATE.get(name, name): value for name, value in certificate.items()
    }
    values["certificate"]["games"] = [
        {_CERTIFICATE.get(name, name): value for name, value in game.items()}
        for game in certificate["games"]
    ]
    if "num_nodes" in values:  # a row of a table
        values["field"] = {name: values.pop(name) for name in ("num_nodes", "num_features")}
    extra = dict(values.pop("extra"))
    values |= {name: extra.pop(name) for name in _EXTRA if name in extra}
    if "selective" in extra:
        selection = dict(extra.pop("selective"))
        values["selection"] = {"players": selection.pop("of"), **selection}
    if isinstance(extra.get("graph"), dict):
        generated = {name: extra.pop(name) for name in _GENERATED}
        values["generated"] = {**extra.pop("graph"), **generated}
    elif "graph" in extra:
        values["graph_index"] = extra.pop("graph")
    return {**values, "extra": extra}


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
    row, residual = outputs.index(explanation.target), explanation.certificate.residual
    sides = (explanation.node_credit, explanation.feature_credit, explanation.edge_credit)
    credit = sum(float(side.values[row].sum()) for side in sides if len(side.values) > row)
    prediction = float(explanation.predictions[row])
    explained = float(explanation.bases[row]) + credit + residual
    if abs(prediction - explained) > 1e-6 * max(1.0, abs(prediction), abs(credit)):
        raise ValueError(
            f"the prediction is {prediction:g}, but base, credit and residual add up to "
            f"{explained:g}"
        )

    def check_credit(credit: Credit, limit: int) -> None:
        _must_be_below(credit.ids, limit)
        players = credit.ids.shape[-1]
        _must_have_shape(credit.values, (len(outputs), players))
        _must_have_shape(credit.errors, (len(outputs), players))
        if credit.names is not None and len(credit.names) != players:
            raise ValueError("names are not one for each player")

    check_credit(explanation.node_credit, field.num_nodes)
    check_credit(explanation.feature_credit, field.num_features)
    check_credit(explanation.edge_credit, field.num_nodes)
    if explanation.interactions is not None:
        record = explanation.interactions
        sets = record.members.shape[1]
        players = sum(
            credit.players
            for credit in (
                explanation.feature_credit,
                explanation.node_credit,
                explanation.edge_credit,
            )
        )
        _must_have_shape(record.members, (record.order, sets))
        _must_be_below(record.members + 1, players + 1)
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
    """The JSON text that `save` writes."""
    return json.dumps(to_dict(explanation), allow_nan=False)


def save(explanation: ExplanationRecord, path: str | Path) -> None:
    """Write JSON atomically."""
    with atomic_write(path) as part:
        part.write_text(to_json(explanation), encoding="utf-8")


def load(path: str | Path, kind: type[T]) -> T:
    """Read JSON written by `save`."""
    try:
        record = json.loads(as_path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"there is no file {str(path)!r}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{str(path)!r} cannot be read as an explanation: {error}") from error
    return from_dict(record, kind)


def same(a: ExplanationRecord, b: ExplanationRecord) -> bool:
    """Bit-equal in everything that is saved."""
    return json.dumps(to_dict(a), sort_keys=True) == json.dumps(to_dict(b), sort_keys=True)
