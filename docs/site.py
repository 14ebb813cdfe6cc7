"""Build the site in .site/html from README.md and the pages in docs/: `make docs`; with a report: `make gallery`.

Pages keep their places, so that one link works in the repository and in the site. A file that a page links is copied;
of a link to a directory the text remains. Nothing is loaded from elsewhere: the one script that the generator would
load from the web is copied, too.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / ".site"
PAGES = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "bench/README.md", "workflow/samples/README.md"]
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:)([^)#\s]+)(#[^)\s]*)?\)")
WORKER = "https://unpkg.com/iframe-worker/shim"


def copy_page(path: Path) -> None:
    """Copy a page and the files that it links."""

    def copy_target(link: re.Match) -> str:
        target = Path(os.path.normpath(path.parent / link[3]))
        if target.is_dir():
            return link[2]
        if target.suffix != ".md" and target.exists():
            copy(target, target.read_bytes())
        return link[0]

    copy(path, LINK.sub(copy_target, path.read_text("utf-8")).encode())


def copy(path: Path, content: bytes) -> None:
    copied = SITE / "source" / path.relative_to(ROOT)
    copied.parent.mkdir(parents=True, exist_ok=True)
    copied.write_bytes(content)


GALLERY = """# Gallery

[The report of the quickstart](gallery/index.html): two small models on the samples that ship with Vernacular, as a run
writes it. The values show what a report contains, and measure nothing.

<iframe src="gallery/index.html" title="Report" style="width: 100%; height: 80vh; border: 1px solid"></iframe>
"""


def add_gallery(report: Path) -> None:
    """Add a page with a report, which the first page links."""
    shutil.copytree(report, SITE / "source/docs/gallery", ignore=shutil.ignore_patterns(".*"))
    copy(ROOT / "docs/gallery.md", GALLERY.encode())
    first = SITE / "source/README.md"
    first.write_text(first.read_text("utf-8") + "\n[Gallery](docs/gallery.md): a report\n", "utf-8")


def main(*reports: str) -> None:
    shutil.rmtree(SITE, ignore_errors=True)
    copy(ROOT / "docs/site.css", (ROOT / "docs/site.css").read_bytes())
    for path in [*map(ROOT.joinpath, PAGES), *(ROOT / "docs").glob("*.md")]:
        copy_page(path)
    for report in reports:
        add_gallery(Path(report))
    subprocess.run([ROOT / ".docs/bin/zensical", "build", "--strict", "--clean"], cwd=ROOT, check=True)
    html = SITE / "html"
    shutil.copy(ROOT / ".docs/js/node_modules/iframe-worker/shim/index.js", html / "assets/worker.js")
    for page in html.rglob("*.html"):
        address = "../" * len(page.parent.relative_to(html).parts) + "assets/worker.js"
        page.write_text(page.read_text("utf-8").replace(WORKER, address), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
