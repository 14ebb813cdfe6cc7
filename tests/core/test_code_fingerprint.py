"""A key's code part is what a command imports: every module decides some result, or is named with a reason."""

from pathlib import Path

import pytest
import vernacular
from vernacular.core import fingerprint
from vernacular.core.fingerprint import NO_EFFECT, closure, code_fingerprint
from vernacular.inference.job.work import ENTRIES

ROOT = Path(vernacular.__file__).parent
MODULES = {
    ".".join(("vernacular", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    for path in ROOT.rglob("*.py")
}
COMMANDS = {name for name in MODULES if name.startswith("vernacular.commands.")}
# what runs before any rule, or after all: its outcome enters the keys as values, or nothing depends on it
AROUND = {
    "vernacular.__main__": "starts a command",
    "vernacular.cli": "parses arguments, which are in the keys",
    "vernacular.commands.check": "prints",
    "vernacular.commands.status": "prints, and checks that nothing is missing",
    "vernacular.commands.treebank": "is run by hand",
    "vernacular.config": "is empty",
    "vernacular.config.dependencies": "computes the values in the keys",
    "vernacular.config.load": "its result is in the keys",
    "vernacular.config.evaluations": "its result is in the keys",
    "vernacular.config.resources": "memory and time of a job",
    "vernacular.config.unavailable": "deletes files when a run has ended",
    "vernacular.data.lm_eval.settings": "its result is in the keys",
    "vernacular.data.lm_eval.task_file": "its result is in the keys",
    "vernacular.data.tasks": "its result is in the keys",
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of this shape that a test may edit: a function that writes one module of it."""
    root = tmp_path / "vernacular"

    def write(module: str, text: str) -> None:
        path = tmp_path.joinpath(*module.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        for folder in (path.parent, *path.parent.parents):
            if folder == tmp_path:
                break
            (folder / "__init__.py").touch()
        path.write_text(text)
        closure.cache_clear()
        fingerprint._parsed.cache_clear()

    monkeypatch.setattr(fingerprint, "_ROOT", root)
    yield write
    closure.cache_clear()
    fingerprint._parsed.cache_clear()


def test_every_module_is_in_the_key_of_a_rule_or_named_with_a_reason():
    in_keys = set().union(*(closure(name) for name in COMMANDS - AROUND.keys()))
    assert not MODULES - in_keys - AROUND.keys() - NO_EFFECT.keys()
    assert not in_keys & (AROUND.keys() | NO_EFFECT.keys()), "named as without effect, and in a key"
    assert (AROUND.keys() | NO_EFFECT.keys()) <= MODULES, "named, and not there"


def test_metrics_are_in_no_key_of_the_stages_before():
    for stage in ("items", "requests", "fetch", "infer", "collect"):
        assert not {name for name in closure(f"vernacular.commands.{stage}") if ".metrics" in name}
    for entries in ENTRIES.values():
        kept_apart = ("metrics", "store", "store_files", "run", "questions", "shards", "answers", "commands", "data")
        assert not {name for entry in entries for name in closure(entry) if name.split(".")[-1] in kept_apart}


def test_the_keys_of_the_store_cover_all_code_that_computes_their_outputs():
    packages = {"scores": ("scoring.", "model."), "generations": ("generation.", "model.")}
    for kind, entries in ENTRIES.items():
        covered = set().union(*map(closure, entries))
        names = tuple(f"vernacular.inference.{package}" for package in packages[kind])
        assert {name for name in MODULES if name.startswith(names)} <= covered
        for entry in entries:
            others = set().union(*(closure(other) for other in entries if other != entry))
            assert closure(entry) - others, f"{entry} is covered by the other entries"


def test_a_tools_prompts_are_in_the_key_of_requests_and_its_parser_and_metric_in_that_of_similarity():
    tool = "vernacular.interop.simil_eval"
    expected = {
        "requests": {tool, f"{tool}.prompts"},
        "similarity": {tool, f"{tool}.answers", f"{tool}.moverscore"},
        "metrics": {tool, f"{tool}.answers"},
        "infer": set(),
        "collect": set(),
    }
    for stage, modules in expected.items():
        in_key = {name for name in closure(f"vernacular.commands.{stage}") if ".interop." in name}
        assert in_key == modules, stage
    assert not any(".interop" in name for entries in ENTRIES.values() for entry in entries for name in closure(entry))


def test_every_command_module_is_in_its_own_key():
    for name in COMMANDS:
        assert name in closure(name)


def test_a_change_of_what_an_imported_module_does_is_a_change_of_the_key(package):
    package("vernacular.commands.a", "from vernacular.stage import deep\n\n\ndef a():\n    return deep.x\n")
    package("vernacular.stage.deep", "def x():\n    from vernacular.stage.lazy import y\n\n    return y\n")
    package("vernacular.stage.lazy", "y = 1\n")
    package("vernacular.stage.other", "z = 1\n")
    before = code_fingerprint("vernacular.commands.a")
    package("vernacular.stage.other", "z = 2\n")
    assert code_fingerprint("vernacular.commands.a") == before
    package("vernacular.stage.lazy", '"""Says more."""\n# why\ny = (1)\n')
    assert code_fingerprint("vernacular.commands.a") == before
    package("vernacular.stage.lazy", "y = 2\n")
    assert code_fingerprint("vernacular.commands.a") != before


@pytest.mark.parametrize(
    "line",
    ["import vernacular.b", "from vernacular import b", "from vernacular.b import x", "import vernacular.b as q"],
)
def test_every_way_to_import_is_followed(package, line):
    package("vernacular.b", "x = 1\n")
    package("vernacular.a", f"def f():\n    {line}\n")
    assert "vernacular.b" in closure("vernacular.a")


def test_the_init_of_a_package_counts(package):
    package("vernacular.p.b", "x = 1\n")
    package("vernacular.a", "import vernacular.p.b\n")
    assert {"vernacular", "vernacular.p", "vernacular.p.b"} <= closure("vernacular.a")


def test_what_only_a_type_checker_imports_does_not_count(package):
    package("vernacular.b", "x = 1\n")
    package("vernacular.a", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from vernacular.b import x\n")
    assert "vernacular.b" not in closure("vernacular.a")


def test_a_relative_import_is_an_error_and_not_overlooked(package):
    package("vernacular.a", "from . import b\n")
    with pytest.raises(ValueError, match="relative imports"):
        closure("vernacular.a")


def test_comments_docstrings_and_layout_are_no_change_of_code(package):
    package("vernacular.a", "def f(x):\n    return x + 1\n")
    before = code_fingerprint("vernacular.a")
    package("vernacular.a", '"""Says more."""\n# why\ndef f(x):\n    """Adds one."""\n\n    return (x + 1)  # one\n')
    assert code_fingerprint("vernacular.a") == before
    package("vernacular.a", "def f(x):\n    return x + 2\n")
    assert code_fingerprint("vernacular.a") != before


def test_the_libraries_of_a_command_are_those_that_its_modules_import():
    of_items, of_inference = (fingerprint.libraries(f"vernacular.commands.{stage}") for stage in ("items", "infer"))
    assert {"pyarrow", "jinja2", "ruamel"} <= of_items.keys()
    assert {"torch", "transformers", "peft"} <= of_inference.keys()
    assert not {"torch", "transformers"} & of_items.keys()
    assert not {"vernacular", "json", "tqdm"} & {*of_items, *of_inference}
    assert of_inference["torch"] == fingerprint.version_of("torch")
    assert of_items["ruamel"] == fingerprint.version_of("ruamel")
