"""Directive `schema-reference`: the fields of a saved explanation, from its JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

SCHEMA = Path(__file__).parents[1] / "schema.json"


def _type(schema: dict[str, Any]) -> str:
    """A short name of a JSON type."""
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " or ".join(json.dumps(value) for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_type(option) for option in schema["anyOf"])
    kind = schema.get("type", "any value")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array":
        items = schema.get("items") or schema.get("prefixItems") or {}
        return f"array of {_type(items)}" if isinstance(items, dict) and items else "array"
    return schema.get("title", kind)


def _rows(schema: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, field in schema.get("properties", {}).items():
        yield f"| `{prefix}{name}` | {_type(field)} |"
        options = [field, *field.get("anyOf", [])]
        for option in options:
            if option.get("type") == "object" and not prefix.count("."):
                yield from _rows(option, f"{prefix}{name}.")


class SchemaReference(SphinxDirective):
    """A table of all fields."""

    def run(self) -> list[nodes.Node]:
        """Parse the table as if it stood in the page."""
        rows = ["| field | type |", "|---|---|", *_rows(json.loads(SCHEMA.read_text()))]
        container = nodes.section()
        container.document = self.state.document
        self.state.nested_parse(StringList(rows, str(SCHEMA)), 0, container)
        return container.children


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("schema-reference", SchemaReference)
    return {"parallel_read_safe": True}
