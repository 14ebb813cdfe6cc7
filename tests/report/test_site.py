"""The site of `make docs`: every page is in the navigation, every link has a target, and search works from a disk."""

import json
import re
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from support.optional import site_packages

ROOT = Path(__file__).parents[2]
HTML = ROOT / ".site" / "html"


class Page(HTMLParser):
    """IDs, links, loaded files and text of a page."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.loaded, self.paragraphs, self.in_paragraph = set(), [], [], [], False
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.ids |= {attributes.get("id"), attributes.get("name")}
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])
        elif tag in ("script", "link", "img", "iframe"):
            self.loaded += [attributes[key] for key in ("src", "href") if attributes.get(key)]
        if tag == "p":
            self.paragraphs.append("")
            self.in_paragraph = True

    def handle_endtag(self, tag):
        self.in_paragraph &= tag != "p"

    def handle_data(self, data):
        if self.in_paragraph:
            self.paragraphs[-1] += data


@pytest.fixture(scope="session")
def site():
    """Build the site; return {path: page}."""
    if site_packages(".docs", "envs/docs.txt") is None:
        pytest.skip("`make docs` installs the site generator, in the version of envs/docs.txt")
    run = subprocess.run([sys.executable, "docs/site.py"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return {path: Page(path) for path in HTML.rglob("*.html") if path.name != "404.html"}


def names_of(nav):
    return [name for entry in nav for value in entry.values() for name in (names_of(value) if isinstance(value, list) else [value])]  # fmt: skip


def test_navigation_has_every_page_once():
    nav = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]["nav"]
    pages = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md")]
    assert sorted(name for name in names_of(nav) if name.startswith("docs/")) == sorted(pages)


def test_links_have_targets_and_nothing_is_loaded_from_elsewhere(site):
    missing = []
    for path, page in site.items():
        for address in page.links + page.loaded:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                missing += [(path.name, address)] if address in page.loaded else []
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file() or (
                target in site and unquote(parts.fragment or "") not in site[target].ids | {""}
            ):
                missing.append((path.name, address))
    assert missing == []


def test_lists_and_code_are_rendered(site):
    """Python-Markdown needs an empty line before a list, and four spaces before what belongs to an item."""
    found = [
        (path.name, p) for path, page in site.items() for p in page.paragraphs if re.search(r"```|\n(-|\*|\d\.) ", p)
    ]
    assert found == []


LINKS_OF_SEARCH = """
const links = (root) => [...root.querySelectorAll("*")].flatMap((element) => [
  ...(root !== document && element.tagName === "A" ? [element.href] : []),
  ...(element.shadowRoot ? links(element.shadowRoot) : []),
]);
return links(document);
"""


def test_search_in_chromium_from_a_disk(site, chromium):
    from selenium.webdriver.support.ui import WebDriverWait

    wait = WebDriverWait(chromium, 20)
    chromium.get_log("browser"), chromium.get_log("performance")
    chromium.set_window_size(1280, 900)
    chromium.get((HTML / "docs" / "tasks.html").as_uri())
    wait.until(lambda driver: driver.find_element("css selector", ".md-search__button")).click()
    wait.until(lambda driver: driver.execute_script("return document.activeElement.shadowRoot !== null"))
    chromium.switch_to.active_element.send_keys("difsur")
    links = wait.until(lambda driver: driver.execute_script(LINKS_OF_SEARCH))
    assert any("docs/metrics.html" in address for address in links), links
    assert [entry["message"] for entry in chromium.get_log("browser")] == []
    messages = [json.loads(entry["message"])["message"] for entry in chromium.get_log("performance")]
    requested = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert [address for address in requested if not address.startswith(("file:", "data:", "about:", "blob:"))] == []
