"""Fingerprints of values, files and code, and versions of libraries: the parts of keys.

A rule's result depends on its command module and on all modules that it imports, at the top or inside a function.
Imports are therefore parsed and followed, so that no list of files has to be maintained. Comments, docstrings and
formatting have no effect.
"""

import ast
import atexit
import contextlib
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType

from vernacular.core.paths import user_cache


def fingerprint(value) -> str:
    """Return the SHA-256 (hex) of a JSON-like value; independent of dict order, but not of list order.

    >>> fingerprint({"a": 1, "b": [2]}) == fingerprint({"b": [2], "a": 1})
    True
    """
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # surrogatepass: a lone surrogate in a dataset is malformed text, not an error
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def file_fingerprint(path) -> str:
    """Return the SHA-256 (hex) of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@functools.cache  # many evaluations share a file, which does not change during planning
def content_hash(path: str) -> str | None:
    """Return the SHA-256 of a data file; None if it is missing, which its job reports."""
    try:
        return file_fingerprint(path)
    except OSError:
        return None


_ROOT = Path(__file__).resolve().parents[1]

# Modules that have no effect on results, with the reason. Their imports are not followed.
NO_EFFECT = {
    "vernacular.core.artifacts": "writing and verification of files; a file of another version is rejected",
    "vernacular.core.fingerprint": "computation of keys; a change gives other keys",
    "vernacular.core.metadata": "what is missing, and why; a file of another version is rejected",
    "vernacular.core.processes": "processes, threads, time limits, stop signals, and reports of terminated processes",
    "vernacular.core.contents": "decision when to hash a file again; the hash is part of the keys",
    "vernacular.core.library_errors": "classification of errors, and messages",
    "vernacular.core.paths": "location of the workflow's directory, and paths in messages",
    "vernacular.core.model_record": "fields of records; what affects results is in the keys by its value",
    "vernacular.core.fields": "reading and writing of specs, whose values are in the keys",
    "vernacular.config.specs": "fields of specs, whose values are in the keys",
    "vernacular.core.errors": "messages",
    "vernacular.core.logs": "logs, and progress lines",
    "vernacular.inference.server.client": "transport; the content of every response is checked",
}

# Libraries that have no effect on results, with the reason.
_TRANSPORT = "transport; downloads are identified by commit or hash"
NO_EFFECT_LIBRARIES = dict.fromkeys(("httpx", "httpx2", "huggingface_hub"), _TRANSPORT)

# Distributions whose name is not the import name; others are looked up among the files of all that are installed.
_DISTRIBUTIONS = {"llama_cpp": "llama_cpp_python", "ot": "pot", "ruamel": "ruamel.yaml", "yaml": "PyYAML"}


def code_fingerprint(*modules: str) -> str:
    """Return 16 hex digits that change with the code of `modules` or of any module in their import closure.

    >>> code_fingerprint("vernacular.statistics.paired") != code_fingerprint("vernacular.statistics.intervals")
    True
    """
    names = sorted(set().union(*map(closure, modules)))
    return fingerprint([[name, _parse(name)[0]] for name in names])[:16]


@functools.cache
def closure(module: str) -> frozenset[str]:
    """Return `module` and all modules of this package that it imports, directly or not, except those in NO_EFFECT."""
    modules, pending = set(), [module]
    while pending:
        name = pending.pop()
        if name not in modules and name not in NO_EFFECT:
            modules.add(name)
            pending += _parse(name)[1]
    return frozenset(modules)


def libraries(*modules: str) -> dict[str, str | None]:
    """Return the version of each library that the import closure of `modules` imports; None: not installed."""
    names = set().union(*(_parse(name)[2] for module in modules for name in closure(module)))
    return {name: version_of(name) for name in sorted(names - NO_EFFECT_LIBRARIES.keys())}


def import_modules(pattern: str) -> dict[str, ModuleType]:
    """Import the modules whose files match a pattern; return {text matched by its `*`: module}.

    `closure` parses these calls, so that the modules are part of the keys; the pattern must therefore be a literal.

    >>> sorted(import_modules("vernacular/statistics/p*red.py"))
    ['ai']
    """
    return {name: importlib.import_module(module) for name, module in _matching_modules(pattern).items()}


def _matching_modules(pattern: str) -> dict[str, str]:
    """Return {text matched by the `*` in `pattern`: module name}."""
    prefix, suffix = pattern.split("*")
    modules = {}
    for path in sorted(_ROOT.parent.glob(pattern)):
        relative = path.relative_to(_ROOT.parent).as_posix()
        name = relative.removeprefix(prefix).removesuffix(suffix)
        if not name.startswith("__"):
            modules[name] = relative.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return modules


@functools.cache
def version_of(name: str) -> str | None:
    """Return the version of a library by its import name or its distribution's, without importing it; None: missing."""
    try:
        return importlib.metadata.version(_DISTRIBUTIONS.get(name, name))
    except importlib.metadata.PackageNotFoundError:
        if importlib.util.find_spec(name) is None:
            return None
        distributions = _distributions().get(name)
        return importlib.metadata.version(distributions[0]) if distributions else None


@functools.cache
def _distributions() -> dict[str, list[str]]:
    return dict(importlib.metadata.packages_distributions())


_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@functools.cache
def _parse(module: str) -> tuple[str, frozenset[str], frozenset[str]]:
    """Return (hash of a module's code, modules of this package that it imports, libraries that it imports)."""
    source = _file(module).read_text("utf-8")
    key, known = hashlib.sha256(source.encode()).hexdigest(), _parsed_before()
    if key not in known:
        known[key] = _parse_source(module, source)
    code, names, patterns = known[key]
    names = set(names).union(*(_matching_modules(pattern).values() for pattern in patterns))
    parts = [name.split(".") for name in names]
    with_parents = {".".join(components[:n]) for components in parts for n in range(1, len(components) + 1)}
    package_modules = {name for name in with_parents if name.split(".")[0] == _ROOT.name and _file(name).exists()}
    library_names = {name.split(".")[0] for name in names} - sys.stdlib_module_names - {_ROOT.name}
    return code, frozenset(package_modules - {module}), frozenset(library_names)


@functools.cache
def _parsed_before() -> dict[str, list]:
    """Return {hash of a text: its `_parse_source`} of earlier processes; what is added is kept for later ones.

    To parse all modules takes a second, in each run and in each job on a cluster.
    """
    parser = hashlib.sha256(Path(__file__).read_bytes() + sys.version.encode()).hexdigest()[:16]
    path, known = user_cache() / "code" / f"{parser}.json", {}
    with contextlib.suppress(OSError, ValueError):
        known = json.loads(path.read_text("utf-8"))
    known = known if len(known) < 5_000 else {}  # modules are about 250, and all their versions are kept
    n_known = len(known)

    def keep() -> None:
        if len(known) > n_known:
            with contextlib.suppress(OSError):  # a home directory that is full or not writable: parsed again
                path.parent.mkdir(parents=True, exist_ok=True)
                temporary = path.with_suffix(f".{os.getpid()}")
                temporary.write_text(json.dumps(known), "utf-8")
                temporary.replace(path)

    atexit.register(keep)
    return known


def _parse_source(module: str, source: str) -> tuple[str, list[str], list[str]]:
    """Return (hash of the code, names that it imports, patterns of files that it imports)."""
    names, patterns = set(), set()

    def read(node, runs: bool = True) -> str:
        """Return a node as text, without positions and docstrings; `runs`: not only a type checker reads it."""
        if isinstance(node, list):
            return f"[{','.join([read(entry, runs) for entry in node])}]"
        if not isinstance(node, ast.AST):
            return repr(node)
        kind = type(node)
        if kind is ast.If and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            runs = False
        elif runs and kind is ast.Import:
            names.update(alias.name for alias in node.names)
        elif runs and kind is ast.ImportFrom:
            if node.level:
                raise ValueError(f"{module}: relative imports are not followed; write the full name.")
            names.update((node.module, *(f"{node.module}.{alias.name}" for alias in node.names)))
        elif runs and kind is ast.Call and getattr(node.func, "id", None) == import_modules.__name__:
            patterns.add(ast.literal_eval(node.args[0]))
        elif kind in _WITH_DOCSTRING and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        fields = [read(getattr(node, name, None), runs) for name in node._fields if name != "ctx"]  # ctx: by position
        return f"{kind.__name__}({','.join(fields)})"

    return hashlib.sha256(read(ast.parse(source)).encode()).hexdigest(), sorted(names), sorted(patterns)


def _file(module: str) -> Path:
    path = _ROOT.parent.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
