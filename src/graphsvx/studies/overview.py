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
        "Made by `graphsvx study --all` from the studies' own figures. On the pages each figure",
        "stands with its seeds, counts and 95 % interval, and with the paper's beside it; settings",
        "were chosen on validation seeds that no study scores ([protocols.md](protocols.md)).",
        "",
    ]
    for name in names:
        found = _read(folder / f"{name}.json")
        if found is None:
            lines.append(f"- **{name}**: not made yet; `graphsvx study {name}`")
        else:
            lines.append(f"- **[{found['title']}]({name}.md)** {found['headline']}")
        lines.append("")
    lines += ["Besides:", ""]
    for file, title, command in OTHERS:
        if (folder / file).exists():
            lines.append(f"- [{title}]({file})" + (f", made by `{command}`" if command else ""))
    path = folder / "README.md"
    try:
        with written_whole(path) as part:
            part.write_text("\n".join(lines) + "\n")
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error}); choose another --out") from error
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
