"""Fixtures: a report of a small run, and a headless Chromium that opens it."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest
from support import report_audit, report_curves, report_forms, report_labels, report_prompts, report_run
from support.once import once
from support.optional import browser_problem
from vernacular.report.page import build


def built(tmp_path_factory, run) -> Path:
    """Build the report of a module's run once for all processes; return the directory that contains `page`."""

    def create(root: Path) -> None:
        root.mkdir()
        build(out=root / "page", **run.write_run(root))

    return once(tmp_path_factory, run.__name__, create)


@pytest.fixture(scope="session")
def report_dir(tmp_path_factory):
    """Build the report of the run in `report_run`; return its directory."""
    return built(tmp_path_factory, report_run) / "page"


class Browser:
    """Driver of a report in Chromium; records all requests and console messages."""

    def __init__(self, driver, directory):
        self.driver, self.directory = driver, directory

    def open(self, address="", width=1280):
        self.driver.set_window_size(width, 900)
        self.driver.get("about:blank")  # so that a changed hash loads a new page
        self.driver.get(f"file://{self.directory}/index.html{address}")
        return self.settled()

    def settled(self):
        self.until("document.body && document.body.dataset.ready === 'yes'")
        return self

    def until(self, condition, *arguments, seconds=20):
        deadline = time.monotonic() + seconds
        while not self.js(f"return Boolean({condition})", *arguments):
            assert time.monotonic() < deadline, f"{condition} is not true: {self.text('main')[:400]}"
            time.sleep(0.03)

    def js(self, code, *arguments):
        return self.driver.execute_script(code, *arguments)

    def find_all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def find(self, selector):
        elements = self.find_all(selector)
        assert elements, f"nothing matches {selector}"
        return elements[0]

    def text(self, selector):
        return self.find(selector).get_attribute("textContent")

    def texts(self, selector):
        return [element.get_attribute("textContent") for element in self.find_all(selector)]

    def click(self, element):
        """Click and wait for the view that the click opens."""
        self.js("arguments[0].scrollIntoView({block: 'center'})", element)
        previous_hash = self.js("return location.hash")
        element.click()
        self.until(f"location.hash !== {json.dumps(previous_hash)}")
        return self.settled()

    def choose(self, selector, value):
        self.js(
            "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('change'))",
            self.find(selector),
            value,
        )
        return self.settled()

    def console(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requested(self):
        """Return the addresses requested since the last call."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]


@pytest.fixture(scope="session")
def chromium():
    binary = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    chromedriver = shutil.which("chromedriver")
    if problem := browser_problem(binary, chromedriver):
        pytest.skip(problem)
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--force-prefers-reduced-motion"):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # Chromium's own sandbox does not start for root
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(chromedriver))
    yield driver
    driver.quit()


@pytest.fixture
def open_report(chromium):
    """Return a function that opens any report in a browser: from its directory."""
    return lambda directory: Browser(chromium, directory)


@pytest.fixture(scope="session")
def forms_dir(tmp_path_factory):
    """Build the report of the run in `report_forms`; return its directory."""
    return built(tmp_path_factory, report_forms) / "page"


@pytest.fixture(scope="session")
def prompts_dir(tmp_path_factory):
    """Build the report of the run in `report_prompts`; return its directory."""
    return built(tmp_path_factory, report_prompts) / "page"


@pytest.fixture
def browser(chromium, report_dir):
    """Open the report in a browser; fail on console messages and on network requests afterwards."""
    yield from _checked(chromium, report_dir)


@pytest.fixture
def page(chromium, forms_dir):
    """Open the report of two models in a browser, as `browser` does."""
    yield from _checked(chromium, forms_dir)


@pytest.fixture
def prompts_page(chromium, prompts_dir):
    """Open the report of an evaluation with several prompts in a browser, as `browser` does."""
    yield from _checked(chromium, prompts_dir)


@pytest.fixture(scope="session")
def curves_dir(tmp_path_factory):
    """Build the report of the run in `report_curves`; return the directory that contains `page` and `results`."""
    return built(tmp_path_factory, report_curves)


@pytest.fixture
def curves_page(chromium, curves_dir):
    """Open the report of two series in a browser, as `browser` does."""
    yield from _checked(chromium, curves_dir / "page")


@pytest.fixture(scope="session")
def audit_dir(tmp_path_factory):
    """Build the report of the run in `report_audit`; return its directory."""
    return built(tmp_path_factory, report_audit) / "page"


@pytest.fixture
def audit_page(chromium, audit_dir):
    """Open the report of a run with items to read in a browser, as `browser` does."""
    yield from _checked(chromium, audit_dir)


@pytest.fixture
def run_report(chromium):
    """Return a function that opens the report in a directory, as `browser` does."""
    opened = []
    yield lambda directory: opened.append(_checked(chromium, directory)) or next(opened[-1])
    for checks in opened:
        next(checks, None)


@pytest.fixture
def labels_page(chromium, tmp_path):
    """Open the report of a run with values by labels of speakers in a browser, as `browser` does."""
    build(out=tmp_path / "page", **report_labels.write_run(tmp_path))
    yield from _checked(chromium, tmp_path / "page")


def _checked(chromium, directory):
    browser = Browser(chromium, directory)
    browser.requested(), browser.console()
    yield browser
    assert [address for address in browser.requested() if not address.startswith(("file:", "data:", "about:"))] == []
    assert (found := browser.console()) == [], found[0][:900]
