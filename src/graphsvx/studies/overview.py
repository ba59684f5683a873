"""`README.md` of the results: one table of all claims of the paper, made from measurements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from graphsvx.errors import DataError
from graphsvx.files import written_whole
from graphsvx.studies.page import CLAIM_COLUMNS, markdown_table
from graphsvx.studies.study import Study

OTHERS = {
    "models.md": "Accuracy of the trained models, made by `graphsvx train --all`",
    "speed.md": "Speed against peers, made by `./scripts/bench --docs`",
    "error.md": "Error against peers at equal numbers of calls, made by `./scripts/bench --docs`",
    "protocols.md": "How accuracy is scored",
}


def write(folder: Path, studies: Sequence[Study]) -> Path:
    """Write `README.md` from the studies' measurements in `folder`."""
    rows, verdicts, pages = list[list[str]](), list[bool | None](), list[str]()
    for study in studies:
        file = f"{study.name}.md"
        if not (folder / f"{study.name}.parquet").exists():
            older = f"; [an older page]({file})" if (folder / file).exists() else ""
            pages.append(
                f"- **{study.name}**: not measured yet, `graphsvx study {study.name}`{older}"
            )
            continue
        page = study.page(study.read(folder))
        claims = [claim for claim in page.claims if claim.paper]
        rows += [[f"[{study.name}]({file})", *claim.cells()] for claim in claims]
        verdicts += [claim.holds for claim in claims]
        pages.append(f"- [{page.title}]({file}): {study.about}")
    pages += [f"- [{title}]({file})" for file, title in OTHERS.items() if (folder / file).exists()]
    tested = len(verdicts) - verdicts.count(None)
    text = [
        "# Results: what of the paper holds, and by how much",
        "Made by `graphsvx study --all` from the measurements beside each page. In square brackets: "
        "95 % interval over seeds. Settings were chosen on validation seeds that no study scores.",
        f"Of {tested} claims of the paper that were tested, {verdicts.count(True)} hold.",
        markdown_table(("study", *CLAIM_COLUMNS), rows) if rows else "",
        "## Pages",
        "\n".join(pages),
    ]
    path = folder / "README.md"
    try:
        with written_whole(path) as part:
            part.write_text("\n\n".join(filter(None, text)) + "\n")
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error}); choose another --out") from error
    return path
