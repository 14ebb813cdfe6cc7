"""A complete run with a plain config, with which runs of the same config as a module or in a storage are compared."""

from pathlib import Path

from support.once import once
from support.workspace import Workspace, output_tail

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


def run(directory: Path, config: dict, *, returncode: int = 0) -> Path:
    """Run `config` in `directory` as a clone of the workflow does."""
    workspace = Workspace(directory, [])
    workspace.config = config
    finished = workspace.run()
    assert finished.returncode == returncode, output_tail(finished)
    return directory
