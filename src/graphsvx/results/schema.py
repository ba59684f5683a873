"""Records to and from JSON, and their JSON Schema, by the types of their fields.

A frozen dataclass is the one declaration of what is saved: its annotations say how a value is
written, read and checked. Tensors are annotated with their `Array`.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from graphsvx.utils.constraints import shown


@dataclass(frozen=True)
class Array:
    """Element type and shape of a tensor, one name (or fixed size) for each dimension."""

    dtype: Literal["int64", "float64"]
    shape: tuple[str | int, ...]

    def tensor(self, value: Any) -> Tensor:
        """A tensor from nested lists; null is NaN."""
        tensor = torch.tensor(self._numbers(value), dtype=getattr(torch, self.dtype))
        if tensor.numel() == 0 and tensor.dim() < len(self.shape):  # [] for [2, 0]
            tensor = tensor.reshape([size if isinstance(size, int) else 0 for size in self.shape])
        if tensor.dim() != len(self.shape) or any(
            isinstance(size, int) and size != actual
            for size, actual in zip(self.shape, tensor.shape, strict=True)
        ):
            raise ValueError(f"expected an array {list(self.shape)}, got {list(tensor.shape)}")
        return tensor

    def _numbers(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._numbers(item) for item in value]
        if self.dtype == "float64" and value is None:
            return math.nan
        number = int if self.dtype == "int64" else (int, float)
        if isinstance(value, bool) or not isinstance(value, number) or math.isinf(value):
            raise ValueError(f"expected a number ({self.dtype}), got {shown(value)}")
        return value

    def json_schema(self) -> dict[str, Any]:
        """Nested arrays; in an array of floats NaN is null."""
        items: dict[str, Any] = {"type": "integer"}
        if self.dtype == "float64":
            items = {"type": ["number", "null"]}
        for size in reversed(self.shape):
            items = {"type": "array", "items": items}
            if isinstance(size, int):
                items |= {"minItems": size, "maxItems": size}
        return items


@dataclass(frozen=True)
class Column:
    """Marks a field that tables of explanations hold in a column of its own, as all arrays are."""


@dataclass(frozen=True)
class ArrayOf:
    """Marks a record with a field that is another array than its class says."""

    field: str
    array: Array


@dataclass(frozen=True)
class Field:
    """One field of a record: its name, type without annotations, and what is annotated."""

    name: str
    type: Any
    array: Array | None
    column: bool
    required: bool
    overrides: tuple[ArrayOf, ...]

    @property
    def optional(self) -> bool:
        """Whether the value may be None."""
        return type(None) in get_args(self.type)


@cache
def fields(record: type, overrides: tuple[ArrayOf, ...] = ()) -> tuple[Field, ...]:
    """The declared fields of a record, in order."""
    hints = get_type_hints(record, include_extras=True)
    arrays = {override.field: override.array for override in overrides}
    declared = []
    for field in dataclasses.fields(record):
        hint, marks = hints[field.name], []
        if get_origin(hint) is Annotated:
            hint, *marks = get_args(hint)
        annotated = next((mark for mark in marks if isinstance(mark, Array)), None)
        declared.append(Field(
            name=field.name,
            type=hint,
            array=arrays.get(field.name, annotated),
            column=any(isinstance(mark, Column) for mark in marks),
            required=field.default is dataclasses.MISSING
            and field.default_factory is dataclasses.MISSING,
            overrides=tuple(mark for mark in marks if isinstance(mark, ArrayOf)),
        ))  # fmt: skip
    return tuple(declared)


def encode(value: Any) -> Any:
    """Dicts, lists, strings and numbers; NaN, which JSON does not have, is null."""
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, Tensor):
        values = value.tolist()
        return encode(values) if value.is_floating_point() else values
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value):
        return {
            field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    return value


def decode(  # noqa: PLR0911  (a return for each kind of type)
    kind: Any, value: Any, overrides: tuple[ArrayOf, ...] = ()
) -> Any:
    """The value of type `kind` that `encode` wrote; a TypeError or ValueError if it is none."""
    kind = _without_marks(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, types.UnionType):
        return _decode_union(arguments, value)
    if not _fits(kind, value):
        raise TypeError(f"expected {getattr(kind, '__name__', kind)}, got {shown(value)}")
    if dataclasses.is_dataclass(kind):
        return _decode_record(kind, value, overrides)
    if origin is tuple:
        kinds = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        return tuple(decode(part, item) for part, item in zip(kinds, value, strict=True))
    if origin in (dict, Mapping):
        return {key: decode(arguments[1], item) for key, item in value.items()}
    if kind is float:
        return math.nan if value is None else float(value)
    return value


def _decode_union(kinds: tuple[Any, ...], value: Any) -> Any:
    if value is None and type(None) in kinds:
        return None
    for kind in kinds:
        if kind is not type(None) and _fits(kind, value):
            return decode(kind, value)
    raise TypeError(f"expected one of {', '.join(map(str, kinds))}, got {shown(value)}")


def _decode_record(record: Any, values: dict[str, Any], overrides: tuple[ArrayOf, ...]) -> Any:
    declared = fields(record, overrides)
    unknown = sorted(values.keys() - {field.name for field in declared})
    if unknown:
        raise ValueError(f"{record.__name__} has no {', '.join(unknown)}")
    values_of: dict[str, Any] = {}
    for field in declared:
        if field.name not in values:
            if field.required:
                raise ValueError(f"{record.__name__} needs {field.name}")
            continue
        value = values[field.name]
        if field.array is None:
            values_of[field.name] = decode(field.type, value, field.overrides)
        elif value is None and field.optional:
            values_of[field.name] = None
        else:
            values_of[field.name] = field.array.tensor(value)
    return record(**values_of)


def _without_marks(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _fits(kind: Any, value: Any) -> bool:
    """Whether a JSON value has the outer type that values of `kind` are written as."""
    kind = _without_marks(kind)
    origin = get_origin(kind)
    if origin is Literal:
        return isinstance(value, str) and value in get_args(kind)
    if kind is float:
        return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST
    if origin is tuple:
        return isinstance(value, list)
    if origin in (dict, Mapping) or dataclasses.is_dataclass(kind):
        return isinstance(value, dict)
    return isinstance(value, kind)


_LARGEST = 2**62  # what tensors and Arrow columns hold as int64
_PLAIN = {str: "string", int: "integer", bool: "boolean", type(None): "null"}


def json_schema(  # noqa: PLR0911  (a return for each kind of type)
    kind: Any, overrides: tuple[ArrayOf, ...] = ()
) -> dict[str, Any]:
    """JSON Schema (2020-12) of what `encode` writes for a value of type `kind`."""
    kind = _without_marks(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return {}
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if kind is float:
        return {"type": ["number", "null"]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [json_schema(part) for part in arguments]}
    if origin is tuple and arguments[-1] is Ellipsis:
        return {"type": "array", "items": json_schema(arguments[0])}
    if origin is tuple:
        return {
            "type": "array",
            "prefixItems": [json_schema(part) for part in arguments],
            "minItems": len(arguments),
            "maxItems": len(arguments),
        }
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": json_schema(arguments[1])}
    declared = fields(kind, overrides)
    return {
        "title": kind.__name__,
        "type": "object",
        "properties": {field.name: _field_schema(field) for field in declared},
        "required": [field.name for field in declared],
        "additionalProperties": False,
    }


def _field_schema(field: Field) -> dict[str, Any]:
    if field.array is None:
        return json_schema(field.type, field.overrides)
    schema = field.array.json_schema()
    return {"anyOf": [schema, {"type": "null"}]} if field.optional else schema
