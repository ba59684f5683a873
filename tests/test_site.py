"""The documentation site: builds without a warning, links hold, works in a browser, offline."""

from __future__ import annotations

import shutil
import sys
import warnings
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urlsplit

import pytest

from tests.runs.helpers import in_a_process
from tests.views.html import browser as chromium

build_main = pytest.importorskip(
    "sphinx.cmd.build", reason='pip install "graphsvx[docs]"'
).build_main
# The site takes half a minute, ten times that on a busy machine.
pytestmark = pytest.mark.timeout(900)
DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, with tutorials that are not run, built from a copy of docs/.

    sphinx-gallery writes into its source folder, where two builds would disturb each other.
    """
    folder = tmp_path_factory.mktemp("site")
    source = folder / "project" / "docs"
    shutil.copytree(DOCS, source, ignore=shutil.ignore_patterns("auto_tutorials"))
    for linked in DOCS.parent.glob("[!.]*"):  # pages link to source files
        if linked != DOCS:
            (source.parent / linked.name).symlink_to(linked)
    words = [
        "--fail-on-warning", "--keep-going", "--quiet",
        # Which only make it slower:
        "-D", "plot_gallery=0", "-D", "toc_object_entries=0", "-D", "smartquotes=0",
        "-d", str(folder / "doctrees"), str(source), str(folder / "html"),
    ]  # fmt: skip

    def build() -> None:
        warnings.simplefilter("default")
        with (folder / "err").open("w") as sys.stderr:
            sys.exit(build_main(words))

    child = in_a_process(build)
    child.join()
    assert child.exitcode == 0, (folder / "err").read_text()
    return folder / "html"


class Page(HTMLParser):
    """Links, things that are loaded, and ids of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.ids: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        self.ids.update(values[name] for name in ("id", "name") if name in values)
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in ("script", "img", "link", "iframe") and values.get("rel") != "canonical":
            self.loaded += [values[name] for name in ("src", "href") if name in values]


def test_every_internal_link_leads_somewhere_and_nothing_is_loaded_from_elsewhere(
    site: Path,
) -> None:
    pages = {path: Page(path) for path in site.rglob("*.html")}
    for path, page in pages.items():
        for url in page.loaded:
            assert not urlsplit(url).netloc, f"{path.name} loads {url}"
        for link in [*page.links, *page.loaded]:
            target = urlsplit(link)
            if target.scheme or target.netloc or not (target.path or target.fragment):
                continue
            place = (path.parent / unquote(target.path)).resolve() if target.path else path
            assert place.exists(), f"{path.relative_to(site)} links to {link}"
            if target.fragment and place in pages and target.fragment != "":
                known = pages[place].ids
                assert unquote(target.fragment) in known, f"{path.relative_to(site)}: {link}"


@pytest.fixture
def browser(site: Path, tmp_path: Path) -> Iterator[chromium.Browser]:
    reason = chromium.missing()
    if reason is not None:
        pytest.skip(reason)
    window = chromium.Browser(tmp_path)
    yield window
    window.driver.quit()


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    """The site served on loopback, as a host would do it."""
    handler = partial(QuietHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class QuietHandler(SimpleHTTPRequestHandler):
    """Prints nothing."""

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def test_search_mathematics_and_dark_mode_work_without_a_network(
    address: str, browser: chromium.Browser
) -> None:
    browser.driver.implicitly_wait(10)
    browser.driver.get(f"{address}/understand/values.html")
    assert browser.all("mjx-container svg"), "the formula is drawn"
    before = browser.run("return document.body.dataset.theme")
    browser.run("document.querySelector('.theme-toggle').click()")
    assert browser.run("return document.body.dataset.theme") != before
    browser.driver.get(f"{address}/search.html?q=certificate")
    assert browser.all("#search-results li a"), "pages that speak of it"
    log = browser.driver.get_log("browser")
    assert [entry["message"] for entry in log if entry["level"] == "SEVERE"] == []
    outside = [url for url in browser.requests() if not url.startswith((address, "data:"))]
    assert outside == []
