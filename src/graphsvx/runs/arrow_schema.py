"""Arrow schema of explanations: conversion to rows of a table and back, bit for bit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from graphsvx.api import Failure
from graphsvx.results.certificate import Certificate
from graphsvx.results.explanation import Credit, Explanation, FieldRecord

# "element" is Parquet's name of list items: with it, a table keeps its schema in a file.
_IDS = pa.large_list(pa.field("element", pa.int64()))
_NUMBERS = pa.large_list(pa.field("element", pa.float64()))
_NAMES = pa.list_(pa.field("element", pa.string()))
# The columns of the target output first; then those needed to restore the full explanation.
SCHEMA = pa.schema([
    ("query", pa.int64()),
    ("error", pa.string()),
    ("kind", pa.string()),
    ("target", pa.int64()),
    ("target_name", pa.string()),
    ("prediction", pa.float64()),
    ("base", pa.float64()),
    ("node_ids", _IDS), ("node_values", _NUMBERS), ("node_errors", _NUMBERS),
    ("feature_ids", _IDS), ("feature_values", _NUMBERS), ("feature_errors", _NUMBERS),
    ("edge_sources", _IDS), ("edge_targets", _IDS),
    ("edge_values", _NUMBERS), ("edge_errors", _NUMBERS),
    ("exact", pa.bool_()),
    ("calls", pa.int64()),
    ("residual", pa.float64()),
    ("certificate", pa.string()),
    ("label", pa.int64()),
    ("centres", _IDS),
    ("outputs", _IDS), ("bases", _NUMBERS), ("predictions", _NUMBERS),
    ("all_node_values", _NUMBERS), ("all_node_errors", _NUMBERS),
    ("all_feature_values", _NUMBERS), ("all_feature_errors", _NUMBERS),
    ("all_edge_values", _NUMBERS), ("all_edge_errors", _NUMBERS),
    ("node_names", _NAMES), ("feature_names", _NAMES), ("edge_names", _NAMES),
    ("field_ids", _IDS), ("field_hops", _IDS), ("field_classes", _IDS),
    ("field_sources", _IDS), ("field_targets", _IDS),
    ("record", pa.string()),
])  # fmt: skip
"""Columns `all_*` hold the values [outputs, players] of all explained outputs, flattened, if tensor
is more than one (else null); `field_*` is the receptive field; `record` is the rest as JSON."""

_SIDES = ("node", "feature", "edge")


def to_table(queries: Sequence[int], results: Sequence[Explanation | Failure]) -> pa.Table:
    """One row per query; a failure has only its query and error."""
    rows = [
        {"error": f"{type(result.error).__name__}: {result.error}"} if isinstance(result, Failure)
        else _row(result)
        for result in results
    ]  # fmt: skip
    columns = [pa.array(list(queries), pa.int64())]
    columns += [
        _column([row.get(field.name) for row in rows], field.type) for field in list(SCHEMA)[1:]
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if kind not in (_IDS, _NUMBERS):
        return pa.array(values, kind)
    # From one flat array, to avoid Python objects for every number.
    lengths = np.array([0 if value is None else len(value) for value in values], dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    present = [value for value in values if value is not None]
    dtype = np.int64 if kind == _IDS else np.float64
    flat = np.concatenate(present).astype(dtype, copy=False) if present else np.zeros(0, dtype)
    missing = pa.array([value is None for value in values])
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(flat), mask=missing)


def _row(e: Explanation) -> dict[str, Any]:
    field, certificate = e.field, e.certificate
    row: dict[str, Any] = {
        "kind": e.kind,
        "target": e.target,
        "target_name": e.class_name(e.target),
        "prediction": e.prediction,
        "base": e.base,
        "node_ids": _plain(e.node_ids),
        "feature_ids": _plain(e.feature_ids),
        "edge_sources": _plain(e.edge_ids.reshape(2, -1)[0]),
        "edge_targets": _plain(e.edge_ids.reshape(2, -1)[1]),
        "exact": certificate.exact,
        "calls": certificate.calls,
        "residual": certificate.residual,
        "certificate": certificate.line(),
        "label": _label(e),
        "centres": np.array(e.centres, dtype=np.int64),
        "outputs": np.array(e.outputs, dtype=np.int64),
        "bases": _plain(e.bases),
        "predictions": _plain(e.predictions),
        "field_ids": _plain(field.ids),
        "field_hops": _plain(field.hops),
        "field_classes": None if field.classes is None else _plain(field.classes),
        "field_sources": _plain(field.edge_index[0]),
        "field_targets": _plain(field.edge_index[1]),
        "record": json.dumps({
            "scale": e.scale,
            "method": e.method,
            "meaning": e.meaning,
            "rather_than": e.rather_than,
            "class_names": e.class_names,
            "certificate": certificate.to_dict(),
            "num_nodes": field.num_nodes,
            "num_features": field.num_features,
            "extra": e.extra,
        }),
    }  # fmt: skip
    target_row = e.outputs.index(e.target)
    for side in _SIDES:
        credit: Credit = getattr(e, f"{side}_credit")
        row[f"{side}_values"] = _plain(credit.values[target_row])
        row[f"{side}_errors"] = _plain(credit.errors[target_row])
        row[f"{side}_names"] = credit.names
        if len(e.outputs) > 1:
            row[f"all_{side}_values"] = _plain(credit.values.reshape(-1))
            row[f"all_{side}_errors"] = _plain(credit.errors.reshape(-1))
    return row


def _plain(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()


def _label(e: Explanation) -> int | None:
    """The class of the explained node in the data, if it has one."""
    classes = e.field.classes
    return int(classes[0]) if e.kind == "node" and classes is not None else None


def explanation(rows: pa.Table, position: int) -> Explanation:
    """The explanation in a row of a table with all columns; the row must not be a failure."""

    def value(name: str) -> Any:
        return rows[name][position].as_py()

    def array(name: str) -> Tensor | None:
        cell = rows[name][position]
        return torch.from_numpy(cell.values.to_numpy().copy()) if cell.is_valid else None

    def tensor(name: str) -> Tensor:
        values = array(name)
        return torch.zeros(0) if values is None else values

    rest = json.loads(value("record"))
    outputs = tuple(value("outputs"))

    def credit(side: str) -> Credit:
        prefix = "" if len(outputs) == 1 else "all_"
        ids = (
            torch.stack([tensor("edge_sources"), tensor("edge_targets")])
            if side == "edge"
            else tensor(f"{side}_ids")
        )
        shape = (len(outputs), ids.shape[-1])
        names = value(f"{side}_names")
        return Credit(
            ids,
            tensor(f"{prefix}{side}_values").reshape(shape),
            tensor(f"{prefix}{side}_errors").reshape(shape),
            None if names is None else tuple(names),
        )

    names = rest["class_names"]
    return Explanation(
        kind=value("kind"),
        centres=tuple(value("centres")),
        outputs=outputs,
        target=value("target"),
        rather_than=rest["rather_than"],
        bases=tensor("bases"),
        predictions=tensor("predictions"),
        node_credit=credit("node"),
        feature_credit=credit("feature"),
        edge_credit=credit("edge"),
        certificate=Certificate.from_dict(rest["certificate"]),
        field=FieldRecord(
            ids=tensor("field_ids"),
            hops=tensor("field_hops"),
            edge_index=torch.stack([tensor("field_sources"), tensor("field_targets")]),
            classes=array("field_classes"),
            num_nodes=rest["num_nodes"],
            num_features=rest["num_features"],
        ),
        method=rest["method"],
        meaning=rest["meaning"],
        scale=rest["scale"],
        class_names=None if names is None else tuple(names),
        extra=rest["extra"],
    )


def failed(rows: pa.Table) -> np.ndarray:
    """Boolean mask [rows] of failures."""
    return np.asarray(pc.is_valid(rows["error"]).combine_chunks().to_numpy(zero_copy_only=False))


def queries(rows: pa.Table) -> np.ndarray:
    """The query ids [rows], int64."""
    return np.asarray(rows["query"].to_numpy())


def merged(tables: Sequence[pa.Table]) -> pa.Table:
    """Rows of all tables ordered by query, one per query; explanations replace failures."""
    rows = pa.concat_tables(tables)
    query_ids = queries(rows)
    order = np.lexsort((failed(rows), query_ids))
    first = np.ones(len(order), dtype=bool)
    first[1:] = query_ids[order][1:] != query_ids[order][:-1]
    return rows.take(pa.array(order[first])).combine_chunks()
