"""Code fingerprints: every module is in the key of a stage, or excluded with a reason."""

import importlib.metadata
from pathlib import Path

import pytest
import vernacular
from vernacular.core import fingerprint
from vernacular.core.fingerprint import NO_EFFECT, closure, code_fingerprint
from vernacular.inference.engine import Local, Server

ROOT = Path(vernacular.__file__).parent
MODULES = {
    ".".join(("vernacular", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    for path in ROOT.rglob("*.py")
}
STAGES = {name for name in MODULES if name.startswith("vernacular.stages.")}
# modules that run before or after all rules: their result is in the keys as values, or has no effect
NOT_IN_KEYS = {
    "vernacular.__main__": "starts a command",
    "vernacular.cli": "runs a command",
    **dict.fromkeys(("vernacular.results", "vernacular.results.plots", "vernacular.results.tables"), "reads results"),
    "vernacular.statistics.sequential": "computes for a notebook",
    "vernacular.commands": "holds the commands of people",
    "vernacular.notebook": "computes for a notebook, and stores nothing that a run reads",
    "vernacular.commands.labels": "is run by hand",
    "vernacular.commands.check": "prints",
    "vernacular.commands.plan": "prints",
    "vernacular.commands.run": "writes a config, and starts Snakemake",
    "vernacular.config.series": "positions of checkpoints, which are in the keys",
    "vernacular.commands.publish": "is run by hand",
    "vernacular.commands.table": "prints",
    "vernacular.commands.tasks": "prints",
    "vernacular.core.console": "formats messages of Snakemake",
    "vernacular.stages.finish": "checks that nothing is missing",
    "vernacular.stages.print_results": "prints",
    "vernacular.config.dependencies": "computes the values in the keys",
    "vernacular.config.directories": "checks a config, and deletes files when a run has ended",
    "vernacular.config.load": "checks a config; its result is in the keys",
    "vernacular.config.files": "reads a config; what it describes is in the specifications",
    "vernacular.config.references": "checks a config",
    "vernacular.config.evaluations": "its result is in the keys",
    "vernacular.config.models": "its result is in the keys",
    "vernacular.config.resources": "memory and time of a job",
    "vernacular.commands.lm_eval": "is run by hand",
    "vernacular.commands.lm_eval_index": "its result is in the keys",
    "vernacular.summary.paper": "prints",
    "vernacular.data.tasks": "its result is in the keys",
    "vernacular.data.hub_benchmark": "writes a task file, whose content is in the keys",
    "vernacular.exchange.eval_results": "is run by hand",
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A function that writes a module of a temporary package, which replaces this one."""
    root = tmp_path / "vernacular"

    def write(module: str, text: str) -> None:
        path = tmp_path.joinpath(*module.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        for directory in (path.parent, *path.parent.parents):
            if directory == tmp_path:
                break
            (directory / "__init__.py").touch()
        path.write_text(text)
        forget()

    def forget() -> None:
        closure.cache_clear()
        fingerprint._parse.cache_clear()

    monkeypatch.setattr(fingerprint, "_ROOT", root)
    yield write
    forget()


def test_every_module_is_in_a_key_or_excluded_with_reason():
    in_keys = set().union(*(closure(name) for name in STAGES - NOT_IN_KEYS.keys()))
    assert not MODULES - in_keys - NOT_IN_KEYS.keys() - NO_EFFECT.keys()
    assert not in_keys & (NOT_IN_KEYS.keys() | NO_EFFECT.keys()), "excluded, but in a key"
    assert (NOT_IN_KEYS.keys() | NO_EFFECT.keys()) <= MODULES, "excluded, but not found"


def test_keys_of_earlier_stages_exclude_metrics():
    for stage in ("items", "requests", "fetch", "infer", "collect"):
        assert not {name for name in closure(f"vernacular.stages.{stage}") if ".metrics" in name}
    for entries in (*Local.code.values(), *Server.code.values()):
        unrelated = ("metrics", "store", "run", "work", "collect", "stages", "data", "engine")
        assert set(unrelated) <= {part for name in MODULES for part in name.split(".")}
        assert not {name for entry in entries for name in closure(entry) if name.split(".")[-1] in unrelated}


def test_keys_of_values_cover_protocols_and_metrics():
    modules = closure("vernacular.stages.metrics")
    assert {"vernacular.metrics.bits", "vernacular.metrics.tokens", "vernacular.protocols.evaluate"} <= modules


def test_store_keys_cover_all_code_that_computes_outputs():
    packages = {"scores": ("scoring.", "model."), "generations": ("generation.", "model.")}
    for kind, entries in Local.code.items():
        covered = set().union(*map(closure, entries))
        names = tuple(f"vernacular.inference.{package}" for package in packages[kind])
        assert {name for name in MODULES if name.startswith(names)} <= covered
        for entry in entries:
            covered_by_others = set().union(
                *(closure(entry_module) for entry_module in entries if entry_module != entry)
            )
            assert closure(entry) - covered_by_others, f"{entry} is covered by the other entries"


def test_store_keys_of_served_models_cover_all_code_that_computes_outputs_and_no_local_engine():
    covered = [set().union(*map(closure, entries)) for entries in Server.code.values()]
    server_modules = {name for name in MODULES if name.startswith("vernacular.inference.server.")}
    probing = {f"vernacular.inference.server.{name}" for name in ("checks", "probe", "sampled", "start")}
    assert (covered[0] | covered[1]) & server_modules == server_modules - probing - NO_EFFECT.keys()
    for name in ("generation.decode", "generation.generate", "model.load", "scoring.head"):
        assert not any(f"vernacular.inference.{name}" in modules for modules in covered)
    local = set().union(*(closure(entry) for entries in Local.code.values() for entry in entries))
    assert not server_modules & local


def test_styles_of_another_tool_are_in_keys_of_stages_that_use_them():
    prompts, outputs = "vernacular.protocols.generation.simil_eval", "vernacular.metrics.similarity.outputs"
    expected = {"requests": {prompts}, "similarity": {outputs}, "metrics": {outputs}, "infer": set(), "collect": set()}
    for stage, modules in expected.items():
        assert closure(f"vernacular.stages.{stage}") & {prompts, outputs} == modules, stage
    for entry in (entry for entries in Local.code.values() for entry in entries):
        assert not any(".exchange" in name or "simil_eval" in name for name in closure(entry))


def test_module_of_a_stage_is_in_its_own_key():
    for name in STAGES:
        assert name in closure(name)


def test_key_changes_with_code_of_imported_modules(package):
    package("vernacular.stages.a", "from vernacular.stage import deep\n\n\ndef a():\n    return deep.x\n")
    package("vernacular.stage.deep", "def x():\n    from vernacular.stage.lazy import y\n\n    return y\n")
    package("vernacular.stage.lazy", "y = 1\n")
    package("vernacular.stage.other", "z = 1\n")
    original = code_fingerprint("vernacular.stages.a")
    package("vernacular.stage.other", "z = 2\n")
    assert code_fingerprint("vernacular.stages.a") == original
    package("vernacular.stage.lazy", '"""Says more."""\n# why\ny = (1)\n')
    assert code_fingerprint("vernacular.stages.a") == original
    package("vernacular.stage.lazy", "y = 2\n")
    assert code_fingerprint("vernacular.stages.a") != original


@pytest.mark.parametrize(
    "line",
    ["import vernacular.b", "from vernacular import b", "from vernacular.b import x", "import vernacular.b as q"],
)
def test_all_import_forms_are_followed(package, line):
    package("vernacular.b", "x = 1\n")
    package("vernacular.a", f"def f():\n    {line}\n")
    assert "vernacular.b" in closure("vernacular.a")


def test_package_init_is_in_closure(package):
    package("vernacular.p.b", "x = 1\n")
    package("vernacular.a", "import vernacular.p.b\n")
    assert {"vernacular", "vernacular.p", "vernacular.p.b"} <= closure("vernacular.a")


def test_type_checking_imports_are_ignored(package):
    package("vernacular.b", "x = 1\n")
    package("vernacular.a", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from vernacular.b import x\n")
    assert "vernacular.b" not in closure("vernacular.a")


def test_relative_import_raises_value_error(package):
    package("vernacular.a", "from . import b\n")
    with pytest.raises(ValueError, match="relative imports"):
        closure("vernacular.a")


def test_comments_docstrings_and_formatting_do_not_change_key(package):
    package("vernacular.a", "def f(x):\n    return x + 1\n")
    original = code_fingerprint("vernacular.a")
    package("vernacular.a", '"""Says more."""\n# why\ndef f(x):\n    """Adds one."""\n\n    return (x + 1)  # one\n')
    assert code_fingerprint("vernacular.a") == original
    package("vernacular.a", "def f(x):\n    return x + 2\n")
    assert code_fingerprint("vernacular.a") != original


def test_libraries_are_those_imported_by_closure():
    items_libraries, infer_libraries = (
        fingerprint.libraries(f"vernacular.stages.{stage}") for stage in ("items", "infer")
    )
    assert {"pyarrow", "ruamel"} <= items_libraries.keys()
    assert {"torch", "transformers", "peft"} <= infer_libraries.keys()
    assert not {"torch", "transformers"} & items_libraries.keys()
    assert not {"vernacular", "json", "tqdm"} & {*items_libraries, *infer_libraries}
    assert infer_libraries["torch"] == fingerprint.version_of("torch")
    assert items_libraries["ruamel"] == fingerprint.version_of("ruamel")


def test_versions_are_those_of_the_distribution_that_contains_a_library():
    distributions = importlib.metadata.packages_distributions()
    names = {name for module in MODULES for name in fingerprint.libraries(module)} | {"ot", "yaml"}
    for name in names:
        expected = {importlib.metadata.version(found) for found in distributions.get(name, [])} or {None}
        assert fingerprint.version_of(name) in expected, name
    assert fingerprint.version_of("mpl_toolkits") == fingerprint.version_of("matplotlib")  # not in the list of names
    assert fingerprint.version_of("not_installed") is None
