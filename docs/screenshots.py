"""Take the screenshots of the documentation from a report, in headless Chromium.

    python docs/screenshots.py results/report
    python docs/screenshots.py results/report --all DIRECTORY    # to look at: more views, both themes, three widths

Requires selenium, chromium and chromedriver. The images in docs/images/ show the report of the quickstart.
"""

import argparse
import os
import shutil
import time
from pathlib import Path

from selenium import webdriver

IMAGES = Path(__file__).resolve().parent / "images"
WIDTH = 1280
VIEWS = {  # image -> address of the view, height
    "overview": ("#/overview", 980),
    "report": ("#/leaderboard?language=gl&down=evaluations", 880),
    "comparison": ("#/comparison", 900),
    "task": ("#/task/treebank_agreement.gl.target_word.0shot", 1100),
}
MORE = {
    "by_task": ("#/leaderboard?down=models", 900),
    "by_language": ("#/leaderboard?down=models&by=language", 900),
    "languages": ("#/leaderboard?by=language-means", 900),
    "tasks": ("#/leaderboard?by=task-means", 900),
    "tokenizers": ("#/tokenizers", 900),
    "provenance": ("#/provenance", 900),
    "options": ("#/task/openbookqa.gl.options.0shot", 900),
    "generation": ("#/task/openbookqa.gl.generation.0shot", 900),
    "items": ("#/items/cola.gl.acceptability.0shot/smollm2-135m", 900),
    "item": ("#/item/openbookqa.gl.options.0shot/smollm2-135m/gl-t01", 900),
    "pair": ("#/item/global_piqa.gl.minimal_pair.0shot/smollm2-135m/sample_glg_latn_00", 900),
}
MOST_HIGH = 3000  # pixels of a whole page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("report", type=Path, help="directory of the report")
    parser.add_argument(
        "--all", type=Path, metavar="DIRECTORY", help="write more views, in both themes at three widths"
    )
    arguments = parser.parse_args()
    address = (arguments.report.resolve() / "index.html").as_uri()
    driver = start()
    try:
        if arguments.all is None:
            for name, (view, height) in VIEWS.items():
                take(driver, f"{address}{view}", IMAGES / f"{name}.png", WIDTH, height)
            return
        arguments.all.mkdir(parents=True, exist_ok=True)
        for theme in ("light", "dark"):
            features = [{"name": "prefers-color-scheme", "value": theme}]
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
            for width in (WIDTH, 768, 375):
                for name, (view, _) in (VIEWS | MORE).items():
                    path = arguments.all / f"{name}-{width}-{theme}.png"
                    take(driver, f"{address}{view}", path, width, None)
    finally:
        driver.quit()


def take(driver: webdriver.Chrome, address: str, path: Path, width: int, height: int | None) -> None:
    """Write an image of a view; height: None for the whole page, and a line if it is wider than the window."""
    driver.get("about:blank")  # so that a changed hash loads a new page
    size = {"width": width, "height": height or 900, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.get(address)
    deadline = time.monotonic() + 60
    while driver.execute_script("return document.body?.dataset.ready") != "yes":
        if time.monotonic() > deadline:
            raise SystemExit(f"{address}: not ready after 60 s")
        time.sleep(0.05)
    if height is None:
        wide, high = driver.execute_script(
            "const page = document.documentElement; return [page.scrollWidth, page.scrollHeight]"
        )
        if wide > width:
            print(f"{path.name}: {wide} pixels wide")
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size | {"height": min(high, MOST_HIGH)})
        time.sleep(0.3)
    driver.save_screenshot(str(path))


def start() -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome")
    for argument in ("--headless=new", "--disable-gpu", "--hide-scrollbars", "--force-prefers-reduced-motion"):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # Chromium's own sandbox does not start for root
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


if __name__ == "__main__":
    main()
