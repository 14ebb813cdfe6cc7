"""Take the screenshots of the documentation from a report, in headless Chromium.

    python docs/screenshots.py results/report

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
    "report": ("#/leaderboard?language=gl&down=evaluations", 860),
    "comparison": ("#/comparison", 900),
    "task": ("#/task/treebank_agreement.gl.target_word.0shot", 1100),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("report", type=Path, help="directory of the report")
    report = parser.parse_args().report.resolve()
    driver = start()
    try:
        for name, (address, height) in VIEWS.items():
            driver.get("about:blank")  # so that a changed hash loads a new page
            size = {"width": WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False}
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            driver.get(f"{(report / 'index.html').as_uri()}{address}")
            deadline = time.monotonic() + 60
            while driver.execute_script("return document.body?.dataset.ready") != "yes":
                if time.monotonic() > deadline:
                    raise SystemExit(f"{address}: not ready after 60 s")
                time.sleep(0.05)
            driver.save_screenshot(str(IMAGES / f"{name}.png"))
    finally:
        driver.quit()


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
