"""The report as a file: one piece, small, safe, and whole or not there."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from graphsvx.errors import InputError
from graphsvx.results.credit import Credit
from graphsvx.views import html
from tests import records


def embedded(page: str) -> dict:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert match
    return json.loads(match[1])


def test_three_hundred_nodes_stay_below_500_kib():
    assert len(html.render(records.crowd()).encode()) < 500 * 1024


def test_every_class_of_three_hundred_nodes_stays_below_500_kib():
    explanation = records.crowd()

    def rows(credit: Credit) -> Credit:
        return replace(credit, values=credit.values.repeat(4, 1), errors=credit.errors.repeat(4, 1))

    many = replace(
        explanation,
        outputs=(0, 1, 2, 3),
        bases=explanation.bases.repeat(4),
        predictions=explanation.predictions.repeat(4),
        node_credit=rows(explanation.node_credit),
        feature_credit=Credit.none(4),
        edge_credit=Credit.none(4),
    )
    assert len(html.render(many).encode()) < 500 * 1024


def test_groups_hold_every_node_with_the_credit_of_rings():
    e = records.crowd()
    (table,) = embedded(html.render(e))["explanations"][0]["tables"]
    assert [group["count"] for group in table["groups"]] == [len(r.members) for r in e.by_hop()]
    for group, ring in zip(table["groups"], e.by_hop(), strict=True):
        assert group["credit"][0] == pytest.approx(ring.value, rel=1e-6)
        assert {table["rows"][i]["id"] for i in group["rows"]} == set(ring.members)
    (few,) = [t for t in embedded(html.render(records.house()))["explanations"][0]["tables"]
              if t["kind"] == "node"]  # fmt: skip
    assert few["groups"] == []


def test_nothing_is_loaded_from_anywhere():
    page = html.render(records.house())
    addresses = set(re.findall(r"https?://[^\s'\"<>)]+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert not re.search(r"<(link|script|img|iframe)[^>]+(src|href)=\"(?!data:,)", page)


def test_the_policy_names_the_hashes_of_script_and_style():
    page = html.render(records.house())
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy
    assert "default-src &#x27;none&#x27;" in policy[1]
    for tag in ("style", "script"):
        part = re.search(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(part[1].encode()).digest()).decode()
        assert f"&#x27;sha256-{digest}&#x27;" in policy[1]


def test_text_from_data_cannot_inject_markup():
    page = html.render(records.hostile(), title="</title><script>alert(1)</script>")
    assert page.count("<script") == 2
    assert "<img" not in page
    data = embedded(page)
    assert (
        data["explanations"][0]["tables"][0]["rows"][0]["name"] == "<script>window.pwned=1</script>"
    )
    assert "\u2028" not in page


def test_placeholders_in_data_are_not_filled_in():
    explanation = replace(records.house(), class_names=("a", "{{script}}", "c", "d"))
    page = html.render(explanation, title="{{data}}")
    assert "<title>{{data}}</title>" in page
    assert embedded(page)["explanations"][0]["outputs"][0]["name"] == "{{script}}"


def test_the_embedded_numbers_match_the_explanation():
    e = records.crowd()
    given = embedded(html.render(e))["explanations"][0]
    table = given["tables"][0]
    values = {
        row["id"]: value for row, value in zip(table["rows"], table["credit"][0], strict=True)
    }
    assert values == pytest.approx(e.nodes, rel=1e-6)
    graph = given["graph"]
    dots = {
        dot["id"]: credit
        for dot, credit in zip(graph["dots"], graph["credit"][0], strict=True)
        if dot["count"] == 1
    }
    expected = {node: credit for node, credit in {**e.nodes, 0: 0.0}.items() if node in dots}
    assert len(expected) >= 20
    assert dots == pytest.approx(expected, rel=1e-6)


def test_missing_standard_errors_are_null_not_nan():
    given = embedded(html.render(records.importances()))["explanations"][0]
    assert given["tables"][0]["error"] == [[None] * 7]


def test_very_many_players_are_summed_up_not_dropped():
    e = records.crowd(900)
    given = embedded(html.render(e))["explanations"][0]
    assert len(given["graph"]["dots"]) <= 60
    assert sum(dot["count"] for dot in given["graph"]["dots"]) == 901
    assert sum(given["graph"]["credit"][0]) == pytest.approx(e.total, abs=1e-5)
    table = given["tables"][0]
    assert sum(table["credit"][0]) + table["more"]["credit"][0] == pytest.approx(e.total, abs=1e-5)
    assert len(table["rows"]) + table["more"]["count"] == 900


def test_without_scripts_the_sentences_are_there():
    page = html.render([records.house(), records.empty()])
    assert "Turn on JavaScript" in page
    assert "Node 400 (+0.310) and node 401 (+0.240) account for 61 % of all credit" in page


def test_the_file_is_written_whole(tmp_path, monkeypatch):
    path = tmp_path / "deep" / "why.html"
    records.house().to_html(path)
    assert path.read_text(encoding="utf-8").endswith("</html>\n")
    before = path.read_bytes()
    with pytest.raises(InputError):
        html.write([], path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["why.html"]


def test_the_same_explanation_gives_the_same_bytes():
    assert html.render(records.crowd()) == html.render(records.crowd())


def test_an_empty_list_of_explanations_is_an_input_error():
    with pytest.raises(InputError, match="at least one explanation"):
        html.render([])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (SimpleNamespace(), "node features x"),
        (SimpleNamespace(x=torch.zeros(10, 2)), "pass the graph that was explained"),
    ],
)
def test_data_that_does_not_fit_is_an_error_that_says_so(data, words):
    with pytest.raises(InputError, match=words):
        html.render(records.house(), data=data)


def test_the_notebook_s_frame_is_one_attribute():
    frame = records.hostile()._repr_html_()
    pattern = (
        r'<iframe class="[\w-]+" srcdoc="[^"]*" sandbox="allow-scripts" [^<>]*></iframe>'
        r"<script>[^<]*</script>"
    )
    assert re.fullmatch(pattern, frame)


def test_a_hundred_explanations_are_half_a_megabyte_and_all_there():
    crowds = [records.crowd(60 + i) for i in range(5)]
    explanations = [replace(crowds[i % 5], centres=(i,), graph_index=None) for i in range(100)]
    page = html.render(explanations)
    assert len(page.encode()) < 2**19
    match = re.search(r'<script type="text/plain" id="data">(.*?)</script>', page, re.DOTALL)
    assert match
    given = json.loads(zlib.decompress(base64.b64decode(match[1])))["explanations"]
    assert len(given) == 100
    titles = [explanation["outputs"][explanation["target_row"]]["title"] for explanation in given]
    assert titles == [e.title for e in explanations]
    assert sum(given[7]["graph"]["credit"][0]) == pytest.approx(explanations[7].total, abs=1e-5)
