"""The one-page summary of all studies, made from the pages that are there."""

from __future__ import annotations

import json
from pathlib import Path

from graphsvx.errors import DataError
from graphsvx.files import written_whole

OTHERS = (
    ("models.md", "Accuracy of the trained models", "graphsvx train --all"),
    ("speed.md", "Speed against peers", "./scripts/bench --docs"),
    ("error.md", "Error against peers at equal numbers of model calls", "./scripts/bench --docs"),
    ("protocols.md", "How accuracy is scored, to the letter", ""),
)


def write(folder: Path, names: tuple[str, ...]) -> Path:
    """Write `README.md` from the JSON of the studies in `folder`, in the order of `names`."""
    lines = [
        "# Results: what of the paper holds, and by how much",
        "",
        "Made by `graphsvx study --all`. Every figure was measured by the command on its page;",
        "intervals are 95 %; the paper's figures stand beside ours in brackets.",
        "",
        "| study | finding |",
        "| --- | --- |",
    ]
    for name in names:
        found = _read(folder / f"{name}.json")
        if found is None:
            lines.append(f"| {name} | not made yet: `graphsvx study {name}` |")
        else:
            lines.append(f"| [{found['title']}]({name}.md) | {found['headline']} |")
    lines += ["", "Besides:", ""]
    for file, title, command in OTHERS:
        if (folder / file).exists():
            lines.append(f"- [{title}]({file})" + (f", made by `{command}`" if command else ""))
    path = folder / "README.md"
    with written_whole(path) as part:
        part.write_text("\n".join(lines) + "\n")
    return path


def _read(path: Path) -> dict[str, str] | None:
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text())
        return {key: str(found[key]).replace("\n", " ") for key in ("title", "headline")}
    except (json.JSONDecodeError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} is damaged ({error}); make it again: graphsvx study {path.stem}"
        ) from error
