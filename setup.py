"""Adds to a wheel what the package needs from the checkout; all other settings are in pyproject.toml.

The wheel has the same tree as the checkout, in `vernacular/checkout/`: rules, schemas, tasks, prompts, samples and
report assets in `workflow/`, and the files that these refer to.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent

# In the place of the package: the same package. The rules run `workflow/stage.py`, which imports the package beside it,
# also in a conda environment without it.
PACKAGE = """\
from pathlib import Path

__path__ = [str(Path(__file__).resolve().parents[3])]
exec(Path(__path__[0], "__init__.py").read_text("utf-8"))
"""


class BuildWithWorkflow(build_py):
    """Copies the workflow's files into a wheel; an editable installation uses those of the checkout."""

    def run(self):
        super().run()
        if self.editable_mode:
            return
        checkout = Path(self.build_lib, "vernacular", "checkout")
        shutil.rmtree(checkout, ignore_errors=True)  # of an earlier build
        for directory in ("workflow", "envs", "profiles", "config"):
            ignored = shutil.ignore_patterns(
                "__pycache__", "*.egg-info", *(["vernacular"] if directory == "workflow" else [])
            )
            shutil.copytree(ROOT / directory, checkout / directory, ignore=ignored)
        package = checkout / "workflow" / "vernacular"
        package.mkdir()
        (package / "__init__.py").write_text(PACKAGE, "utf-8")


setup(cmdclass={"build_py": BuildWithWorkflow})
