"""The directory of the workflow's data files: schemas, tasks, prompts, samples and the assets of the report."""

from pathlib import Path

WORKFLOW = Path(__file__).resolve().parents[2]
