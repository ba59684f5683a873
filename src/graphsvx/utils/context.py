"""What holds while an explanation is computed: its components, and which shortcuts failed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from graphsvx.errors import error_text

T = TypeVar("T")
_LONGEST = 200  # characters of an error's message
_sentences: ContextVar[list[str] | None] = ContextVar("sentences", default=None)


@contextmanager
def within(variable: ContextVar[Any], value: T) -> Iterator[T]:
    """The variable has this value within the block."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)


def collected() -> AbstractContextManager[list[str]]:
    """The sentences that are noted within the block, each once, in their order."""
    return within(_sentences, [])


def note(sentences: Iterable[str]) -> None:
    """Add sentences to those of the explanation that is being computed."""
    noted = _sentences.get()
    if noted is not None:
        noted.extend(sentence for sentence in dict.fromkeys(sentences) if sentence not in noted)


def give_up(consequence: str, error: BaseException) -> str:
    """Note that something was not done, and the error because of which; returns the sentence."""
    message = " ".join(error_text(error.__cause__ or error).split())
    if len(message) > _LONGEST:
        message = message[:_LONGEST] + "..."
    sentence = f"{consequence} ({message})"
    note([sentence])
    return sentence


@contextmanager
def optional(consequence: str, *errors: type[Exception]) -> Iterator[None]:
    """Suppress these errors within the block; the consequence is noted."""
    try:
        yield
    except errors as error:
        give_up(consequence, error)


@dataclass(frozen=True)
class Components:
    """What takes part in an estimate; `bench ablate` switches one off at a time."""

    walk_prior: bool = True
    """Relevance of players by random walks."""
    product: bool = True
    """Interactions in the covariance."""
    size_functions: bool = True
    """Odd functions of the size of coalitions in the covariance."""
    noise_by_size: bool = True
    """More white noise at small coalitions."""
    per_size: bool = True
    """Slopes that fall with the size of coalitions in the covariance."""
    averaging: bool = True
    """Several processes, weighted by their likelihood."""
    residuals: bool = True
    """Correction of a process by the pairs that it has not seen."""
    logits: bool = True
    """A regression of logits beside the process."""
    derivatives: bool = True
    """Credit of far players by derivatives."""
    differences: bool = True
    """Means of marginal contributions."""
    waves: bool = True
    """Sines of sums of players as control variates of look-ups."""


_ALL = Components()
_used: ContextVar[Components] = ContextVar("components", default=_ALL)


def components() -> Components:
    """Those that are switched on."""
    return _used.get()


def only(parts: Components) -> AbstractContextManager[Components]:
    """Estimates in this block use these components."""
    return within(_used, parts)
