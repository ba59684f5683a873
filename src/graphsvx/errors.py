"""Everything that graphsvx raises on purpose.

    GraphSVXError
    ├── InputError (ValueError)         an argument cannot be used as it is
    │   ├── BudgetError                 too few samples for the question
    │   ├── TargetError                 a class or output that the model does not have
    │   └── DataError                   a data set, file or checkpoint that is missing or damaged
    ├── ModelError (RuntimeError)       the model raised, or returned what cannot be explained
    ├── UnsupportedError (NotImplementedError)  a method was asked for what it cannot do
    └── MissingExtraError (ImportError) an optional package is not installed or cannot be imported

and a warning: NoInfluenceWarning (UserWarning), no player changes the output.

Messages say what was expected, what came and what to do. The command line prints them in one
line and exits with code 2.
"""

from __future__ import annotations

from textwrap import shorten


class GraphSVXError(Exception):
    """Root of the tree: catch this to catch everything of ours."""


class InputError(GraphSVXError, ValueError):
    """An argument cannot be used as it is."""


class BudgetError(InputError):
    """The number of samples does not fit the question."""


class TargetError(InputError):
    """The asked class or output does not exist."""


class DataError(InputError):
    """A data set, file or checkpoint is missing, damaged, or belongs to something else."""


class ModelError(GraphSVXError, RuntimeError):
    """The model raised, or returned something that cannot be explained."""


class UnsupportedError(GraphSVXError, NotImplementedError):
    """A method was asked for something that it cannot do."""


class NoInfluenceWarning(UserWarning):
    """No player changes the output: all credit is 0, for a reason that should be looked at."""


def see(section: str) -> str:
    """The end of a message that a section of the documentation's FAQ explains."""
    return f' (FAQ: "{section.replace("-", " ").capitalize()}")'


def error_text(error: BaseException) -> str:
    """Type and message of another code's error, as text that every file can hold."""
    try:
        message = str(error)
    except Exception:  # a user's own __str__ may raise anything
        message = "(its message cannot be read)"
    return f"{type(error).__name__}: {message}".encode("utf-8", "replace").decode()


def first_line(error: BaseException) -> str:
    """The first line of another library's error message; its type if there is none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


class MissingExtraError(GraphSVXError, ImportError):
    """An optional package is needed, and is not installed or cannot be imported."""

    def __init__(self, package: str, extra: str, cause: Exception | None = None) -> None:
        """`cause`: what the import of a package that is installed has raised."""
        if cause is None:
            problem = f'is not installed; install it with: pip install "graphsvx[{extra}]"'
        else:
            reason = shorten(f"{type(cause).__name__}: {cause}", 300)
            problem = (
                f"is installed but cannot be imported: {reason}; versions that fit each other: "
                f'pip install --upgrade "graphsvx[{extra}]" {package}'
            )
        problem += see("a-package-is-missing")
        super().__init__(f"this needs the package {package!r}, which {problem}")
