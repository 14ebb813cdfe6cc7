"""A page drawn from a small run, and a headless Chromium to look at it with."""

import json
import os
import shutil
import time

import pytest
from support import report_run
from vernacular.report.page import build


@pytest.fixture(scope="session")
def page(tmp_path_factory):
    """The folder of a page of the run in `report_run`."""
    root = tmp_path_factory.mktemp("report")
    build(out=root / "page", **report_run.write_run(root))
    return root / "page"


class Browser:
    """What the tests do with a page, in words; every request and every line of the console is kept."""

    def __init__(self, driver, folder):
        self.driver, self.folder = driver, folder

    def open(self, address="", width=1280):
        self.driver.set_window_size(width, 900)
        self.driver.get("about:blank")  # so that another hash is another page
        self.driver.get(f"file://{self.folder}/index.html{address}")
        return self.settled()

    def settled(self):
        self.until("document.body && document.body.dataset.ready === 'yes'")
        return self

    def until(self, condition, *arguments, seconds=20):
        stop = time.monotonic() + seconds
        while not self.js(f"return Boolean({condition})", *arguments):
            assert time.monotonic() < stop, f"{condition} did not come true: {self.text('main')[:400]}"
            time.sleep(0.03)

    def js(self, code, *arguments):
        return self.driver.execute_script(code, *arguments)

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def one(self, selector):
        found = self.all(selector)
        assert found, f"nothing matches {selector}"
        return found[0]

    def text(self, selector):
        return self.one(selector).get_attribute("textContent")

    def texts(self, selector):
        return [element.get_attribute("textContent") for element in self.all(selector)]

    def click(self, element):
        """Click, and wait for the view that the click leads to."""
        self.js("arguments[0].scrollIntoView({block: 'center'})", element)
        before = self.js("return location.hash")
        element.click()
        self.until(f"location.hash !== {json.dumps(before)}")
        return self.settled()

    def choose(self, selector, value):
        self.js(
            "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('change'))",
            self.one(selector),
            value,
        )
        return self.settled()

    def console(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requested(self):
        """Addresses asked for since this was last called."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]


@pytest.fixture(scope="session")
def chromium():
    binary = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    helper = shutil.which("chromedriver")
    if not (binary and helper):
        pytest.skip("chromium and chromedriver are not installed (Debian: chromium chromium-driver)")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--force-prefers-reduced-motion"):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # Chromium's own sandbox does not start for root
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(helper))
    yield driver
    driver.quit()


@pytest.fixture
def browser(chromium, page):
    """A browser on the page; afterwards nothing may stand in the console, and nothing may have left the disk."""
    browser = Browser(chromium, page)
    browser.requested(), browser.console()
    yield browser
    assert [a for a in browser.requested() if not a.startswith(("file:", "data:", "about:"))] == []
    assert browser.console() == []
