"""Explanations as rows of plain columns, and back, bit by bit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from graphsvx.core.query import Kind
from graphsvx.errors import error_text
from graphsvx.many import Failure
from graphsvx.results import serialize
from graphsvx.results.credit import Credit, Interactions
from graphsvx.results.details import FieldRecord
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import RecordField, as_json, from_json, record_fields

# "element" is what Parquet calls it: a table has the same schema before and after a file.
_IDS = pa.large_list(pa.field("element", pa.int64()))
_NUMBERS = pa.large_list(pa.field("element", pa.float64()))
_NAMES = pa.list_(pa.field("element", pa.string()))
_ARRAYS = {"int64": _IDS, "float64": _NUMBERS}


@dataclass(frozen=True)
class _Leaf:
    """A field of an explanation, or of its credits and receptive field, with its own column(s)."""

    path: tuple[str, ...]
    field: RecordField

    @property
    def name(self) -> str:
        """`node_credit.values` is node_values, `field.ids` is field_ids."""
        return "_".join(part.removesuffix("_credit") for part in self.path)

    def ends(self) -> tuple[str, str] | None:
        """Columns of an array of edges [2, edges]: where they start and where they end."""
        if self.field.array is None or self.field.array.shape[0] != 2:
            return None
        prefix = self.path[0].removesuffix("_credit")
        return f"{prefix}_sources", f"{prefix}_targets"

    def per_output(self) -> bool:
        """Whether it is an array [outputs, players]."""
        return self.field.array is not None and len(self.field.array.shape) == 2 and not self.ends()

    def columns(self) -> dict[str, pa.DataType]:
        """Names and types of its columns."""
        array = self.field.array
        kind = _COLUMN_TYPES[self.field.type] if array is None else _ARRAYS[array.dtype]
        names = self.ends() or (self.name,)
        if self.per_output():
            names = (self.name, f"all_{self.name}")
        return dict.fromkeys(names, kind)


_COLUMN_TYPES: dict[Any, pa.DataType] = {
    Kind: pa.string(),
    int: pa.int64(),
    tuple[int, ...]: _IDS,
    tuple[str, ...] | None: _NAMES,
}


def _leaves() -> Iterator[_Leaf]:
    """The fields with columns, as the records declare them; the others go into `record`."""
    for field in record_fields(Explanation):
        if field.is_column:
            yield _Leaf((field.name,), field)
        elif field.type in (Credit, FieldRecord):
            for part in record_fields(field.type, field.marks):
                if part.is_column:
                    yield _Leaf((field.name, part.name), part)


_LEAVES = tuple(_leaves())


def _label(explanation: Explanation) -> int | None:
    """The known class of the explained node, where the data has one."""
    classes = explanation.field.classes
    if explanation.kind != "node" or classes is None or explanation.types is not None:
        return None  # of typed graphs these are the types
    return int(classes[0])


# Computed from the others, for readers of a table: of the target where there are several outputs.
_COMPUTED: dict[str, tuple[pa.DataType, Callable[[Explanation], Any]]] = {
    "target_name": (pa.string(), lambda e: e.class_name(e.target)),
    "prediction": (pa.float64(), lambda e: e.prediction),
    "base": (pa.float64(), lambda e: e.base),
    "exact": (pa.bool_(), lambda e: e.certificate.exact),
    "calls": (pa.int64(), lambda e: e.certificate.calls),
    "residual": (pa.float64(), lambda e: e.certificate.residual),
    "certificate": (pa.string(), lambda e: e.certificate.line()),
    "label": (pa.int64(), _label),
}


def _sets_of_players(explanation: Explanation, record: Interactions) -> list[list[str]]:
    names = explanation.player_names
    return [[names[i] for i in players if i >= 0] for players in record.members.t().tolist()]


# The same, of explanations with interactions.
_INTERACTIONS: dict[str, tuple[pa.DataType, Callable[[Explanation, Interactions], Any]]] = {
    "interaction_index": (pa.string(), lambda _, record: record.index),
    "interaction_players": (pa.list_(pa.field("element", _NAMES)), _sets_of_players),
    "interaction_values": (_NUMBERS, lambda e, record: _plain(record.values[e.row])),
    "interaction_errors": (_NUMBERS, lambda e, record: _plain(record.errors[e.row])),
}

SCHEMA = pa.schema(
    {
        "query": pa.int64(),
        "error": pa.string(),
        **{name: kind for name, (kind, _) in (*_COMPUTED.items(), *_INTERACTIONS.items())},
        **{name: kind for leaf in _LEAVES for name, kind in leaf.columns().items()},
        "record": pa.string(),
    }
)
"""Columns `all_*` hold every explained output, row by row, where there are several (else null);
`field_*` is the receptive field of the explained prediction; `interaction_*` are the target's
interactions, one entry for each set of players; `record` is the rest as JSON, with the version of
`results.serialize`."""


def to_table(queries: Sequence[int], results: Sequence[Explanation | Failure]) -> pa.Table:
    """One row a query; a failure has its query and error only."""
    rows = [
        {"error": error_text(result.error)} if isinstance(result, Failure) else _row(result)
        for result in results
    ]
    columns = [pa.array(list(queries), pa.int64())]
    columns += [
        _column([row.get(field.name) for row in rows], field.type) for field in list(SCHEMA)[1:]
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if kind not in (_IDS, _NUMBERS):
        return pa.array(values, kind)
    # Through one flat array: lists of numbers would become Python objects otherwise.
    lengths = np.array([0 if value is None else len(value) for value in values], dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    present = [value for value in values if value is not None]
    dtype = np.int64 if kind == _IDS else np.float64
    flat = np.concatenate(present).astype(dtype, copy=False) if present else np.zeros(0, dtype)
    missing = pa.array([value is None for value in values], pa.bool_())
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(flat), mask=missing)


def _row(explanation: Explanation) -> dict[str, Any]:
    row = {name: compute(explanation) for name, (_, compute) in _COMPUTED.items()}
    sets = explanation.interactions
    if sets is not None:
        row |= {name: compute(explanation, sets) for name, (_, compute) in _INTERACTIONS.items()}
    target_row = explanation.row
    for leaf in _LEAVES:
        value: Any = reduce(getattr, leaf.path, explanation)
        ends = leaf.ends()
        if not isinstance(value, Tensor):
            row[leaf.name] = value
        elif ends is not None:
            row |= zip(ends, _plain(value.reshape(2, -1)), strict=True)
        elif leaf.per_output():
            row[leaf.name] = _plain(value[target_row])
            several = len(explanation.outputs) > 1
            row[f"all_{leaf.name}"] = _plain(value.reshape(-1)) if several else None
        else:
            row[leaf.name] = _plain(value)
    return {**row, "record": json.dumps(_rest(explanation))}


def _rest(explanation: Explanation) -> dict[str, Any]:
    """The fields without a column, as in a JSON file."""
    in_columns = {leaf.path for leaf in _LEAVES}
    record: dict[str, Any] = {"version": serialize.VERSION}
    for field in record_fields(Explanation):
        value = getattr(explanation, field.name)
        if field.type in (Credit, FieldRecord):
            record[field.name] = {
                part.name: as_json(getattr(value, part.name))
                for part in record_fields(field.type)
                if (field.name, part.name) not in in_columns
            }
        elif (field.name,) not in in_columns:
            record[field.name] = as_json(value)
    return record


def _plain(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()


def read_row(rows: pa.Table, position: int) -> Explanation:
    """The explanation in one row of a table with all columns (not a failed one)."""

    def array(name: str) -> Tensor:
        return torch.from_numpy(rows[name][position].values.to_numpy().copy())

    def value(leaf: _Leaf) -> Any:
        ends = leaf.ends()
        if ends is not None:
            return torch.stack([array(name) for name in ends])
        if leaf.per_output():
            values = array(leaf.name if outputs == 1 else f"all_{leaf.name}")
            return values.reshape(outputs, values.numel() // outputs)
        if leaf.field.array is not None and rows[leaf.name][position].is_valid:
            return array(leaf.name)
        return rows[leaf.name][position].as_py()

    outputs = len(rows["outputs"][position])
    record = json.loads(rows["record"][position].as_py())
    serialize.check_version(record)
    del record["version"]
    for leaf in _LEAVES:
        part = record if len(leaf.path) == 1 else record[leaf.path[0]]
        part[leaf.path[-1]] = value(leaf)
    explanation: Explanation = from_json(Explanation, record, "row")
    return explanation


def failed(rows: pa.Table) -> np.ndarray:
    """Which rows are failures."""
    return np.asarray(pc.is_valid(rows["error"]).combine_chunks().to_numpy(zero_copy_only=False))


def queries(rows: pa.Table) -> np.ndarray:
    """The query of each row."""
    return np.asarray(rows["query"].to_numpy())


def merged(tables: Sequence[pa.Table]) -> pa.Table:
    """All rows by query, one each: an answer goes before a failure."""
    rows = pa.concat_tables(tables)
    query_ids = queries(rows)
    order = np.lexsort((failed(rows), query_ids))
    first = np.ones(len(order), dtype=bool)
    first[1:] = query_ids[order][1:] != query_ids[order][:-1]
    return rows.take(pa.array(order[first])).combine_chunks()
