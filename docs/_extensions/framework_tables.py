"""The tables of docs/framework.md, generated from the `blocks` of each method.

python docs/_extensions/framework_tables.py docs/framework.md     regenerates them
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import graphsvx
from graphsvx.errors import InputError
from graphsvx.methods import registry
from graphsvx.methods.baseline import Block, Properties
from graphsvx.utils.files import atomic_write
from graphsvx.utils.printable import markdown_table

# The paper's table of explainers: decomposable, global, robust, meaningful, and the number of
# human-centric properties.
_PAPER: dict[str, tuple[bool, bool, bool, bool, int]] = {
    "graphsvx": (True, True, True, True, 3),
    "graphsvx-paper": (True, True, True, True, 3),
    "gnnexplainer": (False, True, False, False, 1),
    "pgexplainer": (False, True, False, False, 1),
    "graphlime": (False, False, False, True, 1),
    "pgm-explainer": (False, False, False, False, 2),
    "xgnn": (False, True, False, False, 1),
}


def blocks_table(root: str = "../src") -> str:
    """MASK, GEN and EXPL of each method, with links to the code from `docs`."""
    rows = []
    for name in registry.names():
        blocks = registry.blocks(name)
        title = f"{blocks.title} (`{name}`)" + (f", {blocks.source}" if blocks.source else "")
        parts = [_block(block, root) for block in (blocks.mask, blocks.gen, blocks.expl)]
        package = f"`{blocks.package}`" if blocks.package else ""
        rows.append([title, *parts, ", ".join(blocks.explains), ", ".join(blocks.tasks), package])
    return markdown_table(("method", "MASK", "GEN", "EXPL", "explains", "of", "inside"), rows)


def properties_table() -> str:
    """Measured properties of each method; in brackets the paper's where they differ."""
    head = ("decomposable", "global", "robust", "meaningful", "selective", "contrastive")
    rows = []
    for name in registry.names():
        blocks = registry.blocks(name)
        rows.append([f"`{name}`", *_marks(blocks.properties, _PAPER.get(name)), blocks.notes])
    return markdown_table(("method", *head, "note"), rows)


TABLES: dict[str, Callable[[], str]] = {"blocks": blocks_table, "properties": properties_table}


def with_tables(text: str) -> str:
    """The page with the tables between its markers regenerated."""
    for name, make in TABLES.items():
        first, last = (
            f"<!-- {name}: made by docs/_extensions/framework_tables.py -->",
            f"<!-- end of {name} -->",
        )
        if first not in text or last not in text:
            raise InputError(f"the page must have the markers {first!r} and {last!r}")
        before, rest = text.split(first, 1)
        after = rest.split(last, 1)[1]
        text = f"{before}{first}\n\n{make()}\n\n{last}{after}"
    return text


def main(path: str | Path) -> None:
    """Regenerate the tables of a page in place."""
    text = with_tables(Path(path).read_text(encoding="utf-8"))
    with atomic_write(path) as part:
        part.write_text(text, encoding="utf-8")


def _block(block: Block, root: str) -> str:
    code: Any = block.code
    home = Path(graphsvx.__file__).parents[1]
    file = Path(inspect.getsourcefile(inspect.unwrap(code)) or "").relative_to(home).as_posix()
    return f"{block.does} ([`{code.__qualname__}`]({root}/{file}))"


def _marks(properties: Properties, paper: tuple[bool, bool, bool, bool, int] | None) -> list[str]:
    measured = [
        properties.decomposable,
        properties.general,
        properties.robust,
        properties.meaningful,
    ]
    marks = []
    for i, holds in enumerate(measured):
        mark = "yes" if holds else "no"
        if paper is not None and paper[i] != holds:
            mark += f" ({'yes' if paper[i] else 'no'})"
        marks.append(mark)
    return [
        *marks,
        *("yes" if holds else "no" for holds in (properties.selective, properties.contrastive)),
    ]


if __name__ == "__main__":
    main(sys.argv[1])
