"""Explanations to and from JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor

from graphsvx.core.query import Kind
from graphsvx.errors import DataError
from graphsvx.results.certificate import Certificate
from graphsvx.results.explanation import Credit, Explanation, FieldRecord
from graphsvx.utils.constraints import Range, check_fields, checked, shown
from graphsvx.utils.files import as_path, atomic_write

FORMAT = "graphsvx.explanation"
VERSION = 1


def _numbers(tensor: Tensor) -> Any:
    """Nested lists; NaN, which JSON does not know, becomes null."""

    def clean(value: Any) -> Any:
        if isinstance(value, list):
            return [clean(item) for item in value]
        return None if isinstance(value, float) and math.isnan(value) else value

    return clean(tensor.tolist())


def _tensor(value: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    def fill(item: Any) -> Any:
        if isinstance(item, list):
            return [fill(each) for each in item]
        if item is None:
            return math.nan
        if isinstance(item, bool) or not isinstance(item, (int, float)) or math.isinf(item):
            raise ValueError(f"expected a number, got {shown(item)}")
        return item

    return torch.tensor(fill(value), dtype=dtype).reshape(shape)


def _ids(value: Any, most: int, shape: tuple[int, ...]) -> Tensor:
    """Whole numbers from 0 to below `most`."""
    found = _tensor(value, torch.long, shape)
    if found.numel() and not 0 <= int(found.min()) <= int(found.max()) < most:
        raise ValueError(f"ids must be from 0 to {most - 1}")
    return found


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
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError, RuntimeError) as error:
        raise DataError(
            f"the saved explanation is damaged: {type(error).__name__}: {error}"
        ) from error


def _from_dict(record: dict[str, Any]) -> Explanation:
    about = {name: checked(record[name], hint, name) for name, hint in _ENTRIES.items()}
    field = record["neighbourhood"]
    sizes = {name: checked(field[name], _Id, name) for name in ("num_nodes", "num_features")}
    rows = (len(about["outputs"]),)
    if about["target"] not in about["outputs"]:
        raise ValueError("the target is not among the outputs")

    def credit(saved: dict[str, Any], most: int, ends: bool = False) -> Credit:
        ids = _ids(saved["ids"], most, (2, -1) if ends else (-1,))
        shape = (*rows, ids.shape[-1])
        names = checked(saved["names"], tuple[str, ...] | None, "names")
        if names is not None and len(names) != ids.shape[-1]:
            raise ValueError("names are not one for each player")
        values = _tensor(saved["values"], torch.float64, shape)
        return Credit(ids, values, _tensor(saved["errors"], torch.float64, shape), names)

    ids = _ids(field["ids"], sizes["num_nodes"], (-1,))
    classes = field["classes"]
    return Explanation(
        bases=_tensor(record["bases"], torch.float64, rows),
        predictions=_tensor(record["predictions"], torch.float64, rows),
        node_credit=credit(record["nodes"], sizes["num_nodes"]),
        feature_credit=credit(record["features"], sizes["num_features"]),
        edge_credit=credit(record["edges"], sizes["num_nodes"], ends=True),
        certificate=_certificate(record["certificate"]),
        field=FieldRecord(
            ids=ids,
            hops=_tensor(field["hops"], torch.long, tuple(ids.shape)),
            edge_index=_ids(field["edge_index"], sizes["num_nodes"], (2, -1)),
            classes=None if classes is None else _tensor(classes, torch.long, tuple(ids.shape)),
            **sizes,
        ),
        **about,
    )


def _certificate(record: dict[str, Any]) -> Certificate:
    certificate = Certificate.from_dict(record)
    for part in (certificate, *certificate.games):
        check_fields(part)
    return certificate


_Id = Annotated[int, Range(0, 2**62)]
_ENTRIES: dict[str, Any] = {
    "kind": Kind,
    "centres": tuple[_Id, ...],
    "outputs": tuple[_Id, ...],
    "target": _Id,
    "rather_than": _Id | None,
    "scale": str,
    "method": str,
    "meaning": str,
    "class_names": tuple[str, ...] | None,
    "extra": dict[str, Any],
}


def save(explanation: Explanation, path: str | Path) -> None:
    """Write JSON atomically."""
    with atomic_write(path) as part:
        part.write_text(json.dumps(to_dict(explanation), allow_nan=False), encoding="utf-8")


def load(path: str | Path) -> Explanation:
    """Read JSON written by `save`."""
    try:
        record = json.loads(as_path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"there is no file {str(path)!r}") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{str(path)!r} cannot be read as an explanation: {error}") from error
    return from_dict(record)


def same(a: Explanation, b: Explanation) -> bool:
    """Bit-equal in everything that is saved."""
    return json.dumps(to_dict(a), sort_keys=True) == json.dumps(to_dict(b), sort_keys=True)
