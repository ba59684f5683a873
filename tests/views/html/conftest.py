"""One browser for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.views.html import browser as chromium


@pytest.fixture(scope="session")
def shared_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    reason = chromium.missing()
    if reason is not None:
        pytest.skip(reason)
    browser = chromium.Browser(tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.driver.quit()


@pytest.fixture
def browser(shared_browser: chromium.Browser) -> Iterator[chromium.Browser]:
    """The browser at its usual size, with nothing remembered from the test before."""
    shared_browser.driver.set_window_size(1280, 1000)
    yield shared_browser
    shared_browser.driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"media": "", "features": []}
    )
    shared_browser.run("try { localStorage.clear() } catch {}")
