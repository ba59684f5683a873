"""The report in a real browser: what is shown is what the explanation says."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from graphsvx import GraphSVX, explain
from graphsvx.utils.printable import one_line
from graphsvx.views import html, palette
from tests import records
from tests.worlds import random_graph, random_model


def shown(value: float) -> str:
    return f"{value:+.4f}".replace("-", "−")


def written(tmp_path, *explanations, **options):
    path = tmp_path / "why.html"
    html.write(list(explanations), path, **options)
    return path


def table(browser, kind: str) -> dict[str, str]:
    rows = browser.all(f'[data-table="{kind}"] tbody tr')
    return {
        row.get_attribute("data-key"): row.find_element("css selector", "[class*=-text]").text
        for row in rows
    }


@pytest.mark.parametrize(
    "make",
    [
        records.house, records.house_all, records.crowd, records.molecule, records.features_only,
        records.edges_only, records.regression, records.empty, records.importances, records.hostile,
    ],
)  # fmt: skip
def test_the_page_opens_from_disk_without_requests_or_console_errors(browser, tmp_path, make):
    page = written(tmp_path, make())
    browser.open(page)
    assert browser.text("#said") == make().title
    assert set(browser.requests()) <= {page.as_uri(), "data:,"}
    assert browser.complaints() == []


def test_the_browser_check_detects_requests_and_console_errors(browser, tmp_path):
    page = tmp_path / "loud.html"
    page.write_text('<img src="http://127.0.0.1:9/x.png"><script>console.error("loud")</script>')
    browser.open(page)
    assert any("127.0.0.1:9" in url for url in browser.requests())
    assert any("loud" in words for words in browser.complaints())


def test_the_policy_stops_foreign_scripts(browser, tmp_path):
    page = written(tmp_path, records.house())
    page.write_text(
        page.read_text().replace("</body>", "<script>window.foreign = 1</script></body>")
    )
    browser.open(page)
    assert browser.run("return window.foreign") is None
    assert any("Content Security Policy" in words for words in browser.complaints())


def test_tables_and_text_of_the_page_match_the_explanation(browser, tmp_path):
    e = records.house()
    browser.open(written(tmp_path, e))
    assert table(browser, "node") == {str(n): shown(v) for n, v in e.nodes.items()}
    assert table(browser, "feature") == {str(n): shown(v) for n, v in e.features.items()}
    assert browser.text("#sentences").replace("\u00a0", " ") == e.describe()
    assert "0.9700" in browser.text("#facts")
    assert "0.2110" in browser.text("#facts")
    assert "exact" in browser.text("#facts")


def test_the_waterfall_ends_at_the_prediction(browser, tmp_path):
    e = records.crowd()
    browser.open(written(tmp_path, e))
    steps = browser.all("#waterfall .step .value")
    numbers = [float(step.text.replace("−", "-")) for step in steps]
    assert sum(numbers[:-1]) == pytest.approx(numbers[-1], abs=1e-3)
    assert numbers[-1] == pytest.approx(e.prediction, abs=1e-4)
    assert "more together" in browser.text("#waterfall")


def test_error_bars_cover_the_95_percent_interval(browser, tmp_path):
    e = records.features_only()
    browser.open(written(tmp_path, e))
    row = browser.one('[data-table="feature"] tr[data-key="9"]')
    assert "± 0.0300" in row.text
    bar = row.find_element("css selector", ".credit-bar")
    whisker = row.find_element("css selector", ".credit-bar b").rect
    reach = max(abs(v) + 1.96 * s for v, s in zip(e.feature_values, e.feature_errors, strict=True))
    half = bar.rect["width"] / 2 / float(reach)
    middle = bar.rect["x"] + bar.rect["width"] / 2
    assert whisker["x"] == pytest.approx(middle + half * (-0.11 - 1.96 * 0.03), abs=1.5)
    assert whisker["width"] == pytest.approx(half * 2 * 1.96 * 0.03, abs=1.5)


@pytest.mark.parametrize("percent", [10, 35])
def test_the_slider_fades_what_is_below_it(browser, tmp_path, percent):
    e = records.house()
    browser.open(written(tmp_path, e))
    slider = browser.one("#threshold")
    slider.send_keys(*[Keys.ARROW_RIGHT] * percent)
    assert slider.get_attribute("value") == str(percent)
    least = percent / 100 * 0.31
    faded = {int(dot.get_attribute("data-id")) for dot in browser.all(".dot.below")}
    assert faded == {node for node, value in e.nodes.items() if abs(value) < least}
    players = [*e.nodes.values(), *e.features.values()]
    visible = sum(abs(value) >= least for value in players)
    assert browser.text("#threshold-says") == f"{least:.4f}: {visible} of {len(players)} players"
    assert len(browser.all("#tables tr.below")) == len(players) - visible


def test_hovering_shows_a_node_s_credit(browser, tmp_path):
    e = records.house()
    browser.open(written(tmp_path, e))
    dot = browser.one('.dot[data-id="401"] .base')
    ActionChains(browser.driver).move_to_element(dot).perform()
    words = browser.text("#tip")
    assert "node 401" in words
    assert shown(e.nodes[401]) in words
    assert "house middle" in words
    assert "1 hop away" in words


def test_a_click_shows_credit_class_features_and_neighbours(browser, tmp_path):
    e = records.house()
    x = torch.zeros(700, 10)
    x[403, 4] = 2.5
    browser.open(written(tmp_path, e, data=SimpleNamespace(x=x)))
    browser.one('.dot[data-id="403"] .base').click()
    words = browser.text("#details")
    assert "node 403" in words
    assert shown(e.nodes[403]) in words
    assert "house floor" in words
    assert "2 hops" in words
    assert "bias" in words
    assert "2.5000" in words
    near = {button.text for button in browser.all("#details .near button")}
    assert near == {"400", "404", "17"}
    assert browser.one("tr.selected").get_attribute("data-key") == "403"


def test_a_click_on_a_row_selects_the_node(browser, tmp_path):
    browser.open(written(tmp_path, records.house()))
    browser.one('tr[data-key="17"]').click()
    assert browser.one(".dot.selected").get_attribute("data-id") == "17"
    assert "node 17" in browser.text("#details")


def test_switching_the_class_shows_that_class(browser, tmp_path):
    e = records.house_all()
    browser.open(written(tmp_path, e))
    switch = Select(browser.one("#output"))
    assert [option.text for option in switch.options] == list(e.class_names)
    assert switch.first_selected_option.text == "house roof"
    for output in (2, 0):
        switch.select_by_visible_text(e.class_names[output])
        other = e.for_target(output)
        assert browser.text("#said") == other.title
        assert table(browser, "node") == {str(n): shown(v) for n, v in other.nodes.items()}
        assert browser.text("#sentences").replace("\u00a0", " ") == other.describe()
        assert browser.text("#waterfall .step:last-child .value") == shown(other.prediction).lstrip(
            "+"
        )


def test_one_output_needs_no_switch_and_one_explanation_no_list(browser, tmp_path):
    browser.open(written(tmp_path, records.house()))
    assert not browser.one("#switch").is_displayed()
    assert not browser.one("#pick").is_displayed()


def test_several_explanations_are_chosen_from_a_list(browser, tmp_path):
    explanations = [records.house(), records.features_only(), records.crowd(), records.empty()]
    browser.open(written(tmp_path, *explanations))
    pick = Select(browser.one("#which"))
    assert len(pick.options) == 4
    for index, e in enumerate(explanations):
        pick.select_by_index(index)
        assert browser.text("#said") == e.title
        assert len(browser.all(".dot")) == min(46, len(e.field.ids))  # 30 and groups
        assert len(browser.all('[data-table="feature"] tbody tr')) == len(e.features)
    assert browser.complaints() == []


def test_names_from_data_stay_names(browser, tmp_path):
    e = records.hostile()
    page = written(tmp_path, e, title="<img src=x onerror=window.pwned=1> & {{data}}")
    browser.open(page)
    browser.one('.dot[data-id="400"] .base').click()
    assert browser.run("return window.pwned") is None
    assert browser.all("img") == []
    assert len(browser.all("script")) == 2
    assert browser.text("h1") == "<img src=x onerror=window.pwned=1> & {{data}}"
    assert "<script>window.pwned=1</script>" in browser.text("#details")
    assert browser.text("#said") == "node 402: <b>roof</b>"
    names = {
        cell.get_attribute("textContent") for cell in browser.all('[data-table="node"] td.name')
    }
    assert names == {one_line(name) for name in e.node_credit.names}
    assert browser.complaints() == []


def test_the_keyboard_reaches_every_node(browser, tmp_path):
    e = records.house()
    browser.open(written(tmp_path, e))
    seen = []
    browser.one("#zoom-fit").send_keys(Keys.TAB)
    for _ in range(8):
        focused = browser.driver.switch_to.active_element
        seen.append(int(focused.get_attribute("data-id")))
        assert str(seen[-1]) in focused.get_attribute("aria-label")
        focused.send_keys(Keys.ARROW_RIGHT)
    ranked = [402, *(player.id for player in e.top_nodes(by="absolute"))]
    assert seen == ranked
    browser.driver.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
    assert browser.text("#details h3") == f"node {ranked[1]}"


def test_tables_sort_both_ways(browser, tmp_path):
    e = records.house()
    browser.open(written(tmp_path, e))
    credit = browser.all('[data-table="node"] th button')[-1]
    assert "Credit" in credit.text
    credit.click()
    assert list(table(browser, "node")) == [str(p.id) for p in e.top_nodes()]
    credit.click()
    assert list(table(browser, "node")) == [str(p.id) for p in reversed(e.top_nodes())]
    heads = browser.all('[data-table="node"] th[aria-sort]')
    assert [head.get_attribute("aria-sort") for head in heads] == ["ascending"]


def test_dragging_moves_a_node_and_its_lines(browser, tmp_path):
    browser.open(written(tmp_path, records.house()))
    places = """return [...document.querySelectorAll('.dot')]
        .map(d => [d.dataset.id, d.getAttribute('transform')])"""
    before = dict(browser.run(places))
    dot = browser.one('.dot[data-id="88"] .base')
    ActionChains(browser.driver).drag_and_drop_by_offset(dot, -40, 25).perform()
    after = dict(browser.run(places))
    assert {key for key in before if before[key] != after[key]} == {"88"}
    end = after["88"].removeprefix("translate(").removesuffix(")").split(",")[0]
    ends = browser.run(
        """return [...document.querySelectorAll('.link')]
            .flatMap(l => [l.getAttribute('x1'), l.getAttribute('x2')])"""
    )
    assert end in ends


def test_zoom_pan_and_fit(browser, tmp_path):
    browser.open(written(tmp_path, records.house()))
    world = "return document.querySelector('#graph > g').getAttribute('transform')"
    browser.one("#zoom-in").click()
    assert "scale(1.4)" in browser.run(world)
    stage = browser.one("#graph")
    ActionChains(browser.driver).move_to_element_with_offset(
        stage, 0, -150
    ).click_and_hold().move_by_offset(30, 10).release().perform()
    moved = browser.run(world)
    browser.one("#zoom-fit").click()
    assert browser.run(world) == "translate(0,0) scale(1)"
    assert moved != browser.run(world)
    wheel = """arguments[0].dispatchEvent(new WheelEvent('wheel',
        {deltaY: -300, clientX: 300, clientY: 400, cancelable: true}))"""
    browser.run(wheel, stage)
    assert "scale(1.6" in browser.run(world)


def test_light_and_dark(browser, tmp_path):
    ground = "return getComputedStyle(document.body).backgroundColor"
    page = written(tmp_path, records.house())
    for scheme, other in (("dark", "light"), ("light", "dark")):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        browser.open(page)
        assert browser.run("return document.documentElement.dataset.theme") == scheme
        before = browser.run(ground)
        browser.one("#theme").click()
        assert browser.run("return document.documentElement.dataset.theme") == other
        assert browser.run(ground) != before
        browser.run("localStorage.clear()")


@pytest.mark.parametrize("make", [records.house_all, records.crowd, records.hostile])
def test_the_page_has_no_horizontal_overflow_on_a_narrow_screen(browser, tmp_path, make):
    browser.driver.set_window_size(500, 900)
    browser.open(written(tmp_path, make()))
    width, inner = browser.run("return [document.documentElement.scrollWidth, window.innerWidth]")
    assert width <= inner


def test_print_hides_the_controls_and_shows_whole_tables(browser, tmp_path):
    browser.open(written(tmp_path, records.crowd()))
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert not browser.one("#theme").is_displayed()
    assert not browser.one("#zoom-in").is_displayed()
    last = browser.all('[data-table="node"] tbody tr')[-1]
    box = browser.one('[data-table="node"] .scroll').rect
    assert last.rect["y"] < box["y"] + box["height"]


def test_the_notebook_s_frame_works_without_storage(browser, tmp_path):
    e = records.hostile()
    page = tmp_path / "notebook.html"
    page.write_text(f"<!DOCTYPE html><body>{e._repr_html_()}</body>", encoding="utf-8")
    browser.open(page)
    browser.driver.switch_to.frame(browser.one("iframe"))
    try:
        assert browser.text("#said") == e.title
        assert table(browser, "node") == {str(n): shown(v) for n, v in e.nodes.items()}
        browser.one("#theme").click()
        assert browser.run("return window.pwned") is None
    finally:
        browser.driver.switch_to.default_content()
    assert browser.complaints() == []


def test_three_hundred_nodes_are_drawn_as_thirty_and_groups(browser, tmp_path):
    e = records.crowd()
    browser.open(written(tmp_path, e))
    dots = browser.run(
        "return JSON.parse(document.getElementById('data').textContent).explanations[0].graph.dots"
    )
    assert sum(dot["count"] for dot in dots) == len(e.field.ids) == 300
    assert sum(dot["count"] == 1 for dot in dots) <= 36
    assert len(browser.all(".dot")) == len(dots)
    best = [player.id for player in e.top_nodes(10, "absolute")]
    assert set(best) <= {dot["id"] for dot in dots}
    shown_labels = browser.run(
        """return [...document.querySelectorAll('.dot text')]
            .filter(t => getComputedStyle(t).display !== 'none').length"""
    )
    assert 5 <= shown_labels <= 30
    # Groups of the table unfold by click and by key, those that may be 0 in a group of their own.
    rings = e.by_hop()
    folds = [button for button in browser.all("button.fold") if button.is_displayed()]
    assert len(folds) == len(rings)
    assert not any(row.is_displayed() for row in browser.all("#tables tbody tr[data-key]")[:5])
    folds[0].click()
    shown = [row for row in browser.all("#tables tbody tr[data-key]") if row.is_displayed()]
    sure = {p.id for p in e.top_nodes() if p.id in rings[0].members and not may_be_zero(p)}
    assert {int(row.get_attribute("data-key")) for row in shown} == sure
    unsure = next(b for b in browser.all("button.fold") if "may be 0" in b.text)
    unsure.send_keys(Keys.ENTER)
    shown = [row for row in browser.all("#tables tbody tr[data-key]") if row.is_displayed()]
    assert len(shown) == len(rings[0].members)
    # A bubble lists its nodes.
    bubble = next(i for i, dot in enumerate(dots) if dot["count"] > 1)
    browser.run("arguments[0].focus()", browser.one(f'.dot[data-index="{bubble}"]'))
    browser.one(f'.dot[data-index="{bubble}"]').send_keys(Keys.ENTER)
    assert len(browser.all("#details .members dt")) == min(60, dots[bubble]["count"])
    assert browser.complaints() == []


def may_be_zero(player) -> bool:
    return abs(player.value) < 2 * player.error


def test_cells_are_shown_as_a_matrix(browser, tmp_path):
    browser.open(written(tmp_path, records.with_cells()))
    rows = [
        [cell.text for cell in row.find_elements("css selector", "th, td")]
        for row in browser.all("#cell-table tr")
    ]
    assert rows[0] == ["", "presence", "degree", "bias", "other features"]
    assert rows[2] == ["node 400", "+0.3000", "", "−0.1000", "+0.0400"]
    browser.open(written(tmp_path, records.house()))
    assert not browser.one("#cells").is_displayed()


def test_a_page_of_many_explanations_has_a_search_box(browser, tmp_path):
    explanations = [replace(records.house(), centres=(400 + i,)) for i in range(40)]
    browser.open(written(tmp_path, *explanations))
    WebDriverWait(browser.driver, 20).until(lambda _: browser.text("#said"))
    pick = Select(browser.one("#which"))
    assert len(pick.options) == 40
    browser.one("#find").send_keys("17")  # the number in the list is no part of the title
    assert "nothing found" in browser.text("#which")
    browser.one("#find").clear()
    browser.one("#find").send_keys("417")
    assert browser.text("#said") == explanations[17].title
    assert len(Select(browser.one("#which")).options) == 1
    browser.one("#find").send_keys("xyz")
    assert "nothing found" in browser.text("#which")
    browser.one("#find").clear()
    browser.one("#find").send_keys("node")
    assert len(Select(browser.one("#which")).options) == 40
    assert browser.complaints() == []


def test_the_frame_of_a_notebook_is_as_tall_as_its_page_and_has_one_title(browser, tmp_path):
    e = records.house()
    page = tmp_path / "notebook.html"
    page.write_text(f"<!DOCTYPE html><body>{e._repr_html_()}</body>", encoding="utf-8")
    browser.open(page)
    frame = browser.one("iframe")

    def inner() -> float:
        browser.driver.switch_to.frame(frame)
        try:
            return browser.run("return document.body.getBoundingClientRect().height")
        finally:
            browser.driver.switch_to.default_content()

    WebDriverWait(browser.driver, 20).until(lambda _: abs(frame.rect["height"] - inner()) <= 2)
    assert frame.rect["height"] > 760
    browser.driver.switch_to.frame(frame)
    try:
        titles = [part for part in browser.all("h1, h2") if part.is_displayed()]
        assert [part.text for part in titles].count(e.title) == 1
        assert not browser.one("h1").is_displayed()
        assert browser.run("return document.documentElement.scrollHeight <= window.innerHeight + 2")
    finally:
        browser.driver.switch_to.default_content()


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("make", [records.house, records.crowd, records.molecule])
def test_labels_are_readable_on_every_fill(browser, tmp_path, make, dark):
    browser.open(written(tmp_path, make()))
    if dark != (browser.run("return document.documentElement.dataset.theme") == "dark"):
        browser.one("#theme").click()
    colours = browser.run(
        """return [...document.querySelectorAll('.dot')].flatMap((dot) => {
            const text = dot.querySelector('text.inside, text.on-node');
            if (!text) return [];
            const over = dot.querySelector('.credit.filled');
            const read = (element) => getComputedStyle(element);
            const base = read(dot.querySelector('.base'));
            const card = read(document.body).getPropertyValue('--card-rgb');
            return [[read(text).fill, base.fill, Number(base.opacity), card,
                     over ? read(over).fill : null, over ? Number(read(over).opacity) : 0]];
        })"""
    )
    assert colours

    def parts(colour):
        return [float(part) for part in re.findall(r"[\d.]+", colour)[:3]]

    for ink, base, opacity, card, over, share in colours:
        under = [c + (b - c) * opacity for b, c in zip(parts(base), parts(card), strict=True)]
        if over is not None:
            under = [b + (o - b) * share for b, o in zip(under, parts(over), strict=True)]
        levels = sorted(
            palette.luminance("#" + "".join(f"{round(part):02X}" for part in colour)) + 0.05
            for colour in (parts(ink), under)
        )
        assert levels[1] / levels[0] >= 3.5


def test_partners_light_up_and_sets_are_outlined(browser, tmp_path) -> None:
    method, names = GraphSVX(players="nodes", order=2), [f"name {node}" for node in range(9)]
    data = random_graph(5, nodes=9, chance=0.3)
    explained = (
        explain(random_model("gin", seed), data, node=node, method=method, node_names=names)
        for seed in range(6) for node in range(9)
    )  # fmt: skip
    found = next(e for e in explained if e.flip().positions and e.sufficient(0.9).positions)
    sets = (found.flip(), found.sufficient(0.9))
    browser.open(written(tmp_path, replace(found, answers=sets)))
    chosen = {found.node_ids[at].item() for each in sets for at in each.positions}
    outlined = {int(dot.get_attribute("data-id")) for dot in browser.all(".dot.member")}
    assert outlined == chosen
    flipped = {int(dot.get_attribute("data-id")) for dot in browser.all(".dot.member.flip")}
    assert flipped == {found.node_ids[at].item() for at in sets[0].positions}
    strongest = found.together(1)[0]
    assert " and ".join(strongest.players) in browser.text("#together-table tr")
    for words in ("enough alone", "without these, another class"):
        assert words in browser.text("#legend")
    node, partner = (found.node_ids[at].item() for at in strongest.positions)
    dot = browser.all(f'.dot[data-id="{node}"]')[0]
    browser.driver.execute_script(
        "arguments[0].dispatchEvent(new PointerEvent('pointerenter'))", dot
    )
    lit = {int(each.get_attribute("data-id")) for each in browser.all(".dot.partner")}
    assert partner in lit
