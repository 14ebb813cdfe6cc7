"""`vernacular check` reports all problems of what a config refers to, without loading a model."""

import importlib.util
import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest
from support import hub_server, reasoning, tiny
from support.messages import assert_states
from support.workspace import ROOT
from vernacular import cli

TASK = """
task: mine
item_type: question
protocols: [letters, options]
languages:
  gl: {source: {file: rows.jsonl}, columns: {question: question, choices: options, gold: key, gold_format: index}, license: cc0}
"""

CONFIG = """
models:
  tiny: {source: ./tiny}
evaluations:
  - {task: mine, shots: [0, 2]}
tasks: [tasks]
"""


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny.save("llama", tmp_path / "tiny")
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "mine.yaml").write_text(TASK)
    rows = [{"question": f"{n} + 1?", "options": [str(n + 1), str(n)], "key": 0} for n in range(20)]
    (tmp_path / "tasks" / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "config.yaml").write_text(CONFIG)
    return tmp_path


def replace(path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def errors(capsys) -> list[str]:
    assert cli.main(["check"]) == 1
    return capsys.readouterr().err.splitlines()


def test_a_good_config_lists_evaluations_with_their_items_and_writes_nothing(directory, capsys):
    before = sorted(directory.rglob("*"))
    assert cli.main(["check"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["  mine.gl.letters.0shot: 20 items", "  mine.gl.letters.2shot: 18 items"]
    assert sorted(directory.rglob("*")) == before


def test_suspicious_prompts_are_noted(directory, capsys):
    """Two rows with one question and the same options, of which each has another as the correct one."""
    rows = [{"question": "Que bebe?", "options": ["auga", "leite"], "key": n} for n in range(2)]
    with open(directory / "tasks" / "rows.jsonl", "a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    assert cli.main(["check"]) == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Note: mine.gl.letters")]
    assert notes[0].startswith(
        "Note: mine.gl.letters.0shot: 2 of 22 items have the same prompt as another item (first: "
    )


def test_all_problems_are_reported_at_once(directory, capsys):
    replace(directory / "config.yaml", "models:\n", "models:\n  gone: {source: ./gone}\n  web: {source: me/web}\n")
    replace(directory / "config.yaml", "  tiny:", "  lora: {base: tiny, adapter: ./lora}\n  tiny:")
    replace(directory / "config.yaml", "./tiny}", "./tiny, quantization: 4bit, generation_engine: transformers}")
    replace(directory / "config.yaml", "[0, 2]", "[0, 50]")
    (directory / "tiny" / "model.safetensors").unlink()
    lines = errors(capsys)
    expected = [
        "./gone",
        "adapter directory not found: ./lora",
        *(["bitsandbytes"] if importlib.util.find_spec("bitsandbytes") is None else []),
        "no weights",
        "got 20. Set a smaller",
    ]
    for text in expected:
        assert sum(text in line for line in lines) == 1, (text, lines)
    assert len(lines) == len(expected)


def test_problems_of_the_files_are_reported_with_mistakes_in_the_config(directory, capsys):
    """An evaluation that cannot be expanded, a wrong value, and files that do not exist."""
    replace(directory / "config.yaml", "models:\n", "models:\n  gone: {source: ./gone}\n")
    replace(
        directory / "config.yaml",
        "  - {task: mine, shots: [0, 2]}",
        "  - {task: mine, shots: [0, 50]}\n  - {task: cola, languages: [de]}",
    )
    replace(
        directory / "config.yaml",
        "tasks: [tasks]",
        "tasks: [tasks]\nsimilarity: {encoders: {gl: ./encoder}}\ngpu_memory: 3",
    )
    lines = errors(capsys)
    for text in ("gpu_memory", '"de"', "./gone", "got 20. Set a smaller"):
        assert sum(text in line for line in lines) == 1, (text, lines)
    assert len(lines) == 4


def test_a_mistyped_column_is_reported_with_those_of_the_file(directory, capsys):
    replace(directory / "tasks" / "mine.yaml", "question: question", "question: qestion")
    (line,) = errors(capsys)
    assert '"qestion"' in line
    assert 'Did you mean "question"?' in line


def test_a_missing_data_file_is_reported(directory, capsys):
    (directory / "tasks" / "rows.jsonl").unlink()
    (line,) = errors(capsys)
    assert "rows.jsonl" in line
    assert "not found" in line


def test_an_adapter_that_does_not_fit_its_base_is_reported(directory, capsys):
    import numpy as np
    from safetensors.numpy import save_file

    replace(directory / "config.yaml", "  tiny:", "  lora: {base: tiny, adapter: ./lora}\n  tiny:")
    (directory / "lora").mkdir()
    settings = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 2, "target_modules": ["q_proj"]}
    (directory / "lora" / "adapter_config.json").write_text(json.dumps(settings))
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    save_file({name: np.zeros((2, 7), "float32")}, directory / "lora" / "adapter_model.safetensors")
    (line,) = errors(capsys)
    assert line.startswith("model lora: the adapter ./lora does not fit its base tiny")


def test_a_package_that_is_not_installed_is_reported(directory, capsys):
    replace(directory / "config.yaml", "./tiny", "package:no_such_package")
    (line,) = errors(capsys)
    assert "no_such_package is not installed" in line


@pytest.fixture
def cached(directory):
    """The snapshot of me/open in the Hub's cache, the only model of the config."""
    repository = Path(huggingface_hub.constants.HF_HUB_CACHE) / "models--me--open"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("a" * 40)
    (directory / "tiny").rename(directory / "moved")
    snapshot = shutil.copytree(directory / "moved", repository / "snapshots" / ("a" * 40))
    replace(directory / "config.yaml", "./tiny", "me/open")
    yield snapshot
    shutil.rmtree(repository)


def test_a_complete_model_in_the_cache_of_the_hub_is_checked(directory, cached, capsys):
    assert cli.main(["check"]) == 0
    assert "Not checked" not in capsys.readouterr().out
    (cached / "tokenizer.json").write_text("{}")
    (line,) = errors(capsys)
    assert "tokenizer.json is not a tokenizer" in line


@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
def test_an_incomplete_model_in_the_cache_of_the_hub_is_not_checked(directory, cached, capsys, file):
    (cached / file).unlink()
    assert cli.main(["check"]) == 0
    assert "Not checked, because not on this disk: me/open (--online" in capsys.readouterr().out


def test_a_token_id_that_no_model_has_is_reported(directory, capsys):
    path = directory / "tiny" / "tokenizer.json"
    content = json.loads(path.read_text())
    token = next(iter(content["model"]["vocab"]))
    content["model"]["vocab"][token] = 4_000_000_000
    path.write_text(json.dumps(content))
    (line,) = errors(capsys)
    assert_states(line, "tokenizer.json", "expected token IDs", "got 4000000000", f'"{token}"')


def test_online_check_of_a_closed_port_asks_once(directory, capsys):
    """A run waits some minutes for a server that is about to start; a person who checks a config does not."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
    Path("mine.yaml").write_text(CONFIG.replace("  tiny: {source: ./tiny}", f'  served: {{source: "{address}"}}'))
    assert cli.main(["check", "mine.yaml", "--online"]) == 1
    assert f"{address}: no answer after 1 attempt (" in capsys.readouterr().err


@pytest.fixture
def hub():
    server = hub_server.HubServer()
    server.repositories["me/open"] = hub_server.Repository({".gitattributes": "", "config.json": "{}"})
    server.repositories["me/gated"] = hub_server.Repository({".gitattributes": "", "config.json": "{}"}, gated=True)
    yield server
    server.stop()


def test_online_asks_the_hub(directory, hub):
    (directory / "config.yaml").write_text(
        """
models:
  open: {source: me/open}
  old: {source: me/open@v9}
  gated: {source: me/gated}
  none: {source: me/none}
evaluations:
  - {task: mine}
tasks: [tasks]
"""
    )
    command = [sys.executable, "-m", "vernacular", "check", "config.yaml"]
    environment = hub_server.environment(hub.address, directory / "home", PYTHONPATH=str(ROOT / "workflow"))
    offline = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert offline.returncode == 0, offline.stderr
    assert "Not checked, because not on this disk: me/open, me/open@v9, me/gated, me/none (--online" in offline.stdout
    assert not hub.log
    online = subprocess.run([*command, "--online"], capture_output=True, text=True, env=environment)
    assert online.returncode == 1
    old, gated, none = online.stderr.splitlines()
    assert "checking me/gated on the Hub" in online.stdout.splitlines()
    assert "checking" not in offline.stdout
    assert old == 'model old: me/open: revision "v9" not found on the Hub.'
    assert gated.startswith("model gated: me/gated: access is gated. Accept the terms at ")
    assert none.startswith("model none: me/none: not found on the Hub, or private.")


def test_datasets_of_the_web_are_asked_for_online_only(directory, hub):
    """Of the sources, treebanks and plain files of the web are not asked for; a repository named by hf:// is."""
    task = directory / "tasks" / "mine.yaml"
    sources = {
        "web": "{url: 'http://127.0.0.1:9/rows.jsonl'}",
        "tree": "{treebank: 'http://127.0.0.1:9/a.conllu', pattern: subject_verb_number}",
        "named": "{file: 'hf://datasets/me/none/rows.jsonl'}",
    }
    for name, source in sources.items():
        text = task.read_text().replace("task: mine", f"task: {name}").replace("{file: rows.jsonl}", source)
        if name == "tree":
            text = text.replace(
                "item_type: question\nprotocols: [letters, options]", "item_type: target_word\nprotocols: [target_word]"
            )
            text = text.partition("languages:")[0] + f"languages:\n  gl: {{source: {source}}}\n"
        (directory / "tasks" / f"{name}.yaml").write_text(text)
    config = CONFIG.replace("  - {task: mine, shots: [0, 2]}", "\n".join(f"  - {{task: {name}}}" for name in sources))
    (directory / "config.yaml").write_text(config + "data: hub\n")
    command = [sys.executable, "-m", "vernacular", "check"]
    environment = hub_server.environment(hub.address, directory / "home", PYTHONPATH=str(ROOT / "workflow"))
    offline = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (offline.returncode, offline.stderr) == (0, "")
    assert "Not checked, because not on this disk: named.gl, tree.gl, web.gl (--online" in offline.stdout
    online = subprocess.run([*command, "--online"], capture_output=True, text=True, env=environment)
    assert online.returncode == 1
    assert online.stderr.startswith("me/none: not found on the Hub, or private.")
    assert "Not checked, because not on this disk: tree.gl, web.gl\n" in online.stdout


def test_check_names_settings_of_chats_without_effect(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for family in ("llama3", "qwen3"):
        loaded = reasoning.load(family)
        loaded.model.save_pretrained(family)
        loaded.tokenizer.save_pretrained(family)
    models = {
        "no-switch": {"source": "./llama3", "enable_thinking": False},
        "switch": {"source": "./qwen3", "chat_template_kwargs": {"enable_thinking": False}},
        "plain": {"source": "./qwen3", "chat": False, "system_instruction": "x"},
        "gone": {"source": "./qwen3", "chat_template": "./gone.jinja"},
    }
    entry = {"task": "openbookqa", "languages": ["gl"], "protocols": ["generation"], "limit": 2}

    def problems(models, **options):
        config = {"models": models, "data": "samples", "evaluations": [entry | options]}
        (tmp_path / "config.yaml").write_text(json.dumps(config))
        status = cli.main(["check", "config.yaml"])
        errors = capsys.readouterr().err
        return errors if status else ""

    assert problems({"switch": models["switch"]}) == ""
    assert "enable_thinking: its chat template renders the same prompt" in problems({"m": models["no-switch"]})
    assert "no effect with chat: false" in problems({"m": models["plain"]})
    assert "file not found: ./gone.jinja" in problems({"m": models["gone"]})
    assert "expected at most the number of repeats, 2, got 3" in problems({"m": models["switch"]}, repeats=2, pass_at=3)
    assert "no effect without few-shot examples" in problems({"m": models["switch"]}, fewshot_as_multiturn=False)
    both = models["switch"] | {"enable_thinking": True}
    assert "chat_template_args has enable_thinking, too" in problems({"m": both})
    recommended = models["switch"] | {"gen_kwargs": "recommended"}
    assert "generation_config.json states no sampling" in problems({"m": recommended})


EVALUATIONS = """
evaluations:
  - {task: own, languages: [gl, ha], protocols: [generation], styles: [english], shots: 0}
  - {task: own, languages: [xh], protocols: [options], styles: [english], shots: 0}
tasks: [tasks]
"""


@pytest.mark.skipif(importlib.util.find_spec("heliport") is None, reason="heliport is not installed")
def test_languages_that_the_identifier_does_not_know_are_named(directory, capsys):
    """Of generated texts only, and of a translation its output."""
    task = TASK.replace("[letters, options]", "[generation, options]").replace("mine", "own")
    entry = task.splitlines()[-1]
    task += "\n".join(entry.replace("gl:", f"{language}:") for language in ("ha", "xh"))
    (directory / "tasks" / "own.yaml").write_text(task)
    (directory / "config.yaml").write_text(CONFIG.partition("evaluations:")[0] + EVALUATIONS)
    cli.main(["check", "config.yaml"])
    notes = [line for line in capsys.readouterr().out.splitlines() if "HeLI-OTS" in line]
    assert notes == ["Note: language of responses not identified: HeLI-OTS does not know Hausa (ha)."]
