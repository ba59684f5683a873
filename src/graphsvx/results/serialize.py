"""Explanations to and from JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphsvx.errors import DataError
from graphsvx.results.certificate import Certificate
from graphsvx.results.explanation import Credit, Explanation, FieldRecord
from graphsvx.utils.files import atomic_write

FORMAT = "graphsvx.explanation"
VERSION = 1


def _numbers(tensor: Tensor) -> Any:
    """Nested lists; NaN, which JSON does not know, becomes null."""

    def clean(value: Any) -> Any:
        if isinstance(value, list):
            return [clean(item) for item in value]
        return None if isinstance(value, float) and math.isnan(value) else value

    return clean(tensor.tolist())


def _tensor(value: Any, dtype: torch.dtype, shape: tuple[int, ...] | None = None) -> Tensor:
    def fill(item: Any) -> Any:
        if isinstance(item, list):
            return [fill(each) for each in item]
        return math.nan if item is None else item

    tensor = torch.tensor(fill(value), dtype=dtype)
    return tensor if shape is None else tensor.reshape(shape)


def to_dict(explanation: Explanation) -> dict[str, Any]:
    """Plain lists and numbers, with a format name and version."""

    def credit(credit: Credit) -> dict[str, Any]:
        return {
            "ids": credit.ids.tolist(),
            "values": _numbers(credit.values),
            "errors": _numbers(credit.errors),
            "names": None if credit.names is None else list(credit.names),
        }

    e = explanation
    field = e.field
    return {
        "format": FORMAT,
        "version": VERSION,
        "kind": e.kind,
        "centres": list(e.centres),
        "outputs": list(e.outputs),
        "target": e.target,
        "rather_than": e.rather_than,
        "scale": e.scale,
        "method": e.method,
        "meaning": e.meaning,
        "class_names": None if e.class_names is None else list(e.class_names),
        "bases": _numbers(e.bases),
        "predictions": _numbers(e.predictions),
        "nodes": credit(e.node_credit),
        "features": credit(e.feature_credit),
        "edges": credit(e.edge_credit),
        "certificate": e.certificate.to_dict(),
        "neighbourhood": {
            "ids": field.ids.tolist(),
            "hops": field.hops.tolist(),
            "edge_index": field.edge_index.tolist(),
            "classes": None if field.classes is None else field.classes.tolist(),
            "num_nodes": field.num_nodes,
            "num_features": field.num_features,
        },
        "extra": e.extra,
    }


def from_dict(record: dict[str, Any]) -> Explanation:
    """The inverse of `to_dict`; a DataError if this is no such record."""
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise DataError(f"this is no saved explanation: its format is not {FORMAT!r}")
    if record.get("version") != VERSION:
        raise DataError(
            f"the explanation has version {record.get('version')}, this graphsvx reads "
            f"version {VERSION}; use the graphsvx that wrote it"
        )
    try:
        return _from_dict(record)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise DataError(
            f"the saved explanation is damaged: {type(error).__name__}: {error}"
        ) from error


def _from_dict(record: dict[str, Any]) -> Explanation:
    outputs = len(record["outputs"])

    def credit(saved: dict[str, Any], ends: bool = False) -> Credit:
        ids = _tensor(saved["ids"], torch.long, (2, -1) if ends else (-1,))
        players = len(saved["values"][0]) if saved["values"] else 0
        shape = (outputs, players)
        return Credit(
            ids,
            _tensor(saved["values"], torch.float64, shape),
            _tensor(saved["errors"], torch.float64, shape),
            None if saved["names"] is None else tuple(saved["names"]),
        )

    field = record["neighbourhood"]
    names = record["class_names"]
    return Explanation(
        kind=record["kind"],
        centres=tuple(record["centres"]),
        outputs=tuple(record["outputs"]),
        target=record["target"],
        rather_than=record["rather_than"],
        bases=_tensor(record["bases"], torch.float64),
        predictions=_tensor(record["predictions"], torch.float64),
        node_credit=credit(record["nodes"]),
        feature_credit=credit(record["features"]),
        edge_credit=credit(record["edges"], ends=True),
        certificate=Certificate.from_dict(record["certificate"]),
        field=FieldRecord(
            ids=_tensor(field["ids"], torch.long),
            hops=_tensor(field["hops"], torch.long),
            edge_index=_tensor(field["edge_index"], torch.long, (2, -1)),
            classes=None if field["classes"] is None else _tensor(field["classes"], torch.long),
            num_nodes=field["num_nodes"],
            num_features=field["num_features"],
        ),
        method=record["method"],
        meaning=record["meaning"],
        scale=record["scale"],
        class_names=None if names is None else tuple(names),
        extra=record["extra"],
    )


def save(explanation: Explanation, path: str | Path) -> None:
    """Write JSON atomically."""
    with atomic_write(path) as part:
        part.write_text(json.dumps(to_dict(explanation), allow_nan=False), encoding="utf-8")


def load(path: str | Path) -> Explanation:
    """Read JSON written by `save`."""
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"there is no file {str(path)!r}") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(f"{str(path)!r} cannot be read as an explanation: {error}") from error
    return from_dict(record)


def same(a: Explanation, b: Explanation) -> bool:
    """Bit-equal in everything that is saved."""
    return json.dumps(to_dict(a), sort_keys=True) == json.dumps(to_dict(b), sort_keys=True)
