"""One hash for everything: values, files, and the meaning of source code."""

import ast
import hashlib
import json
from pathlib import Path


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


def code_fingerprint(*paths) -> str:
    """sha256 (hex) of what Python files or folders of them *do*: comments, docstrings and layout do not count.

    Rules carry it as a parameter, so that editing the scorer reruns scoring and rewording a comment reruns nothing.
    """
    files = sorted({f for p in map(Path, paths) for f in ([p] if p.is_file() else p.rglob("*.py"))})
    return fingerprint([[f.name, ast.dump(_without_docstrings(ast.parse(f.read_text("utf-8"))))] for f in files])[:16]


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
