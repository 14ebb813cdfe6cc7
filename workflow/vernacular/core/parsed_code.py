"""Code of a module without comments, docstrings and formatting, and what it imports.

Parsing the package takes longer than the rest of planning, so results are kept beside the compiled modules, by the hash
of a file's bytes: a result depends on nothing else, except for the code of this module and the version of Python.
"""

import ast
import atexit
import contextlib
import functools
import hashlib
import importlib.util
import json
import sys
from pathlib import Path

from vernacular.core.errors import WriteError
from vernacular.core.replacing import replacing

_IMPORT_MODULES = "import_modules"  # a function whose argument is a pattern of imported files, see `fingerprint`

Parsed = tuple[str, list[str], list[str]]


def parsed(module: str, file: Path) -> Parsed:
    """Return (hash of the code, sorted names that it imports, patterns of files that it imports)."""
    content = file.read_bytes()
    key = hashlib.sha256(content).hexdigest()
    known = _known()
    if known.get(module, [None])[0] != key:
        known[module] = [key, *parse(module, content.decode("utf-8"))]
        _save_at_exit()
    _, code, names, patterns = known[module]
    return code, names, patterns


def parse(module: str, source: str) -> Parsed:
    """Return what `parsed` returns, from a module's source."""
    tree = ast.parse(source)
    names, patterns = set(), set()
    for node in _nodes(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ValueError(f"{module}: relative imports are not followed; write the full name.")
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == _IMPORT_MODULES:
            patterns.add(ast.literal_eval(node.args[0]))
    code = json.dumps(ast.dump(_without_docstrings(tree)), ensure_ascii=False)
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest(), sorted(names), sorted(patterns)


def _nodes(tree: ast.AST):
    """Yield all nodes, except those that only a type checker reads."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            continue
        yield node
        yield from _nodes(node)


def _without_docstrings(tree: ast.AST) -> ast.AST:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                node.body = node.body[1:] or [ast.Pass()]
    return tree


@functools.cache
def _known() -> dict[str, list]:
    """Return the results of all modules by name, each with the hash of its file."""
    try:
        content = json.loads(_path().read_text("utf-8"))
    except (OSError, ValueError):  # none yet, or damaged: all modules are parsed
        return {}
    is_current = isinstance(content, dict) and content.get("version") == _version()
    return content["modules"] if is_current else {}


@functools.cache
def _save_at_exit() -> None:
    if not sys.dont_write_bytecode:
        atexit.register(_save)


def _save() -> None:
    """Write the results; where that is not possible, as in an installation of another user, do nothing."""
    with contextlib.suppress(OSError, WriteError), replacing(_path()) as temporary:
        temporary.write_text(json.dumps({"version": _version(), "modules": _known()}), "utf-8")


def _path() -> Path:
    return Path(importlib.util.cache_from_source(__file__)).with_suffix(".json")


def _version() -> str:
    return f"{sys.version} {hashlib.sha256(Path(__file__).read_bytes()).hexdigest()}"
