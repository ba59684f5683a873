"""Explanations as rows of plain columns, and back, bit by bit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
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
_COLUMN_TYPES: dict[Any, pa.DataType] = {
    "int64": _IDS,
    "float64": _NUMBERS,
    Kind: pa.string(),
    int: pa.int64(),
    tuple[int, ...]: _IDS,
    tuple[str, ...] | None: _NAMES,
}
_RECORDS = (Credit, FieldRecord)
"""Parts of an explanation whose fields are stored one by one."""


@dataclass(frozen=True)
class _Leaf:
    """A field of an explanation, or of its credits and receptive field."""

    path: tuple[str, ...]
    field: RecordField

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """`node_credit.values` is node_values, `field.ids` is field_ids.

        An array of edges [2, edges] has a column for each end, one of several outputs
        [outputs, players] a column for the target and one for all outputs.
        """
        name = "_".join(part.removesuffix("_credit") for part in self.path)
        if self.field.array is None or len(self.field.array.shape) == 1:
            return (name,)
        if self._is_edges:
            prefix = self.path[0].removesuffix("_credit")
            return f"{prefix}_sources", f"{prefix}_targets"
        return name, f"all_{name}"

    @property
    def _is_edges(self) -> bool:
        return self.field.array is not None and self.field.array.shape[0] == 2

    def types(self) -> dict[str, pa.DataType]:
        """Names and types of its columns."""
        array = self.field.array
        return dict.fromkeys(self.columns, _COLUMN_TYPES[array.dtype if array else self.field.type])

    def of(self, explanation: Explanation) -> Any:
        """Its value in an explanation."""
        return reduce(getattr, self.path, explanation)

    def part_of(self, record: dict[str, Any]) -> dict[str, Any]:
        """The part of a nested record that holds it, under its last name."""
        return record if len(self.path) == 1 else record.setdefault(self.path[0], {})

    def write(self, explanation: Explanation) -> dict[str, Any]:
        """Its entries in the row of an explanation."""
        value = self.of(explanation)
        if self.field.array is None or value is None:
            return {self.columns[0]: value}
        array, several = _plain(value), len(explanation.outputs) > 1
        if len(self.columns) == 1:
            return {self.columns[0]: array}
        if self._is_edges:
            return dict(zip(self.columns, array.reshape(2, -1), strict=True))
        of_all = array.reshape(-1) if several else None
        return dict(zip(self.columns, (array[explanation.row], of_all), strict=True))

    def read(self, row: dict[str, pa.Scalar], outputs: int) -> Any:
        """Its value in a row of a table."""
        first, last = row[self.columns[0]], row[self.columns[-1]]
        if self.field.array is None or not first.is_valid:
            return first.as_py()
        if self._is_edges:
            return torch.stack([_tensor(first), _tensor(last)])
        if len(self.columns) == 1:
            return _tensor(first)
        values = _tensor(first if outputs == 1 else last)
        return values.reshape(outputs, values.numel() // outputs)


def _plain(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()


def _tensor(numbers: pa.Scalar) -> Tensor:
    return torch.from_numpy(numbers.values.to_numpy().copy())


def _leaves() -> Iterator[_Leaf]:
    for field in record_fields(Explanation):
        if field.type not in _RECORDS:
            yield _Leaf((field.name,), field)
            continue
        for part in record_fields(field.type, field.marks):
            yield _Leaf((field.name, part.name), part)


# The records declare which of their fields have columns; the others go into `record`.
_LEAVES = tuple(leaf for leaf in _leaves() if leaf.field.is_column)
_OTHERS = tuple(leaf for leaf in _leaves() if not leaf.field.is_column)


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
        **{name: kind for leaf in _LEAVES for name, kind in leaf.types().items()},
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
        {"query": query, **_row(result)} for query, result in zip(queries, results, strict=True)
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def _row(result: Explanation | Failure) -> dict[str, Any]:
    if isinstance(result, Failure):
        return {"error": error_text(result.error)}
    row = {name: compute(result) for name, (_, compute) in _COMPUTED.items()}
    sets = result.interactions
    if sets is not None:
        row |= {name: compute(result, sets) for name, (_, compute) in _INTERACTIONS.items()}
    for leaf in _LEAVES:
        row |= leaf.write(result)
    record: dict[str, Any] = {"version": serialize.VERSION}
    for leaf in _OTHERS:
        leaf.part_of(record)[leaf.path[-1]] = as_json(leaf.of(result))
    return {**row, "record": json.dumps(record)}


def read_row(rows: pa.Table, position: int) -> Explanation:
    """The explanation in one row of a table with all columns (not a failed one)."""
    row = {name: rows[name][position] for name in SCHEMA.names}
    outputs = len(row["outputs"])
    record = json.loads(row["record"].as_py())
    serialize.check_version(record)
    del record["version"]
    for leaf in _LEAVES:
        leaf.part_of(record)[leaf.path[-1]] = leaf.read(row, outputs)
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
