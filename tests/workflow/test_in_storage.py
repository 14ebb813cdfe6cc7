"""A run whose inputs and outputs are in another directory, through a storage plugin, with the store beside it."""

import shutil

import pandas as pd
import pytest
import yaml
from support.optional import TOOLS, needs_rsync, needs_tools
from support.plain_run import CONFIG, plain_run
from support.tools import run_snakemake
from support.workspace import ROOT, output_tail

pytestmark = [pytest.mark.slow, needs_tools, needs_rsync]


def test_run_in_storage_yields_the_tables_of_a_plain_run(tmp_path, tmp_path_factory):
    plain = plain_run(tmp_path_factory)
    directory = tmp_path / "work"
    for model in ("causal", "encoder"):
        shutil.copytree(plain / model, directory / model)
    (directory / "config.yaml").write_text(yaml.safe_dump({**CONFIG, "store": "../store"}))
    bucket = tmp_path / "bucket"
    arguments = [
        "-c2",
        "--snakefile",
        str(ROOT / "Snakefile"),
        "--workflow-profile",
        str(ROOT / "profiles" / "default"),
    ]
    arguments += ["--default-storage-provider", "fs", "--default-storage-prefix", str(bucket)]
    # in as many threads as the plain run, because values of two may differ in the last bits
    arguments += ["--set-threads", "infer=1", "similarity=1"]
    run = run_snakemake(directory, *arguments, python=TOOLS / "python")
    assert run.returncode == 0, output_tail(run)
    summary = pd.read_parquet(bucket / "results" / "summary" / "results.parquet")
    expected = pd.read_parquet(plain / "results" / "summary" / "results.parquet")
    pd.testing.assert_frame_equal(summary, expected)
    assert (bucket / "results" / "report" / "index.html").exists()
    assert list((tmp_path / "store").rglob("*.parquet"))
    assert not (directory / "results" / "summary").exists()

    again = run_snakemake(directory, *arguments, python=TOOLS / "python")
    assert again.returncode == 0, output_tail(again)
    assert "Nothing to be done" in again.stdout + again.stderr
