"""One interpreter of annotations: of settings, of arguments, and of records that are saved.

    @dataclass(frozen=True)
    class Paired(Checked):
        stretch: Annotated[int, Range(1)] = 4

Supported are int, float (finite), bool, str, Literal, None, tuple, Sequence, dict, classes, and
unions of these; `Annotated` adds a range, the signature of a callable, or a conversion. numpy
scalars and one-element tensors become Python numbers, lists become tuples. `checks_arguments` does
the same for the arguments of a function.

A record that is saved declares the same way what its JSON holds: `as_json` and `from_json` write
and read it, `schema_of` describes it, and `record_fields` says which fields are columns of tables.
Tensors are annotated with their `Array`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache, wraps
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
import torch
from torch import Tensor

from graphsvx.errors import InputError

P = ParamSpec("P")
T = TypeVar("T")
MOST = 10_000_000
"""Upper limit of counts (samples, epochs, nodes): larger values would not fit in memory."""


class Misfit(Exception):  # noqa: N818  (internal control flow, never raised to users)
    """A value does not match its annotation."""


@dataclass(frozen=True)
class Range:
    """Numbers from `least` to `most`; `inside` excludes the two bounds."""

    least: float = -math.inf
    most: float = math.inf
    inside: bool = False
    error: type[InputError] = InputError
    """The exception raised for other values."""

    def allows(self, value: Any) -> bool:
        """Whether a number is in the range."""
        if self.inside and value in (self.least, self.most):
            return False
        return bool(self.least <= value <= self.most)

    def __str__(self) -> str:
        low, high = (
            f"{end:,}" if isinstance(end, int) else f"{end:g}" for end in (self.least, self.most)
        )
        words = [f"above {low}" if self.inside else f"of at least {low}"]
        if self.most != math.inf:
            words.append(f"below {high}" if self.inside else f"at most {high}")
        return " and ".join(words)


@dataclass(frozen=True)
class Block:
    """A callable instance (not a class) that takes `arguments` positional arguments."""

    what: str
    """Description for error messages, e.g. "a mask, such as Paired()"."""
    arguments: int
    attributes: tuple[str, ...] = ()

    def allows(self, value: Any) -> bool:
        """Whether a value is such a callable and has the required attributes."""
        if isinstance(value, type) or not callable(value):
            return False
        try:
            inspect.signature(value).bind(*[None] * self.arguments)
        except TypeError:
            return False
        except ValueError:  # some builtins have no signature
            pass
        return all(hasattr(value, name) for name in self.attributes)

    def __str__(self) -> str:
        return self.what


@dataclass(frozen=True)
class OneOf:
    """One of these names."""

    names: tuple[str, ...]

    def allows(self, value: Any) -> bool:
        """Whether a name is one of them."""
        return value in self.names

    def __str__(self) -> str:
        return f"one of {', '.join(self.names)}"


@dataclass(frozen=True)
class Converted:
    """The value is replaced by `by(value, name)`, which raises its own errors."""

    by: Callable[[Any, str], Any]


@dataclass(frozen=True)
class Array:
    """Element type and shape of a saved tensor, one name (or fixed size) for each dimension."""

    dtype: Literal["int64", "float64"]
    shape: tuple[str | int, ...]

    def tensor(self, value: Any) -> Tensor:
        """A tensor from nested lists; null is NaN."""
        tensor = torch.tensor(self._numbers(value), dtype=getattr(torch, self.dtype))
        if tensor.numel() == 0 and tensor.dim() < len(self.shape):  # [] for [2, 0]
            tensor = tensor.reshape([size if type(size) is int else 0 for size in self.shape])
        if tensor.dim() != len(self.shape) or any(
            type(size) is int and size != actual
            for size, actual in zip(self.shape, tensor.shape, strict=True)
        ):
            raise ValueError(f"expected an array {list(self.shape)}, got {list(tensor.shape)}")
        return tensor

    def _numbers(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._numbers(item) for item in value]
        if self.dtype == "float64" and value is None:
            return math.nan
        numbers = (int,) if self.dtype == "int64" else (int, float)
        if type(value) not in numbers or math.isinf(value):
            raise ValueError(f"expected a number ({self.dtype}), got {shown(value)}")
        return value

    def json_schema(self) -> dict[str, Any]:
        """Nested arrays; in an array of floats NaN is null."""
        items = schema_of(int if self.dtype == "int64" else float)
        for size in reversed(self.shape):
            items = {"type": "array", "items": items}
            if type(size) is int:
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


Rule = Range | Block | OneOf
Count = Annotated[int, Range(1, MOST)]
Workers = Annotated[int, Range(1, 10_000)]
Seed = Annotated[int, Range(0, 2**63 - 1)]
Share = Annotated[float, Range(0, 1)]
Positive = Annotated[float, Range(0, inside=True)]
Rate = Annotated[float, Range(0, 1000, inside=True)]
"""Learning rate."""
NotNegative = Annotated[float, Range(0)]


class Checked:
    """Base of frozen dataclasses: validates and converts every field on construction."""

    def __post_init__(self) -> None:
        record: Any = self
        hints = _hints(record.__class__)
        for field in fields(record):
            value = getattr(self, field.name)
            converted = checked(value, hints[field.name], field.name)
            if converted is not value:
                object.__setattr__(self, field.name, converted)


def changed_fields(record: Any) -> dict[str, Any]:
    """The fields of a dataclass that differ from their defaults."""
    values = {field: getattr(record, field.name) for field in fields(record) if field.repr}
    return {field.name: value for field, value in values.items() if value != field.default}


def as_call(value: Any) -> str:
    """A record of settings as a call with what differs from its defaults: `Lasso(penalty=0.1)`."""
    if not is_dataclass(value) or isinstance(value, type):
        return repr(value)
    changed = value.settings() if hasattr(value, "settings") else changed_fields(value)
    inside = ", ".join(f"{name}={as_call(setting)}" for name, setting in changed.items())
    return f"{type(value).__name__}({inside})"


@cache
def _hints(annotated: Any) -> dict[str, Any]:
    return get_type_hints(annotated, include_extras=True)


def checked(value: Any, hint: Any, name: str) -> Any:
    """The value converted to the type of `hint`; raises if it does not match."""
    if conversion := _mark(get_args(hint), Converted):
        return conversion.by(value, name)
    try:
        return _fitted(value, hint)
    except Misfit:
        limits = _mark(get_args(hint), Range)
        error = limits.error if limits else InputError
        raise error(f"{name} must be {expected(hint)}, got {shown(value)}") from None


def checks_arguments(function: Callable[P, T]) -> Callable[P, T]:
    """The function; its arguments are validated and converted, according to their annotations."""
    signature = inspect.signature(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        bound = signature.bind(*args, **kwargs)
        hints = _hints(function)
        for name, value in bound.arguments.items():
            if signature.parameters[name].kind is not inspect.Parameter.VAR_KEYWORD:
                bound.arguments[name] = checked(value, hints[name], name)
        return function(*bound.args, **bound.kwargs)

    return call


def describes_arguments(
    words: Mapping[str, str], returns: str
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorates a function: its arguments are checked, and its docstring lists them in `words`."""

    def decorated(function: Callable[P, T]) -> Callable[P, T]:
        names = inspect.signature(function).parameters
        text, raises, errors = (inspect.getdoc(function) or "").partition("\n\nRaises:")
        listed = "".join(f"\n    {name}: {words[name]}" for name in names)
        function.__doc__ = f"{text}\n\nArgs:{listed}\n\nReturns:\n    {returns}{raises}{errors}"
        return checks_arguments(function)

    return decorated


def as_int(value: Any, name: str) -> int:
    """A Python int from a Python, numpy or one-element tensor integer; raises for anything else."""
    return int(checked(value, int, name))


def shown(value: Any) -> str:
    """repr of a value for an error message: a single line of at most 80 characters."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # a user's own __repr__ may raise anything
        text = f"an object of type {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."


def _mark(marks: Iterable[Any], kind: Any) -> Any:
    return next((mark for mark in marks if isinstance(mark, kind)), None)


def _unmarked(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """An annotation without what `Annotated` adds, and that."""
    return (hint.__origin__, hint.__metadata__) if get_origin(hint) is Annotated else (hint, ())


# --- kinds of annotations ------------------------------------------------------------------


class _Kind(NamedTuple):
    """How a kind of annotation is read; each function is given what is in its brackets."""

    fit: Callable[[Any, Any, bool], Any]
    """A value as the annotation says, or a `Misfit`; True: the value is read from JSON."""
    words: Callable[[Any], list[str]]
    """Its alternatives in error messages."""
    schema: Callable[[Any], dict[str, Any]]


def _read(hint: Any) -> tuple[_Kind, tuple[Any, ...], tuple[Any, ...]]:
    """The kind of an annotation, what is in its brackets, and what `Annotated` adds."""
    plain, marks = _unmarked(hint)
    kind, inside = get_origin(plain) or plain, get_args(plain)
    if kind is Sequence:
        return _KINDS[tuple], (*inside, Ellipsis), marks
    if kind in (dict, Mapping):
        return _KINDS[dict], (kind, *inside), marks
    return (_KINDS[kind], inside, marks) if kind in _KINDS else (_INSTANCE, (kind,), marks)


def _fitted(value: Any, hint: Any, stored: bool = False) -> Any:
    """A value as its annotation says; `stored`: read from JSON."""
    kind, inside, marks = _read(hint)
    if marks and value is None and NoneType in inside:
        return None
    if stored and (array := _mark(marks, Array)):
        return value if isinstance(value, Tensor) else array.tensor(value)
    if stored and _mark(marks, ArrayOf):
        return _record(value, inside[0], marks)
    value = kind.fit(value, inside, stored)
    if not all(mark.allows(value) for mark in marks if isinstance(mark, Rule)):
        raise Misfit
    return value


def _record(value: Any, kind: Any, marks: tuple[Any, ...] = ()) -> Any:
    """A record from what is saved of it; a ValueError if a field is missing, or no such value."""
    _instance(value, dict)
    declared = {field.name: field for field in record_fields(kind, marks)}
    unknown = sorted(value.keys() - declared.keys())
    if unknown:
        raise ValueError(f"{kind.__name__} has no {', '.join(unknown)}")
    for name, field in declared.items():
        if field.required and name not in value:
            raise ValueError(f"{kind.__name__} needs {name}")
    return kind(
        **{name: from_json(declared[name].hint, part, name) for name, part in value.items()}
    )


def _one_of(value: Any, hints: tuple[Any, ...], stored: bool) -> Any:
    if value is None and NoneType in hints:
        return None
    for hint in hints:
        with suppress(Misfit):
            return _fitted(value, hint, stored)
    raise Misfit


def _literal(value: Any, allowed: tuple[Any, ...], _: bool) -> Any:
    for choice in allowed:
        if type(choice) is type(value) and choice == value:  # False is not 0
            return choice
    raise Misfit


def _tuple(value: Any, hints: tuple[Any, ...], stored: bool) -> Any:
    is_array = isinstance(value, (Tensor, np.ndarray)) and value.ndim > 0
    if not is_array and not isinstance(value, (tuple, list)):
        raise Misfit
    if hints[-1] is Ellipsis:
        hints = (hints[0],) * len(value)
    if len(hints) != len(value):
        raise Misfit
    value = _numbers(value) if is_array else value
    entries = tuple(_fitted(entry, hint, stored) for entry, hint in zip(value, hints, strict=True))
    unchanged = isinstance(value, tuple) and all(map(lambda a, b: a is b, entries, value))
    return value if unchanged else entries


def _numbers(values: Tensor | np.ndarray[Any, Any] | np.generic) -> Any:
    try:
        return values.tolist()
    except RuntimeError:  # it holds none: meta, nested and quantized tensors
        raise Misfit from None


def _mapping(value: Any, inside: tuple[Any, ...], stored: bool) -> Any:
    kind, of_names, of_entries = inside
    items = _instance(value, kind).items()
    entries = {_fitted(name, of_names): _fitted(entry, of_entries, stored) for name, entry in items}
    return entries if stored else value


def _of_class(value: Any, inside: tuple[Any, ...], stored: bool) -> Any:
    (kind,) = inside
    if stored and is_dataclass(kind):
        return _record(value, kind)
    is_checkable = isinstance(kind, type) and not vars(kind).get("_is_protocol")
    return _instance(value, kind) if is_checkable else value


def _instance(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise Misfit
    return value


def _bool(value: Any, *_: Any) -> bool:
    return bool(value) if isinstance(value, np.bool_) else bool(_instance(value, bool))


def _int(value: Any, _: Any, stored: bool) -> int:
    is_truth = isinstance(value, Tensor) and value.dtype == torch.bool
    if is_truth or isinstance(value, (bool, np.bool_, float, str)):
        raise Misfit
    try:
        number = value if type(value) is int else int(value.__index__())
    except (AttributeError, TypeError, ValueError, RuntimeError):
        raise Misfit from None
    if stored and abs(number) > 2**62:  # what tensors and Arrow columns hold as int64
        raise Misfit
    return number


def _float(value: Any, _: Any, stored: bool) -> float:
    if stored and value is None:
        return math.nan
    if isinstance(value, (Tensor, np.ndarray, np.generic)) and math.prod(value.shape) == 1:
        value = _numbers(value.reshape(()))
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Misfit
    try:
        number = float(value)
    except OverflowError:  # an integer too large for a float
        raise Misfit from None
    if not math.isfinite(number):
        raise Misfit
    # Small integers stay as they were written; torch takes no large ones.
    return value if not stored and abs(value) < 2**31 else number


def _words_of_list(hints: tuple[Any, ...]) -> list[str]:
    length = "" if hints[-1] is Ellipsis else f" of {len(hints)}"
    return [f"a list{length} with entries that are each {expected(hints[0])}"]


def _schema_of_list(hints: tuple[Any, ...]) -> dict[str, Any]:
    if hints[-1] is Ellipsis:
        return {"type": "array", "items": schema_of(hints[0])}
    parts, size = [schema_of(part) for part in hints], len(hints)
    return {"type": "array", "prefixItems": parts, "minItems": size, "maxItems": size}


def _schema_of_record(kind: Any, marks: tuple[Any, ...] = ()) -> dict[str, Any]:
    declared = record_fields(kind, marks)
    return {
        "title": kind.__name__,
        "type": "object",
        "properties": {field.name: schema_of(field.hint) for field in declared},
        "required": [field.name for field in declared],
        "additionalProperties": False,
    }


def _plain(fit: Callable[[Any, Any, bool], Any], words: str, json_type: Any) -> _Kind:
    return _Kind(fit, lambda _: [words], lambda _: {"type": json_type})


_NONE = _plain(lambda value, *_: _instance(value, NoneType), "None", "null")
_UNION = _Kind(
    _one_of,
    lambda hints: [words for hint in hints for words in _alternatives(hint)],
    lambda hints: {"anyOf": [schema_of(hint) for hint in hints]},
)
_INSTANCE = _Kind(
    _of_class,
    lambda inside: [inside[0].__name__ if isinstance(inside[0], type) else str(inside[0])],
    lambda inside: _schema_of_record(*inside),
)
_KINDS: dict[Any, _Kind] = {
    bool: _plain(_bool, "True or False", "boolean"),
    int: _plain(_int, "an integer", "integer"),
    float: _plain(_float, "a number", ["number", "null"]),
    str: _plain(lambda value, *_: str(_instance(value, str)), "text", "string"),
    NoneType: _NONE,
    Any: _Kind(lambda value, *_: value, lambda _: ["Any"], lambda _: {}),
    Literal: _Kind(_literal, lambda choices: [*map(repr, choices)], lambda c: {"enum": list(c)}),
    Union: _UNION,
    UnionType: _UNION,
    tuple: _Kind(_tuple, _words_of_list, _schema_of_list),
    dict: _Kind(
        _mapping,
        lambda inside: [f"a dictionary with values that are each {expected(inside[2])}"],
        lambda inside: {"type": "object", "additionalProperties": schema_of(inside[2])},
    ),
}


def expected(hint: Any) -> str:
    """The values that an annotation allows, in words for an error message."""
    words = _alternatives(hint)
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]


def _alternatives(hint: Any) -> list[str]:
    kind, inside, marks = _read(hint)
    words = [str(mark) for mark in marks if isinstance(mark, Block | OneOf)]
    ranges = [str(mark) for mark in marks if isinstance(mark, Range)]
    return words or [
        word if word == "None" else " ".join([word, *ranges]) for word in kind.words(inside)
    ]


# --- records that are saved ----------------------------------------------------------------


class RecordField(NamedTuple):
    """One field of a record."""

    name: str
    hint: Any
    required: bool
    """Whether it has no default."""
    type: Any
    """The annotation without marks."""
    marks: tuple[Any, ...]
    """What `Annotated` adds."""
    array: Array | None
    """Of a tensor."""
    is_column: bool
    """Whether tables hold it in a column of its own."""


@cache
def record_fields(record: Any, marks: tuple[Any, ...] = ()) -> tuple[RecordField, ...]:
    """The declared fields of a record, in order; `marks` of the record may change an array."""
    hints = dict(_hints(record))
    if other := _mark(marks, ArrayOf):
        hints[other.field] = Annotated[Tensor, other.array]
    declared = []
    for field in fields(record):
        hint, required = hints[field.name], field.default is field.default_factory is MISSING
        of_field = _unmarked(hint)[1]
        array, is_column = _mark(of_field, Array), _mark(of_field, Array | Column) is not None
        declared.append(RecordField(field.name, hint, required, *_unmarked(hint), array, is_column))
    return tuple(declared)


def as_json(value: Any) -> Any:
    """Dicts, lists, strings and numbers; NaN, which JSON does not have, is null."""
    match value:
        case float():
            return None if math.isnan(value) else value
        case Tensor():
            return as_json(value.tolist()) if value.is_floating_point() else value.tolist()
        case tuple() | list():
            return [as_json(item) for item in value]
        case Mapping():
            return {name: as_json(item) for name, item in value.items()}
        case _ if is_dataclass(value):
            return {field.name: as_json(getattr(value, field.name)) for field in fields(value)}
    return value


def from_json(hint: Any, value: Any, name: str) -> Any:
    """The value that `as_json` wrote; a ValueError if it is none that `hint` allows."""
    try:
        return _fitted(value, hint, stored=True)
    except Misfit:
        raise ValueError(f"{name} must be {expected(hint)}, got {shown(value)}") from None


def schema_of(hint: Any) -> dict[str, Any]:
    """JSON Schema (2020-12) of what `as_json` writes for a value with this annotation."""
    kind, inside, marks = _read(hint)
    if array := _mark(marks, Array):
        schema = array.json_schema()
        return {"anyOf": [schema, {"type": "null"}]} if NoneType in inside else schema
    return _schema_of_record(inside[0], marks) if _mark(marks, ArrayOf) else kind.schema(inside)
