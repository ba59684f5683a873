"""Nodes, links and relations as the command line names them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphsvx.errors import InputError

if TYPE_CHECKING:
    from torch_geometric.data import Data


def parse_nodes(graph: Data, text: str, option: str, count: int | None = None) -> list[Any]:
    """Nodes separated by commas: numbers or names, paper:3 or paper:name of typed graphs.

    `paper:1,2` are two papers.
    """
    types = getattr(graph, "node_types", None)
    if types is None:
        words = [word.strip() for word in text.split(",")]
        if not getattr(graph, "node_names", None):
            return parse_numbers(text, option, count)
        nodes: list[Any] = [int(word) if word.isdecimal() else word for word in words]
    else:
        nodes, kind = [], ""
        for word in text.split(","):
            named, colon, number = word.strip().rpartition(":")
            kind = named if colon else kind
            named_nodes = kind in types and "names" in graph[kind]
            if not kind or not (number.isdecimal() or named_nodes):
                raise InputError(f"{option} takes nodes such as {types[0]}:0, got {text!r}")
            nodes.append((kind, int(number) if number.isdecimal() else number))
    if count is not None and len(nodes) != count:
        raise InputError(f"{option} takes {count} nodes separated by commas, got {text!r}")
    return nodes


def parse_numbers(text: str, option: str, count: int | None = None) -> list[int]:
    """Parse integers separated by commas, `count` of them if it is given."""
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or (count is not None and len(numbers) != count):
        expected = "numbers" if count is None else f"{count} numbers"
        raise InputError(f"{option} takes {expected} separated by commas, got {text!r}")
    return numbers


def parse_relation(text: str) -> int | str:
    """A relation by number or by name."""
    return int(text) if text.isdecimal() else text
