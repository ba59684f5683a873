"""Docstrings are plain text: `names` in backticks, examples indented after an empty line."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

_LITERAL = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_FIELD = re.compile(r"(\w+): (.+)")


def as_rst(lines: list[str]) -> list[str]:
    """The same text as reStructuredText.

    Backticks are literals, indented blocks after an empty line are code, and lines `name: text`
    at the start of a paragraph are a list.
    """
    converted: list[str] = []
    state = "start"  # of a paragraph; or "text", "list", "code"
    for line in lines:
        indented = line.startswith("    ")
        if not line.strip():
            state = state if state == "code" else "start"
            converted.append("")
        elif indented and state in ("start", "code"):
            converted += [] if state == "code" else ["::", ""]
            state = "code"
            converted.append(line)
        elif (field := _FIELD.fullmatch(line)) and state in ("start", "list", "code"):
            state = "list"
            converted.append(f"- **{field[1]}**: {_text(field[2])}")
        elif indented and state == "list":
            converted.append(f"  {_text(line.strip())}")
        else:
            converted += [""] if state == "list" else []
            state = "text"
            converted.append(_text(line))
    return converted


def _text(line: str) -> str:
    parts = _LITERAL.split(line)  # text, literal, text, literal, ..., text
    parts[::2] = [part.replace("|", r"\|").replace("*", r"\*") for part in parts[::2]]
    parts[1::2] = [f"``{part}``" for part in parts[1::2]]
    return "".join(parts)


def _process(*event: Any) -> None:
    """Change the lines, the last argument of the event, in place."""
    event[-1][:] = as_rst(event[-1])


def setup(app: Sphinx) -> dict[str, bool]:
    """Before napoleon, which reads the sections of arguments."""
    app.connect("autodoc-process-docstring", _process, priority=100)
    return {"parallel_read_safe": True}
