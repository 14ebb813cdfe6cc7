"""A folder in which whole runs of the workflow take place, with tiny models made on the spot."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import yaml
from vernacular.core import artifacts

from support import tiny

ROOT = Path(__file__).parents[2]


class Workplace:
    """Holds a tiny causal model, another, a masked one, an encoder, and `config`; `run` is snakemake in it."""

    def __init__(self, folder: Path, evaluations: list[dict]):
        self.folder = folder
        for name, kind in (("causal", "llama"), ("other", "gpt2"), ("masked", "bert"), ("encoder", "bert")):
            tiny.save(kind, folder / name)
        self.config = {
            "models": {"tiny": {"source": "./causal", "dtype": "float32"}},
            "data": "samples",
            "evaluations": list(evaluations),
            "similarity": {"metrics": ["cosine", "moverscore", "bertscore"], "encoders": {"default": "./encoder"}},
        }
        self.environment: dict[str, str] = {}

    def run(self, *arguments: str) -> subprocess.CompletedProcess:
        """snakemake in the folder, with the config as it stands now."""
        (self.folder / "config.yaml").write_text(yaml.safe_dump(self.config, sort_keys=False))
        command = [sys.executable, "-m", "snakemake", "-c2", "--snakefile", str(ROOT / "Snakefile")]
        command += ["--workflow-profile", str(ROOT / "profiles" / "default"), *arguments]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("HF_")} | self.environment
        # wherever the tests were started, a stage is told the interpreter that is under test
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False, env=environment)

    def planned(self) -> dict[str, int]:
        """Rule -> jobs that a run would have, from a dry run."""
        return self.jobs(self.run("-n"))

    @staticmethod
    def jobs(run: subprocess.CompletedProcess) -> dict[str, int]:
        """Rule -> jobs, from the output of a dry run."""
        assert run.returncode == 0, said(run)
        table = re.search(r"Job stats:\n.*\n[- ]+\n((?:\S+ +\d+\n)+)", run.stdout + run.stderr)
        jobs = {rule: int(n) for rule, n in re.findall(r"(\S+) +(\d+)\n", table[1])} if table else {}
        return {rule: n for rule, n in jobs.items() if rule != "total"}

    def results(self) -> pd.DataFrame:
        return pd.read_parquet(self.folder / "results" / "summary" / "results.parquet")

    def notes(self) -> pd.DataFrame:
        return pd.read_csv(self.folder / "results" / "summary" / "notes.csv")

    def answered(self, model: str, evaluation: str) -> dict:
        """The metadata of what a model was asked."""
        return artifacts.metadata(self.folder / "results" / model / "scores" / f"{evaluation}.parquet")


class Clone(Workplace):
    """A workplace with a copy of the workflow beside it."""

    def __init__(self, folder: Path, evaluations: list[dict]):
        super().__init__(folder / "work", evaluations)
        self.clone = folder / "clone"
        kept = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / "workflow", self.clone / "workflow", ignore=kept)
        shutil.copytree(ROOT / "envs", self.clone / "envs")
        shutil.copy(ROOT / "Snakefile", self.clone)
        self.environment = {"PYTHONPATH": str(self.clone / "workflow")}

    def run(self, *arguments: str):
        return super().run("--snakefile", str(self.clone / "Snakefile"), *arguments)

    def code(self, path: str) -> Path:
        return self.clone / "workflow" / path


def said(run: subprocess.CompletedProcess) -> str:
    """The end of what a run said."""
    return (run.stdout + run.stderr)[-4000:]
