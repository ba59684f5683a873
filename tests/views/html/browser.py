"""A headless Chromium that remembers every request and every complaint."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

# Without these the browser itself calls home, which is not what is tested.
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--disable-default-apps", "--window-size=1280,1000",
)  # fmt: skip


def missing() -> str | None:
    """Why there is no browser to test with, or None."""
    for name in ("chromium", "chromedriver"):
        if shutil.which(name) is None:
            return f"no {name} on this machine: apt-get install chromium chromium-driver"
    return None


class Browser:
    """One browser window with the few moves that the tests need."""

    def __init__(self, folder: Path) -> None:
        options = Options()
        options.binary_location = str(shutil.which("chromium"))
        for flag in (*QUIET, f"--user-data-dir={folder / 'profile'}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        service = Service(str(shutil.which("chromedriver")))
        self.driver = webdriver.Chrome(options=options, service=service)

    def open(self, page: Path) -> None:
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get(page.as_uri())

    def complaints(self) -> list[str]:
        messages = [entry["message"] for entry in self.driver.get_log("browser")]
        return [message for message in messages if not message.startswith("chrome://")]

    def requests(self) -> list[str]:
        events = [json.loads(e["message"])["message"] for e in self.driver.get_log("performance")]
        requests = [e["params"] for e in events if e["method"] == "Network.requestWillBeSent"]
        # The browser's own start page, still loading, asks for things of its own.
        return [
            request["request"]["url"]
            for request in requests
            if not request["documentURL"].startswith("chrome://")
        ]

    def one(self, selector: str):
        return self.driver.find_element("css selector", selector)

    def all(self, selector: str):
        return self.driver.find_elements("css selector", selector)

    def text(self, selector: str) -> str:
        return self.one(selector).text

    def run(self, script: str, *arguments):
        return self.driver.execute_script(script, *arguments)
