"""Shortcuts that failed while an explanation was computed, as sentences for its certificate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from graphsvx.errors import error_text

_LONGEST = 200  # characters of an error's message
_sentences: ContextVar[list[str] | None] = ContextVar("sentences", default=None)


@contextmanager
def collected() -> Iterator[list[str]]:
    """The sentences that are noted within the block, each once, in their order."""
    sentences: list[str] = []
    token = _sentences.set(sentences)
    try:
        yield sentences
    finally:
        _sentences.reset(token)


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
