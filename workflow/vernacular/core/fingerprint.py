"""Fingerprints of values, files and code, and the versions of libraries: the parts that keys consist of.

A rule's result depends on its command module and on all that this imports, at the top or inside a function. So the
imports are read and followed, and no list of files has to be kept. Comments, docstrings and layout do not count.
"""

import ast
import functools
import hashlib
import importlib
import importlib.metadata
import json
import sys
from pathlib import Path
from types import ModuleType


def fingerprint(value) -> str:
    """sha256 (hex) of a JSON-like value; dict order does not matter, list order does.

    >>> fingerprint({"a": 1, "b": [2]}) == fingerprint({"b": [2], "a": 1})
    True
    """
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # surrogatepass: a lone surrogate in a data set is odd text, not a reason to stop
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def file_fingerprint(path) -> str:
    """sha256 (hex) of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_ROOT = Path(__file__).resolve().parents[1]

# Modules that decide no result, and why. They are not followed either.
NO_EFFECT = {
    "vernacular.core.artifacts": "how files are written and checked; a file that another version wrote is refused",
    "vernacular.core.fingerprint": "computes keys; keys that come out otherwise are other keys",
    "vernacular.core.contents": "decides when a file is hashed again; the hash enters the keys",
    "vernacular.core.digests": "how damage of files is noticed",
    "vernacular.core.failures": "which errors are whose fault, and messages",
    "vernacular.core.paths": "where the workflow's directory is, and paths in messages",
    "vernacular.core.records": "how records are written and checked; a damaged one is refused",
    "vernacular.core.processes": "pools of processes, time limits, when a job stops, and who reports a process's death",
    "vernacular.core.errors": "messages",
}

# Libraries that decide no result, and why.
NO_EFFECT_LIBRARIES = {
    "httpx2": "transport; what it fetches is identified by its commit or its hash",
    "huggingface_hub": "transport; what it fetches is identified by its commit or its hash",
    "tqdm": "progress bars",
}


def code_fingerprint(*modules: str) -> str:
    """Return 16 hex digits that change with what `modules`, or any module in their import closure, do.

    >>> code_fingerprint("vernacular.statistics.paired") != code_fingerprint("vernacular.statistics.intervals")
    True
    """
    names = sorted(set().union(*map(closure, modules)))
    return fingerprint([[name, _parsed(name)[0]] for name in names])[:16]


@functools.cache
def closure(module: str) -> frozenset[str]:
    """Names of `module` and of all modules of this package that it imports, directly or not, but those of NO_EFFECT."""
    found, ahead = set(), [module]
    while ahead:
        name = ahead.pop()
        if name not in found and name not in NO_EFFECT:
            found.add(name)
            ahead += _parsed(name)[1]
    return frozenset(found)


def libraries(*modules: str) -> dict[str, str | None]:
    """Return the version of each library that the import closure of `modules` imports; None: not installed."""
    names = set().union(*(_parsed(name)[2] for module in modules for name in closure(module)))
    return {name: version_of(name) for name in sorted(names - NO_EFFECT_LIBRARIES.keys())}


def import_each(pattern: str) -> dict[str, ModuleType]:
    """Import the modules whose files match a pattern; by the name that stands for its `*`.

    What a package finds by itself is part of the keys like what it names: `closure` reads the patterns of these calls,
    which must be literal.

    >>> sorted(import_each("vernacular/statistics/p*red.py"))
    ['ai']
    """
    return {name: importlib.import_module(module) for name, module in _matching(pattern).items()}


def _matching(pattern: str) -> dict[str, str]:
    """The names of modules by what stands for the `*` in `pattern`."""
    before, after = pattern.split("*")
    found = {}
    for path in sorted(_ROOT.parent.glob(pattern)):
        relative = path.relative_to(_ROOT.parent).as_posix()
        name = relative.removeprefix(before).removesuffix(after)
        if not name.startswith("__"):
            found[name] = relative.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return found


@functools.cache
def version_of(name: str) -> str | None:
    """Return the version of a library by its import name or its distribution's name; None where it is not installed.

    Nothing is imported for it: torch alone would take seconds.
    """
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        distributions = _distributions().get(name)  # "ot" is the import name of POT
        return importlib.metadata.version(distributions[0]) if distributions else None


@functools.cache
def _distributions() -> dict[str, list[str]]:
    return dict(importlib.metadata.packages_distributions())


@functools.cache
def _parsed(module: str) -> tuple[str, frozenset[str], frozenset[str]]:
    """(a hash of what the module does, the modules of this package that it imports, the libraries)."""
    tree = ast.parse(_file(module).read_text("utf-8"))
    names = _imported(tree, module)
    parts = [name.split(".") for name in names]
    with_parents = {".".join(each[:n]) for each in parts for n in range(1, len(each) + 1)}
    ours = {name for name in with_parents if name.split(".")[0] == _ROOT.name and _file(name).exists()}
    others = {name.split(".")[0] for name in names} - sys.stdlib_module_names - {_ROOT.name}
    return fingerprint(ast.dump(_without_docstrings(tree))), frozenset(ours - {module}), frozenset(others)


def _imported(tree: ast.Module, module: str) -> set[str]:
    names = set()
    for node in _nodes(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ValueError(f"{module}: relative imports are not followed; write the full name.")
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == import_each.__name__:
            names |= set(_matching(ast.literal_eval(node.args[0])).values())
    return names


def _nodes(tree: ast.AST):
    """All nodes but those that only a type checker reads."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            continue
        yield node
        yield from _nodes(node)


def _file(module: str) -> Path:
    path = _ROOT.parent.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


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
