"""Names from outside steer no terminal and turn no text around, whichever way they come out."""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from io import StringIO

import pytest
from rich.console import Console
from torch import nn

from graphsvx import Explanation, GraphSVX, explain, explain_many, runs
from graphsvx.cli import main
from graphsvx.errors import InputError
from graphsvx.utils.printable import one_line
from graphsvx.views import html
from tests.worlds import random_graph, random_model

BAD = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) in ("Cc", "Cs", "Zl", "Zp")]
BAD += list("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff")
HOSTILE = "\x1b[31mred\x1b]0;title\x07\u202eesrever\u2066\r\nnew\x9bline\x00"


def harmless(text: str, lines: bool = False) -> bool:
    return not any(c in text for c in BAD if not (lines and c == "\n"))


@pytest.fixture(scope="module")
def explanation() -> Explanation:
    groups = {f"group {HOSTILE}": [2, 3]}
    return explain(random_model("gcn", 1), random_graph(1, chance=0.5), node=1, targets="all",
                   class_names=[f"{HOSTILE}{i}" for i in range(3)],
                   method=GraphSVX(samples=40, groups=groups,
                                   feature_groups={f"column {HOSTILE}": [0, 1]}))  # fmt: skip


def test_every_bad_character_is_replaced() -> None:
    assert harmless(one_line("".join(c for c in BAD if unicodedata.category(c) != "Cs")))
    assert one_line("  a\tb\n c ") == "a b c"
    for name in ("Käse", "نمی\u200cخواهم", "👩\u200d🔬", "日本", "a\u0301", "$x$", "[red]"):
        assert one_line(name) == name


def test_names_in_text(explanation: Explanation) -> None:
    other = explanation.contrast(0, 1)
    for view in (explanation, other):
        assert harmless(view.title)
        assert harmless(repr(view))
        assert harmless(view.describe(), lines=True)
        assert harmless(view.describe("expert"), lines=True)
        out = StringIO()
        Console(file=out, width=120).print(view.table())
        assert harmless(out.getvalue(), lines=True)
    assert "esrever" in explanation.title


def test_names_in_pages(explanation: Explanation) -> None:
    page = html.render(explanation, explanation.title)
    assert harmless(page, lines=True)
    # A backslash before it: the text of a repr, which shows what it escapes.
    assert not re.search(r"(?<!\\)\\u(202e|001b)", page)


def test_names_are_kept_as_they_were_given(explanation: Explanation) -> None:
    back = Explanation.from_dict(json.loads(json.dumps(explanation.to_dict())))
    assert back.class_names == explanation.class_names
    assert HOSTILE in explanation.class_names[0]


def test_names_in_errors_at_the_command_line(monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["graphsvx", "explain", f"data{HOSTILE}".replace("\0", "")])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert harmless(capsys.readouterr().err, lines=True)


def test_failures_are_printed_harmlessly(capsys) -> None:
    class Rude(nn.Module):
        def forward(self, x, edge_index):
            raise ValueError(HOSTILE)

    assert list(explain_many(Rude(), random_graph(1), [1])) == []
    assert harmless(capsys.readouterr().err, lines=True)


def test_the_command_of_a_run_is_printed_harmlessly(tmp_path, monkeypatch, capsys) -> None:
    runs.start(random_model("gcn", 1), random_graph(1), [1], out=tmp_path / "run",
               backend=runs.Local(1), method=GraphSVX(samples=10))  # fmt: skip
    (tmp_path / "run" / "progress.json").write_text(json.dumps({"command": HOSTILE}))
    next((tmp_path / "run" / "parts").iterdir()).unlink()
    monkeypatch.setattr(sys, "argv", ["graphsvx", "run", "--status", str(tmp_path / "run")])
    with pytest.raises(SystemExit):
        main()
    out = capsys.readouterr().out
    assert "to go on" in out
    assert harmless(out, lines=True)


def test_class_names_are_names(tmp_path) -> None:
    with pytest.raises(InputError) as caught:
        explain(random_model("gcn", 1), random_graph(1), node=1, class_names=[HOSTILE, "b"])
    assert harmless(str(caught.value))
