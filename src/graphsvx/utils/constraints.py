"""Frozen settings whose fields are validated on construction, against their annotations.

    @dataclass(frozen=True)
    class Paired(Checked):
        stretch: Annotated[int, Range(1)] = 4

Supported are int, float (finite), bool, str, Literal, None, tuple, Sequence, dict, classes, and
unions of these; `Annotated` adds a range, the signature of a callable, or a conversion. numpy
scalars and one-element tensors become Python numbers, lists become tuples. `checks_arguments` does
the same for the arguments of a function.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, wraps
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)  # fmt: skip

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
        low, high = (f"{end:,}" if isinstance(end, int) else f"{end:g}"
                     for end in (self.least, self.most))  # fmt: skip
        if self.most == math.inf:
            return f"above {low}" if self.inside else f"of at least {low}"
        if self.inside:
            return f"above {low} and below {high}"
        return f"of at least {low} and at most {high}"


@dataclass(frozen=True)
class Block:
    """A callable instance (not a class) that takes `arguments` positional arguments."""

    what: str
    """Description for error messages, e.g. "a mask, such as Paired()"."""
    arguments: int
    attributes: tuple[str, ...] = ()
    error: type[InputError] = InputError

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
    error: type[InputError] = InputError

    def allows(self, value: Any) -> bool:
        """Whether a name is one of them."""
        return value in self.names

    def __str__(self) -> str:
        return f"one of {', '.join(self.names)}"


@dataclass(frozen=True)
class Converted:
    """The value is replaced by `by(value, name)`, which raises its own errors."""

    by: Callable[[Any, str], Any]


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
        check_fields(self)


def check_fields(record: Any) -> None:
    """Validate and convert every field of a dataclass, according to its annotation."""
    kind: Any = type(record)
    for name, hint in _hints(kind):
        value = getattr(record, name)
        converted = checked(value, hint, name)
        if converted is not value:
            object.__setattr__(record, name, converted)


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
def _hints(kind: Any) -> list[tuple[str, Any]]:
    hints = get_type_hints(kind, include_extras=True)
    return [(field.name, hints[field.name]) for field in fields(kind)]


def checked(value: Any, hint: Any, name: str) -> Any:
    """The value converted to the type of `hint`; raises if it does not match."""
    for rule in get_args(hint):
        if isinstance(rule, Converted):
            return rule.by(value, name)
    try:
        return _fitted(value, hint)
    except Misfit:
        error = next((rule.error for rule in _rules(hint)), InputError)
        raise error(f"{name} must be {expected(hint)}, got {shown(value)}") from None


def checks_arguments(function: Callable[P, T]) -> Callable[P, T]:
    """The function; its arguments are validated and converted, according to their annotations."""
    signature = inspect.signature(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        bound = signature.bind(*args, **kwargs)
        hints = _argument_hints(function)
        for name, value in bound.arguments.items():
            if signature.parameters[name].kind is not inspect.Parameter.VAR_KEYWORD:
                bound.arguments[name] = checked(value, hints[name], name)
        return function(*bound.args, **bound.kwargs)

    return call


@cache
def _argument_hints(function: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(function, include_extras=True)


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


def _rules(hint: Any) -> list[Rule]:
    return [rule for rule in get_args(hint) if isinstance(rule, Rule)]


# --- matching values with annotations ------------------------------------------------------


def _fitted(value: Any, hint: Any) -> Any:  # noqa: PLR0911  (one line a kind of annotation)
    origin = get_origin(hint)
    if origin is Annotated:
        return _ruled(value, hint)
    if origin in (Union, UnionType):
        return _one_of(value, get_args(hint))
    if origin is Literal:
        return _literal(value, get_args(hint))
    if origin is tuple:
        return _tuple(value, get_args(hint))
    if origin is Sequence:
        return _tuple(value, (*get_args(hint), Ellipsis))
    if origin is dict:
        return _dict(value, get_args(hint))
    if hint in _PLAIN:
        return _PLAIN[hint](value)
    kind = origin or hint
    if isinstance(kind, type) and not getattr(kind, "_is_protocol", False):
        return _instance(value, kind)
    return value


def _ruled(value: Any, hint: Any) -> Any:
    kind = get_args(hint)[0]
    value = _fitted(value, kind)
    left_out = value is None and NoneType in get_args(kind)
    if not left_out and not all(rule.allows(value) for rule in _rules(hint)):
        raise Misfit
    return value


def _one_of(value: Any, hints: tuple[Any, ...]) -> Any:
    for hint in hints:
        try:
            return _fitted(value, hint)
        except Misfit:
            continue
    raise Misfit


def _literal(value: Any, allowed: tuple[Any, ...]) -> Any:
    for choice in allowed:
        if type(choice) is type(value) and choice == value:  # False is not 0
            return choice
    raise Misfit


def _tuple(value: Any, hints: tuple[Any, ...]) -> Any:
    if isinstance(value, (Tensor, np.ndarray)):
        value = value.tolist()
    if not isinstance(value, (tuple, list)):
        raise Misfit
    if hints[-1] is Ellipsis:
        hints = (hints[0],) * len(value)
    if len(hints) != len(value):
        raise Misfit
    entries = tuple(_fitted(entry, hint) for entry, hint in zip(value, hints, strict=True))
    unchanged = isinstance(value, tuple) and all(map(lambda a, b: a is b, entries, value))
    return value if unchanged else entries


def _dict(value: Any, hints: tuple[Any, ...]) -> Any:
    _instance(value, dict)
    for key, entry in value.items():
        _fitted(key, hints[0])
        _fitted(entry, hints[1])
    return value


def _instance(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise Misfit
    return value


def _bool(value: Any) -> bool:
    if isinstance(value, np.bool_):
        return bool(value)
    return bool(_instance(value, bool))


def _int(value: Any) -> int:
    if isinstance(value, (bool, float, str)) or getattr(value, "dtype", None) == torch.bool:
        raise Misfit
    try:
        return value if type(value) is int else int(value.__index__())
    except (AttributeError, TypeError, ValueError, RuntimeError):
        raise Misfit from None


def _float(value: Any) -> float:
    if isinstance(value, (Tensor, np.ndarray)) and math.prod(value.shape) == 1:
        value = value.item()
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Misfit
    try:
        number = float(value)
    except OverflowError:  # an integer too large for a float
        raise Misfit from None
    if not math.isfinite(number):
        raise Misfit
    # Small integers stay as they were written; torch takes no large ones.
    return value if isinstance(value, float) or abs(value) < 2**31 else number


def _none(value: Any) -> None:
    _instance(value, NoneType)


def _str(value: Any) -> str:
    return str(_instance(value, str))


_PLAIN: dict[Any, Callable[[Any], Any]] = {
    bool: _bool, int: _int, float: _float, str: _str, NoneType: _none, None: _none,
    Any: lambda value: value,
}  # fmt: skip


# --- describing annotations in error messages ----------------------------------------------

_WORDS: dict[Any, str] = {
    bool: "True or False", int: "an integer", float: "a number", str: "text",
    NoneType: "None", None: "None", dict: "a dictionary",
}  # fmt: skip


def expected(hint: Any) -> str:
    """The values that an annotation allows, in words for an error message."""
    words = _alternatives(hint)
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]


def _alternatives(hint: Any) -> list[str]:
    origin, inside = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _ruled_words(inside[0], _rules(hint))
    if origin in (Union, UnionType):
        return [word for member in inside for word in _alternatives(member)]
    if origin is Literal:
        return [*map(repr, inside)]
    if origin in (tuple, Sequence):
        any_length = origin is Sequence or inside[-1] is Ellipsis
        length = "" if any_length else f" of {len(inside)}"
        return [f"a list{length} with entries that are each {expected(inside[0])}"]
    if origin in (dict, Mapping):
        return [f"a dictionary with values that are each {expected(inside[1])}"]
    return [_WORDS.get(hint) or str(getattr(hint, "__name__", hint))]


def _ruled_words(hint: Any, rules: list[Rule]) -> list[str]:
    words = [str(rule) for rule in rules if not isinstance(rule, Range)]
    ranges = [str(rule) for rule in rules if isinstance(rule, Range)]
    return words or [
        word if word == "None" else " ".join([word, *ranges]) for word in _alternatives(hint)
    ]
