"""Directory for complete workflow runs, with tiny models created in place."""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pandas as pd
import yaml
from vernacular.core import artifacts

from support import tiny
from support.optional import ROOT
from support.stage_run import run_stages

RULES = {
    *(
        "all",
        "changes",
        "collect",
        "compare",
        "curves",
        "encoder",
        "export",
        "infer",
        "finish",
        "infer_server",
        "items",
        "metrics",
    ),
    *("model", "report", "requests", "server", "similarity", "summary"),
    *("audit_lists", "between_languages", "estimates", "external", "faults"),
    *("judge", "judge_collect", "judge_requests", "judge_server"),
}


class Workspace:
    """Directory with two tiny causal models, a masked model, an encoder and `config`; `run` runs snakemake in it."""

    def __init__(self, directory: Path, evaluations: list[dict]):
        self.directory = directory
        for name, kind in (("causal", "llama"), ("other", "gpt2"), ("masked", "bert"), ("encoder", "bert")):
            tiny.save(kind, directory / name)
        self.config = {
            "models": {"tiny": {"source": "./causal", "dtype": "float32"}},
            "data": "samples",
            "evaluations": list(evaluations),
            "similarity": {"metrics": ["cosine", "moverscore", "bertscore"], "encoders": {"default": "./encoder"}},
        }
        self.environment: dict[str, str] = {}

    def run(self, *arguments: str) -> subprocess.CompletedProcess:
        """Run snakemake in the directory with the current config."""
        self.write_config()
        command = [sys.executable, "-m", "snakemake", "-c2", "--snakefile", str(ROOT / "Snakefile")]
        command += ["--workflow-profile", str(ROOT / "profiles" / "default"), *arguments]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("HF_")} | self.environment
        # stages use the interpreter under test, whatever the PATH of the test process
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        return subprocess.run(command, cwd=self.directory, capture_output=True, text=True, check=False, env=environment)

    def write_config(self) -> None:
        (self.directory / "config.yaml").write_text(yaml.safe_dump(self.config, sort_keys=False))

    def run_stages(self, *, exports: bool = False) -> int:
        """Run all stages in this process with the current config; return the status of the last.

        A run of Snakemake afterwards finds the outputs in the store, and loads no model: for tests of what later runs plan.
        """
        self.write_config()
        return run_stages(self.directory, exports=exports)

    def planned_jobs(self) -> dict[str, int]:
        """Return the number of planned jobs by rule, from a dry run."""
        return self.jobs(self.run("-n"))

    @staticmethod
    def jobs(run: subprocess.CompletedProcess) -> dict[str, int]:
        """Return the number of jobs by rule, from the output of a dry run."""
        assert run.returncode == 0, output_tail(run)
        started = re.findall(r"^(\w+): ", run.stdout + run.stderr, re.MULTILINE)
        return dict(Counter(rule for rule in started if rule in RULES))

    def results(self) -> pd.DataFrame:
        return pd.read_parquet(self.directory / "results" / "summary" / "results.parquet")

    def notes(self) -> pd.DataFrame:
        return read_notes(self.directory)

    def score_metadata(self, model: str, evaluation: str) -> dict:
        """Return the metadata of a scores file."""
        return artifacts.metadata(self.directory / "results" / model / "scores" / f"{evaluation}.parquet")


class Clone(Workspace):
    """Workspace with a copy of the workflow next to it."""

    def __init__(self, directory: Path, evaluations: list[dict]):
        super().__init__(directory / "work", evaluations)
        self.clone = directory / "clone"
        ignored_files = shutil.ignore_patterns("*.egg-info")  # compiled modules stay valid: times are copied
        shutil.copytree(ROOT / "workflow", self.clone / "workflow", ignore=ignored_files)
        shutil.copytree(ROOT / "envs", self.clone / "envs")
        shutil.copy(ROOT / "Snakefile", self.clone)

    def run(self, *arguments: str):
        return super().run("--snakefile", str(self.clone / "Snakefile"), *arguments)

    def code_path(self, path: str) -> Path:
        return self.clone / "workflow" / path


def read_notes(directory: Path) -> pd.DataFrame:
    """Return the notes of a run in `directory`, one row per model and evaluation."""
    path = directory / "results" / "summary" / "notes.csv"
    table = pd.read_csv(path, dtype={"models": str, "evaluations": str})
    for column in ("models", "evaluations"):
        table[column] = table[column].str.split(", ")
        table = table.explode(column, ignore_index=True)
    return table.rename(columns={"models": "model", "evaluations": "evaluation"})


def output_tail(run: subprocess.CompletedProcess) -> str:
    """Return the end of the output of a run."""
    return (run.stdout + run.stderr)[-4000:]
