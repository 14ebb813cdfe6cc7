"""The command `similarity` computes what is missing or out of date, and nothing else."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support import stages, tiny
from support.stage_run import CONFIG, ES, GL, Run
from vernacular.config import load as config
from vernacular.core import artifacts
from vernacular.core.metadata import Outcome
from vernacular.data.schema import ITEMS
from vernacular.metrics.schema import SIMILARITIES

FIRST, SECOND = f"{GL}.generation.0shot.open", f"{ES}.generation.0shot.open"


@pytest.fixture(scope="module")
def completed_run(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("similarity"))
        for name, kind in (("one", "llama"), ("encoder", "bert")):
            tiny.save(kind, name)
        settings = {key: value for key, value in CONFIG.items() if key != "comparisons"}
        settings["models"] = {"one": CONFIG["models"]["one"]}
        settings["evaluations"] = [{**CONFIG["evaluations"][0], "protocols": ["generation"], "styles": ["open"]}]
        Path("config.yaml").write_text(yaml.safe_dump(settings))
        run = Run(config.load(["config.yaml"]))
        assert run("encoder", next(iter(run.config.encoders))) == 0
        for command in ("items", "requests", "model", "infer", "collect", "similarity"):
            assert run(command) == 0
        yield run


def output(evaluation: str) -> Path:
    return Path(f"results/one/similarity/{evaluation}.parquet")


def similarities(evaluation: str) -> list[list[float]]:
    return artifacts.read(output(evaluation), SIMILARITIES)["similarities"].to_pylist()


def test_files_that_are_up_to_date_are_kept(completed_run, capsys):
    content = output(FIRST).read_bytes()
    os.utime(output(FIRST), (1, 1))
    capsys.readouterr()
    assert completed_run("similarity") == 0
    assert "similarity: one: 0 evaluations computed, 2 up to date" in capsys.readouterr().out
    assert output(FIRST).read_bytes() == content
    assert output(FIRST).stat().st_mtime > 1, "or Snakemake would run the job again"


def test_only_a_missing_file_is_computed(completed_run, capsys):
    content = output(SECOND).read_bytes()
    output(SECOND).unlink()
    capsys.readouterr()
    assert completed_run("similarity") == 0
    assert "similarity: one: 1 evaluation computed, 1 up to date" in capsys.readouterr().out
    assert output(SECOND).read_bytes() == content


@pytest.mark.parametrize("damage", ["other code", "other generations", "missing metrics", "truncated"])
def test_a_file_that_is_out_of_date_is_computed_again(completed_run, capsys, damage):
    content = output(FIRST).read_bytes()
    rows, metadata = artifacts.read(output(FIRST), SIMILARITIES), artifacts.metadata(output(FIRST))
    if damage == "truncated":
        output(FIRST).write_bytes(content[:-20])
    elif damage == "missing metrics":
        artifacts.write(
            output(FIRST), SIMILARITIES, rows, metadata | {"outcome": Outcome(missing={"cosine": "out of memory"})}
        )
    else:
        artifacts.write(output(FIRST), SIMILARITIES, rows, metadata | {"fingerprint": damage})
    capsys.readouterr()
    assert completed_run("similarity") == 0
    assert "similarity: one: 1 evaluation computed, 1 up to date" in capsys.readouterr().out
    assert output(FIRST).read_bytes() == content


def test_a_changed_option_that_is_not_in_the_prompt_is_compared(completed_run, capsys):
    """The prompts of the style `open` show no options, so the stored responses remain valid."""
    items = Path(f"resources/items/{GL}.limit3.parquet")
    original, unchanged = similarities(FIRST), output(SECOND).read_bytes()
    rows, metadata = artifacts.read(items, ITEMS).to_pylist(maps_as_pydicts="strict"), artifacts.metadata(items)
    rows[0]["choices"][1] = " ".join(reversed(rows[0]["choices"][1].split()))
    shutil.copyfile(items, "kept.parquet")
    artifacts.write(items, ITEMS, rows, metadata | {"fingerprint": "another"})
    try:
        assert [completed_run(command) for command in ("requests", "infer", "collect")] == [0, 0, 0]
        assert "2 evaluations found" in capsys.readouterr().out
        assert completed_run("similarity") == 0
        assert "similarity: one: 1 evaluation computed, 1 up to date" in capsys.readouterr().out
        assert output(SECOND).read_bytes() == unchanged
        [(item, option)] = [
            (i, k)
            for i, (old, new) in enumerate(zip(original, similarities(FIRST), strict=True))
            for k in range(len(old))
            if old[k] != pytest.approx(new[k], abs=1e-6)
        ]
        assert (item, option) == (0, 1)
    finally:
        shutil.copyfile("kept.parquet", items)
        assert [completed_run(command) for command in ("requests", "infer", "collect", "similarity")] == [0] * 4


def test_stored_similarities_load_no_encoder(completed_run):
    """In a process that can import neither torch nor transformers."""
    contents = [output(evaluation).read_bytes() for evaluation in (FIRST, SECOND)]
    for evaluation in (FIRST, SECOND):
        output(evaluation).unlink()
    code = "import sys; sys.modules |= dict.fromkeys(('torch', 'transformers', 'sentence_transformers'))"
    code += "; from vernacular.cli import main; sys.exit(main(['similarity']))"
    fields = stages.text("similarity", **completed_run.similarity("one"))
    run = subprocess.run([sys.executable, "-c", code], input=fields, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "similarity: one: 2 evaluations computed" in run.stdout
    assert [output(evaluation).read_bytes() for evaluation in (FIRST, SECOND)] == contents


def test_a_store_that_cannot_be_written_stops_nothing(completed_run):
    content = output(FIRST).read_bytes()
    output(FIRST).unlink()
    Path("occupied").touch()
    assert stages.run("similarity", **completed_run.similarity("one") | {"store": "occupied/store"}) == 0
    assert output(FIRST).read_bytes() == content
