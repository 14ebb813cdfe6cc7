"""The stage that builds prompts, in an environment with lm_eval: what it loads is what was planned.

Needs the environment of the benchmarks (`make .bench/.complete`), which has lm_eval; skipped without it.
"""

import gzip
import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
import yaml
from support import lm_eval_cases, specs
from support.optional import BENCH, needs_bench
from support.workspace import ROOT
from vernacular.config.load import load
from vernacular.core import artifacts
from vernacular.core.errors import ConfigError
from vernacular.core.fingerprint import content_hash
from vernacular.data.schema import ITEMS
from vernacular.lm_eval.catalog import read_index

pytestmark = [
    pytest.mark.slow,
    needs_bench,
]
TASK = {
    "dataset_path": "json", "test_split": "test", "output_type": "multiple_choice", "doc_to_text": "{{q}}",
    "doc_to_choice": "{{[a, b]}}", "doc_to_target": 0, "metric_list": [{"metric": "acc"}],
}  # fmt: skip
ROW = '{"q": "Cae a choiva", "a": " si", "b": " non"}\n'
GENERATED = {"output_type": "generate_until", "doc_to_target": "{{a}}", "metric_list": [{"metric": "exact_match"}]}
PROCESS_DOCS = "def edit(row):\n    return {'q': 'first ' + row['q']}\n\n\ndef run(rows):\n    return rows.map(edit)\n"


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> Path:
    """An environment with a copy of lm_eval that has one task, whose index `lm-eval-index` has written."""
    directory = tmp_path_factory.mktemp("lm_eval_environment")
    own, shared = lm_eval_cases.extend_environment(BENCH, directory)
    shutil.copytree(shared / "lm_eval", own / "lm_eval", ignore=_tasks_and_bytecode)
    (info,) = shared.glob("lm_eval-*.dist-info")
    shutil.copytree(info, own / info.name)
    packaged = yaml.safe_dump({"task": "packaged"} | TASK)
    (own / "lm_eval" / "tasks" / "packaged.yaml").write_text(f"{packaged}process_docs: !function functions.run\n")
    (own / "lm_eval" / "tasks" / "functions.py").write_text(PROCESS_DOCS)
    run([directory / "bin" / "python", "-m", "vernacular", "lm-eval-index"])
    return own


def _tasks_and_bytecode(directory: str, names: list[str]) -> list[str]:
    return [n for n in names if n == "__pycache__" or (Path(directory).name == "tasks" and not n.endswith(".py"))]


def run(command: list, **kwargs) -> str:
    # offline, `datasets` refuses zip://; and bytecode is written, as in a run
    unset = ("HF_HUB_OFFLINE", "PYTHONDONTWRITEBYTECODE")
    variables = {key: value for key, value in os.environ.items() if key not in unset}
    variables |= {"PYTHONPATH": str(ROOT / "workflow"), "HF_HOME": str(Path("hf").absolute()), "TQDM_DISABLE": "1"}
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, env=variables, check=False, **kwargs)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr


class Stage:
    """Plans and runs the stage for entries of `evaluations:` in the current directory."""

    def __init__(self, site_packages: Path):
        self.python = site_packages.parents[2] / "bin" / "python"
        self.names: dict[str, str] = {}

    def plan(self, *entries) -> str:
        content_hash.cache_clear()
        read_index.cache_clear()
        config = {"models": {"m": {"source": "./m"}}, "lm_eval": {"python": str(self.python), "tasks": ["own"]}}
        Path("config.yaml").write_text(yaml.safe_dump(config | {"evaluations": list(entries)}))
        return json.dumps(specs.lm_eval_spec(load(["config.yaml"])))

    def run(self, spec: str) -> dict[str, list[str] | str]:
        """Run the stage; return the questions of each evaluation's items, or why it has none."""
        fields = {"spec": json.loads(spec), "items_dir": "items", "out": "requests", "log": "log"}
        run([self.python, ROOT / "workflow" / "stage.py", "lm-eval-requests"], input=json.dumps(fields))
        found = {}
        for name, evaluation in json.loads(spec)["evaluations"].items():
            metadata = artifacts.metadata(f"requests/{name}.parquet")
            items = artifacts.read(f"items/{evaluation['items_stem']}.parquet", ITEMS).to_pylist()
            found[evaluation["unit"]] = metadata["outcome"].reason or [item["context"] for item in items]
        return found


@pytest.fixture
def stage(environment, tmp_path, monkeypatch) -> Stage:
    monkeypatch.chdir(tmp_path)
    for name in ("own", "items", "requests"):
        (tmp_path / name).mkdir()
    return Stage(environment)


def write_task(name: str, data_files=None, extra: str = "", **keys) -> None:
    content = {"task": name} | TASK | {"dataset_kwargs": {"data_files": {"test": data_files or "rows.jsonl"}}} | keys
    Path("own", f"{name}.yaml").write_text(yaml.safe_dump(content) + extra)


def edit(path, content: bytes) -> None:
    """Replace the content of a file in place; its size and time stay."""
    path = Path(path)
    status = path.stat()
    assert len(content) == status.st_size
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def zip_of(text: str) -> bytes:
    with zipfile.ZipFile("new.zip", "w") as file:
        file.writestr(zipfile.ZipInfo("z.jsonl", (2025, 1, 1, 0, 0, 0)), text)
    return Path("new.zip").read_bytes()


def test_edit_that_keeps_size_and_time_is_evaluated(stage, environment):
    """Of rows in all forms, of functions, and of the functions of a packaged task, which is in a group."""
    sources = {"plain": "rows.jsonl", "url": f"file://{Path.cwd()}/rows.jsonl", "zipped": "zip://z.jsonl::z.zip"}
    sources |= {"archive": "z.zip", "compressed": "c.jsonl.gz"}
    new = ROW.replace("Cae a", "CAE A")
    contents = {
        "rows.jsonl": str.encode,
        "z.zip": zip_of,
        "c.jsonl.gz": lambda text: gzip.compress(text.encode(), 0, mtime=0),
    }
    for name, file in sources.items():
        write_task(name, file)
    write_task("mapped", "fixed.jsonl", "process_docs: !function functions.run\n")
    Path("fixed.jsonl").write_text(ROW)
    Path("own/functions.py").write_text(PROCESS_DOCS)
    packaged = {"task": "packaged", "dataset_kwargs": {"data_files": {"test": "rows.jsonl"}}}
    group = {"group": "mine", "task": [packaged], "aggregate_metric_list": [{"metric": "acc"}]}
    Path("own/mine.yaml").write_text(yaml.safe_dump(group))
    for file, encode in contents.items():
        Path(file).write_bytes(encode(ROW))
    entries = [{"lm_eval": name, "trust_functions": True} for name in (*sources, "mapped")] + [{"lm_eval": "mine"}]
    assert stage.run(stage.plan(*entries)) == {name: ["Cae a choiva"] for name in sources} | {
        "mapped": ["first Cae a choiva"],
        "mine": ["first Cae a choiva"],
    }
    for file, encode in contents.items():
        edit(file, encode(new))
    edit("own/functions.py", PROCESS_DOCS.replace("first", "later").encode())
    assert stage.run(stage.plan(*entries)) == {name: ["CAE A choiva"] for name in sources} | {
        "mapped": ["later Cae a choiva"],
        "mine": ["first CAE A choiva"],
    }
    edit(environment / "lm_eval" / "tasks" / "functions.py", PROCESS_DOCS.replace("first", "later").encode())
    assert stage.run(stage.plan({"lm_eval": "mine"})) == {"mine": ["later CAE A choiva"]}


def test_change_between_planning_and_job_stops_the_evaluations_that_it_concerns(stage):
    write_task("mine")
    write_task("other", "fixed.jsonl")
    write_task("trusted", "fixed.jsonl", "process_docs: !function elsewhere.run\n")
    Path("own/trusted.yaml").rename("trusted.yaml")
    Path("own/trusted.yaml").write_text("include: ../trusted.yaml\n")
    Path("elsewhere.py").write_text("def run(rows):\n    return rows\n")
    for name in ("rows.jsonl", "fixed.jsonl"):
        Path(name).write_text(ROW)
    spec = stage.plan({"lm_eval": "mine"}, {"lm_eval": "other"}, {"lm_eval": "trusted", "trust_functions": True})
    edit("rows.jsonl", ROW.replace("Cae a", "CAE A").encode())
    found = stage.run(spec)
    assert found["mine"] == "mine: rows.jsonl changed since the run was planned. Run the workflow again."
    assert found["other"] == found["trusted"] == ["Cae a choiva"]
    for changed, text in (("elsewhere.py", "raise SystemExit('this runs')\n"), ("own/new.yaml", "task: new\n")):
        previous = Path(changed).read_text() if Path(changed).exists() else None
        Path(changed).write_text(text)
        shutil.rmtree("requests")
        found = stage.run(spec)
        assert found.pop("mine").endswith("changed since the run was planned. Run the workflow again.")
        for name, reason in found.items():
            assert reason == f"{name}: {changed} changed since the run was planned. Run the workflow again."
        Path(changed).write_text(previous) if previous else None


def test_task_that_fails_is_named_and_others_continue(stage):
    Path("rows.jsonl").write_text(ROW)
    for name, limit in (("huge", 10**12), ("negative", -1), ("fraction", 2.5), ("text", "many"), ("fine", 8)):
        write_task(name, **GENERATED, generation_kwargs={"until": ["\n"], "max_gen_toks": limit})
    write_task("stops", **GENERATED, generation_kwargs={"until": ["\n", 5]})
    write_task("undefined", **GENERATED, doc_to_text="{{missing}}")
    write_task("one_document", doc_to_text="{{ 1 // (q|length - 3) }}")
    write_task("unknown", nonsense=1)
    write_task("type", output_type="nonsense")
    write_task("repeated", **GENERATED, repeats=10**9)
    write_task("directory", dataset_path="./set", dataset_kwargs=None)
    Path("set").mkdir()
    Path("set/README.md").write_text(
        "---\nconfigs:\n- {config_name: default, data_files: [{split: test, path: ../rows.jsonl}]}\n---\n"
    )
    write_task("ends", extra="process_docs: !function functions.run\n")
    Path("own/functions.py").write_text("def run(rows):\n    raise SystemExit(0)\n")
    group = {"group": "group", "task": ["fine", "undefined"], "aggregate_metric_list": [{"metric": "exact_match"}]}
    Path("own/group.yaml").write_text(yaml.safe_dump(group))
    with open("rows.jsonl", "a") as file:
        file.write('{"q": "Cae", "a": " si", "b": " non"}\n')
    names = [
        "huge",
        "negative",
        "fraction",
        "text",
        "stops",
        "undefined",
        "one_document",
        "repeated",
        "directory",
        "unknown",
        "type",
        "fine",
        "group",
    ]
    found = stage.run(stage.plan({"lm_eval": "ends", "trust_functions": True}, *({"lm_eval": name} for name in names)))
    assert found.pop("fine") == ["Cae a choiva", "Cae"]
    assert "ends the process" in found.pop("ends")
    assert found.pop("group").startswith("undefined: it cannot be built (UndefinedError: 'missing' is undefined)")
    reasons = {
        "huge": "max_gen_toks: expected an integer from 1 to 1000000, got 1000000000000",
        "stops": "until: expected",
    }
    reasons |= dict.fromkeys(("negative", "fraction", "text"), "max_gen_toks: expected an integer")
    reasons |= {
        "undefined": "'missing' is undefined",
        "one_document": "ZeroDivisionError",
        "repeated": "repeats: expected",
        "directory": "rows.jsonl is not among its data_files",
        "unknown": "'nonsense'",
        "type": "output_type 'nonsense'",
    }
    assert found.keys() == reasons.keys()
    for name, reason in reasons.items():
        assert found[name].startswith(f"{name}: ")
        assert reason in found[name]


def test_edit_or_upgrade_of_lm_eval_is_noticed(stage, environment):
    """The last test of this file, because it edits the environment of all."""
    write_task("mine")
    Path("rows.jsonl").write_text(ROW)
    spec = stage.plan({"lm_eval": "mine"})
    module = environment / "lm_eval" / "api" / "metrics.py"
    old = "return sum(arr) / len(arr)"
    value = [
        stage.python,
        "-c",
        "from lm_eval.api.metrics import mean; import sys; sys.stderr.write(str(mean([1, 0])))",
    ]
    assert run(value) == "0.5"
    edit(module, module.read_text().replace(old, "return 0.123".ljust(len(old)), 1).encode())
    assert run(value) == "0.123", "its bytecode is recognized as stale"
    assert (
        stage.run(spec)["mine"]
        == "mine: the code of lm_eval changed since the run was planned. Run the workflow again."
    )
    edited = stage.plan({"lm_eval": "mine"})
    assert edited != spec
    (info,) = environment.glob("lm_eval-*.dist-info/METADATA")
    info.write_text(info.read_text().replace("Version: 0.4", "Version: 9.4", 1))
    upgraded = json.loads(stage.plan({"lm_eval": "mine"}))["evaluations"]["mine.und.lm_eval.0shot"]
    assert upgraded["versions"]["lm_eval"].startswith("9.4")
    assert stage.run(edited)["mine"] == "mine: lm_eval changed since the run was planned. Run the workflow again."
    (environment / "lm_eval" / "tasks" / "packaged.yaml").write_text(
        yaml.safe_dump({"task": "packaged"} | TASK | GENERATED)
    )
    with pytest.raises(ConfigError, match=r"task files changed after this list\. Run: .*lm-eval-index"):
        stage.plan({"lm_eval": "mine"})
