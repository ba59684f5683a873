"""Functions whose options are given before their argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")


def with_options(function: Callable[Concatenate[A, P], R]) -> Callable[P, Callable[[A], R]]:
    """`f(x, options)` as `f(options)(x)`: for what is declared with options and called later."""
    return lambda *args, **kwargs: lambda first: function(first, *args, **kwargs)
