"""The page on protocols says what the code does, and its examples run as they stand."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from graphsvx_lab.metrics import PAPER_PROTOCOLS
from graphsvx_lab.metrics.measurements import MIN_SEEDS, SIGNIFICANT
from graphsvx_lab.metrics.truth import HOUSES, MOLECULES
from graphsvx_lab.studies import ground_truth

PAGE = Path(__file__).parents[2] / "docs" / "results" / "protocols.md"
TEXT = PAGE.read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def run(block: str, folder: Path) -> None:
    file = folder / "example.py"
    file.write_text(block)
    runpy.run_path(str(file))


def test_the_explainer_of_the_example_is_scored(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run(BLOCKS[0], tmp_path)
    said = dict(line.split() for line in capsys.readouterr().out.splitlines())
    figures = {name: float(value) for name, value in said.items()}
    assert set(figures) == {"paper", "strict", "edges", "AUROC", "chance"}
    # Near nodes are a better guess than any.
    assert figures["chance"] < figures["strict"] <= 1
    assert figures["AUROC"] > 0.5


def test_the_hand_computed_example_of_the_docs_runs(tmp_path: Path):
    assert len(BLOCKS) == 2
    assert BLOCKS[1].count("assert") == 3
    run(BLOCKS[1], tmp_path)


@pytest.mark.parametrize(
    ("title", "name"),
    [("BA-Shapes", "ba-shapes"), ("BA-Community", "ba-community"),
     ("Tree-Cycles", "tree-cycles"), ("Tree-Grid", "tree-grid"), ("BA-2motifs", "ba-2motifs")],
)  # fmt: skip
def test_the_table_has_the_numbers_of_the_code(title: str, name: str):
    row = next(line for line in TEXT.splitlines() if line.startswith(f"| {title} |"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    rules = PAPER_PROTOCOLS[name]
    assert (int(cells[3]), int(cells[4])) == (rules.top, rules.divisor)
    if name == "ba-2motifs":
        assert cells[2] == "nodes 20-24"
        assert f"graphs 0-{HOUSES - 1}" in cells[1]
        return
    assert int(re.findall(r"next (\d)", cells[2])[0]) == rules.size
    assert int(re.findall(r"\((\d+)\)", cells[1])[0]) == len(rules.scored)
    for node in re.findall(r"\d+(?=,| and|$| \()", cells[1]):
        assert int(node) in rules.scored


def test_the_numbers_in_the_text_are_those_of_the_code():
    assert f"draws {ground_truth.STRICT} of them a seed" in TEXT
    assert f"numbers {MOLECULES.start}-{MOLECULES.stop - 1}" in TEXT
    seeds = ground_truth.TEN_SEEDS[-1], ground_truth.SEEDS[-1]
    assert "Scored seeds are 0-{} in the main table and 0-{} on other pages".format(*seeds) in TEXT
    assert f"below {MIN_SEEDS} seeds" in TEXT
    assert f"p below {SIGNIFICANT}" in TEXT
