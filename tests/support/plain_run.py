"""All stages with a plain config, with whose tables runs of Snakemake as a module or in a storage are compared."""

from pathlib import Path

import yaml

from support import tiny
from support.once import once
from support.stage_run import run_stages

CONFIG = {
    "models": {"tiny": {"source": "./causal", "dtype": "float32"}},
    "data": "samples",
    "evaluations": [
        {"task": "openbookqa", "languages": ["gl"], "protocols": ["generation", "options"], "limit": 4},
        {"task": "cola", "languages": ["es"]},
        {"task": "serbian_cloze", "languages": ["sr"], "limit": 4},
    ],
    "similarity": {"metrics": ["cosine"], "encoders": {"default": "./encoder"}},
}


def plain_run(tmp_path_factory) -> Path:
    """Return the directory of the run, which also has the models `causal`, `other` and `encoder`."""
    return once(tmp_path_factory, "plain", lambda directory: run(directory, CONFIG))


def run(directory: Path, config: dict, *, status: int = 0) -> Path:
    """Run the stages with `config` in `directory`."""
    for name, kind in (("causal", "llama"), ("other", "gpt2"), ("encoder", "bert")):
        tiny.save(kind, directory / name)
    (directory / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    assert run_stages(directory) == status
    return directory
