"""Specs are passed on standard input, because Linux limits an argument to 128 KB."""

import json
import re
import subprocess
import sys
from pathlib import Path

RULES = Path(__file__).parents[2] / "workflow" / "rules"


def test_long_spec_is_read_from_standard_input(tmp_path):
    spec = {
        "name": "gone",
        "source": "./gone",
        "kind": "auto",
        "allow_pickle": False,
        "files": "x" * 300_000,
    }
    command, fields = [sys.executable, "-m", "vernacular", "model"], json.dumps({"spec": spec, "out": "gone.json"})
    process = subprocess.run(command, cwd=tmp_path, input=fields, capture_output=True, text=True, check=True)
    assert process.stdout.startswith("model: gone: unavailable (model file or directory not found: ./gone")


def test_rules_pass_fields_on_standard_input():
    rules = [rule for path in RULES.glob("*.smk") for rule in re.split(r"(?m)^rule ", path.read_text())[1:]]
    with_spec = [rule for rule in rules if "spec=" in rule]
    assert len(with_spec) >= 12
    for rule in with_spec:
        assert re.search(r"\n    shell:\n        stage\(.*\)\s*(#.*\s*)*$", rule), rule
    (command,) = re.findall(r"\n    return f(\".*VERNACULAR.*)", (RULES / "common.smk").read_text())
    assert " <<< " in command
