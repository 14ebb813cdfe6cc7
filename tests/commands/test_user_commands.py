"""The commands for people: help, `tasks`, `show` and `init`."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support import stages, tiny
from support.workspace import ROOT
from vernacular import __version__, cli
from vernacular.config.load import load
from vernacular.core.errors import ConfigError
from vernacular.core.languages import base_language, english_names, matching_tags
from vernacular.core.paths import WORKFLOW
from vernacular.data.tasks import load_task, task_names
from vernacular.data.treebank.patterns import builtin_patterns
from vernacular.protocols.prompts import LINES, PURPOSES, load_labels

CONFIG = """
models: {tiny: {source: ./tiny}}
data: samples
evaluations:
  - {task: calame, languages: [gl]}
  - {task: openbookqa, languages: [gl], protocols: [generation], shots: 5}
  - {task: global_piqa, languages: [sr]}
similarity: {encoders: {default: ./tiny}}
"""


@pytest.fixture
def directory(tmp_path, monkeypatch):
    (tmp_path / "mine.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_help_lists_user_commands_with_descriptions_and_stage_commands_below(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    text = capsys.readouterr().out
    user, _, stages = text.partition("The rules of the workflow")
    assert text.startswith("usage: vernacular ")
    for command in ("check", "tasks", "show", "table", "init", "plan", "treebank"):
        assert f"\n    {command} " in user
    for command in ("items", "requests", "infer", "summary"):
        assert f"\n    {command} " not in user
        assert command in stages


@pytest.mark.parametrize(
    ("name", "hint"), [("chek", 'Did you mean "check"?'), ("xyz", "Allowed: audit, check, init, join, ")]
)
def test_an_unknown_command_suggests_those_for_people(capsys, name, hint):
    with pytest.raises(SystemExit):
        cli.main([name, "config.yaml"])
    error = capsys.readouterr().err
    assert f'unknown command "{name}". {hint}' in error
    assert "lm-eval-requests" not in error


def test_version(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"vernacular {__version__}\n"


def test_tasks_of_a_language_have_protocols_items_license_and_source(capsys):
    assert cli.main(["tasks", "gl"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (row,) = [line for line in lines if line.startswith("openbookqa ")]
    assert row.split("  ")[1:] != []
    for part in ("generation, letters, choice, options", "500", "cc-by-4.0", "proxectonos/openbookqa_gl"):
        assert part in row
    assert not any(line.startswith("blimp ") for line in lines)


def test_tasks_of_all_languages_count_many_and_list_few(capsys):
    assert cli.main(["tasks"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "101 languages" in rows["multiblimp"]
    assert " gl pt " in rows["calame"]


def test_languages_are_found_by_their_english_name(capsys):
    assert cli.main(["tasks", "eu"]) == 0
    expected = capsys.readouterr().out.splitlines()[:-1]
    assert cli.main(["tasks", "basque"]) == 0
    assert capsys.readouterr().out.splitlines()[:-1] == expected
    for name, hint in (
        ("Baskue", "Basque"),
        ("Kichee", "K'iche'"),
        ("North Levantin Arabic", "North Levantine Arabic"),
    ):
        assert cli.main(["tasks", name]) == 1
        assert f'Did you mean "{hint}"?' in capsys.readouterr().err
    included = [load_task(path)["languages"] for path in task_names([WORKFLOW / "tasks"]).values()]
    bases = {base_language(code) for languages in included for code in languages}
    names = [english_names()[base] for base in bases]
    assert not [name for name in names if " ".join(name.split()) != name]
    assert len(set(names)) == len(bases)
    assert all(matching_tags(english_names()[base], bases)[0] == [base] for base in bases)


@pytest.mark.parametrize(
    ("given", "tags"),
    [
        ("hbs", ["bs", "sr", "sr-Latn"]), ("zh-CN", ["zh-Hans"]), ("zh_TW", ["zh-Hant"]), ("nb_NO", ["nb"]), ("en-GB", ["en"]),
        ("pt-PT", ["pt"]), ("PT_br", ["pt-BR"]), ("sr-ME", ["sr-Latn"]), ("Castilian", ["es"]), ("valencian", ["ca"]),
        ("iw", ["he"]), ("glg", ["gl"]), ("swh", ["sw"]), ("ar-EG", ["ar"]), ("xx-YY", []), ("galego", []),
    ],
)  # fmt: skip
def test_language_is_found_by_other_tags_and_names_that_mean_it(given, tags):
    available = ["ar", "bs", "ca", "ca-valencia", "en", "es", "gl", "he", "nb", "nn", "pt", "pt-BR", "sr", "sr-Latn"]
    available += ["sw", "yue", "zh-Hans", "zh-Hant"]
    assert matching_tags(given, available)[0] == tags


def test_tasks_of_a_language_list_its_scripts_and_what_is_lacking(capsys):
    assert cli.main(["tasks", "sr"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[1] for line in lines if line.startswith(("ntrex ", "belebele "))} == {"sr-Cyrl", "sr-Latn"}
    assert cli.main(["tasks", "sr-Latn"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[1] for line in lines[1:-1]} == {"sr", "sr-Latn", "sr-Latn-x-torlak"}
    assert cli.main(["tasks", "nus"]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("sib200 ")]
    assert row.endswith("prompt lines; words for topic, science/technology, travel, politics, sports, health, "
                        "entertainment, geography")  # fmt: skip


@pytest.mark.parametrize(
    ("name", "tags"),
    [
        ("no", {"nb", "nn"}),  # macrolanguages
        ("Norwegian", {"nb", "nn"}),
        ("zh", {"zh", "zh-Hans", "zh-Hant"}),
        ("cmn", {"zh", "zh-Hans", "zh-Hant"}),
        ("iw", {"he"}),  # earlier and longer codes of the same language
        ("glg", {"gl"}),
        ("PT-br", {"pt-BR"}),
    ],
)
def test_tags_stand_for_scripts_regions_and_members(name, tags, capsys):
    assert cli.main(["tasks", name]) == 0
    *rows, last = capsys.readouterr().out.splitlines()
    header = next(n for n, line in enumerate(rows) if line.startswith("task "))
    general = {"pt"} if name == "PT-br" else set()
    assert {line[line.index(" ") :].split()[0] for line in rows[header + 1 :]} == tags | general
    assert last.partition(" in ")[2].partition(" (")[0] == ", ".join(sorted(tags))


def test_init_writes_all_scripts_of_a_language_and_names_what_is_left_out(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["init", "own.yaml", "--model", "tiny/own", "--language", "Serbian"]) == 0
    output, text = capsys.readouterr().out, Path("own.yaml").read_text()
    included = {name: load_task(path)["languages"] for name, path in task_names([WORKFLOW / "tasks"]).items()}
    own = {name: [tag for tag in tags if tag in ("sr", "sr-Cyrl", "sr-Latn")] for name, tags in included.items()}
    for name, tags in own.items():
        assert all(f"{{task: {name}, languages: [{tag}" in text or f", {tag}" in text for tag in tags)
    assert f"{sum(map(bool, own.values()))} tasks" in output
    assert (
        "Note: Serbian: sr, sr-Cyrl, sr-Latn; left out: Serbian (sr-Cyrl-x-torlak), Serbian (sr-Latn-x-torlak)"
        in output
    )


FOUR = "eu gl ca pt sr-Latn sr-Cyrl hr bs sl mk ar ka mt cy ga is fo nb nn lv lt et am ha ig yo sw zu xh"


def test_languages_that_no_leaderboard_serves_have_several_tasks():
    tasks = [load_task(path) for path in task_names([WORKFLOW / "tasks"]).values()]
    counts = {language: sum(language in task["languages"] for task in tasks) for language in f"{FOUR} ast oc".split()}
    assert {language: n for language, n in counts.items() if n < (3 if language in ("ast", "oc") else 4)} == {}


def test_treebank_without_a_pattern_lists_them(directory, capsys):
    assert cli.main(["treebank", "any.conllu"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()[:-1]]
    assert names == builtin_patterns()


def test_tasks_of_unknown_language_suggest_others(capsys):
    assert cli.main(["tasks", "xx"]) == 1
    assert 'no task in the language "xx"' in capsys.readouterr().err


def test_show_marks_the_scored_span(directory, capsys):
    assert cli.main(["show", "mine.yaml", "calame.gl.last_word.0shot", "--item", "2"]) == 0
    text = capsys.readouterr().out
    assert "item 2 of 12" in text
    assert "Quérolle moito ao meu⟦ avó⟧" in text


def test_show_marks_the_correct_option(directory, capsys):
    assert cli.main(["show", "mine.yaml", "global_piqa.sr.minimal_pair.0shot"]) == 0
    lines = capsys.readouterr().out.splitlines()
    marks = {line for line in lines if line.startswith("--- ")}
    assert len([line for line in marks if line.endswith(" (correct)")]) == len(marks) / 2
    assert {line.rpartition(" (")[0] for line in marks} >= {"--- choice:0", "--- choice:1"}


def test_show_prints_the_few_shot_prompt_and_stop_strings(directory, capsys):
    assert cli.main(["show", "mine.yaml", "openbookqa.gl.generation.5shot"]) == 0
    text = capsys.readouterr().out
    assert text.count("Pregunta:") == 12  # five examples and the question, as messages and as text
    assert "stop strings: '\\n'" in text


@pytest.mark.parametrize("options", [["-n"], ["-n", "--profile", "slurm"]], ids=" ".join)
def test_run_plans_a_config_of_any_directory_with_the_quiet_profile(directory, options):
    command = [sys.executable, "-m", "vernacular", "run", "mine.yaml", *options]
    (directory / "bin").mkdir()
    (directory / "bin" / "which").symlink_to(shutil.which("which"))  # Snakemake's plugin asks for programs of SLURM
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{directory / 'bin'}"}
    run = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, env=environment)
    output = run.stdout + run.stderr
    assert run.returncode == 0, output
    assert "infer: evaluate tiny" in output
    assert "reason:" not in output
    assert output.count("sbatch not found: ") == ("slurm" in options)


def test_run_names_a_missing_config(directory, capsys):
    assert cli.main(["run", "yours.yaml", "-n"]) == 1
    assert capsys.readouterr().err.startswith("yours.yaml: file not found")


@pytest.mark.slow
def test_advice_of_a_job_is_a_command_for_the_config_and_the_directory(directory):
    text = (directory / "mine.yaml").read_text().replace("data: samples", "data: hub")
    (directory / "mine.yaml").write_text(text + "output: results-mine\n")
    command = [sys.executable, "-m", "vernacular", "run", "mine.yaml", "-c1", "--until", "items"]
    environment = os.environ | {
        "HF_ENDPOINT": "http://127.0.0.1:9",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(directory / "home"),
    }
    subprocess.run(command, cwd=directory, capture_output=True, env=environment, check=False)
    log = (directory / "logs" / "items" / "items.log").read_text()
    assert "`vernacular run mine.yaml -c4 --until items`" in log


def test_show_names_an_item_on_one_line(directory, capsys):
    row = {"id": "a\nb\x1b[2J", "text": "O gato durme.", "label": 1}
    (directory / "own").mkdir()
    (directory / "own" / "rows.jsonl").write_text(json.dumps(row) + "\n")
    columns = {"id": "id", "context": "text", "label": "label"}
    task = {"task": "own", "title": "Own", "citation": "c", "protocols": ["acceptability"], "item_type": "sentence"}
    task |= {"columns": columns, "languages": {"gl": {"source": {"file": "rows.jsonl"}}}}
    (directory / "own" / "own.yaml").write_text(yaml.safe_dump(task))
    config = {"models": {"tiny": {"source": "./tiny"}}, "tasks": ["own"], "evaluations": [{"task": "own"}]}
    (directory / "own_config.yaml").write_text(yaml.safe_dump(config))
    assert cli.main(["show", "own_config.yaml", "own.gl.acceptability.0shot"]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith(r"item 1 of 1: a\u000ab\u001b[2J")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["calame.gl.last_word.1shot"], "calame.gl.last_word.0shot"),
        (["calame.gl.last_word.0shot", "--item", "13"], "expected an item from 1 to 12, got 13"),
        (["calame.gl.last_word.0shot", "--item", "0"], "got 0"),
        (["calame.gl.last_word.0shot", "--model", "tini"], "tiny"),
        (["calame.gl.last_word.0shot", "--model", "tiny"], "resources/models/tiny.json"),
    ],
)
def test_show_errors_name_what_exists(directory, capsys, arguments, expected):
    assert cli.main(["show", "mine.yaml", *arguments]) == 1
    assert expected in capsys.readouterr().err


def test_show_prints_the_tokens_that_a_run_scores(directory, capsys):
    tiny.save("llama", directory / "tiny")
    spec = {"name": "tiny", "source": "./tiny", "kind": "auto", "allow_pickle": False}
    assert stages.run("model", spec=spec, out="resources/models/tiny.json") == 0
    (directory / "tiny" / "model.safetensors").rename(directory / "weights")  # not needed
    assert cli.main(["show", "mine.yaml", "calame.gl.last_word.0shot", "--model", "tiny"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if " tokens: " in line)
    marked = [token for token in line.split(": ", 1)[1].split(" ") if "⟦" in token]
    assert marked
    assert "canción".startswith("".join(marked).replace("⟦", "").replace("⟧", "").replace("'", "").strip()[:3])


def test_init_writes_a_valid_config_of_all_tasks_in_the_languages(directory, capsys):
    arguments = [
        "init",
        "new.yaml",
        "--model",
        "me/One-1B@v2",
        "--model",
        "me/files/two.gguf",
        "--language",
        "gl",
        "eu",
    ]
    assert cli.main(arguments) == 0
    config = load(["new.yaml"])
    assert {name: settings["source"] for name, settings in config.models.items()} == {
        "one-1b": "me/One-1B@v2",
        "two": "me/files/two.gguf",
    }
    assert {"gl", "eu"} == {evaluation.language for evaluation in config.evaluations.values()}
    entries = yaml.safe_load((directory / "new.yaml").read_text())["evaluations"]
    assert len(entries) == len({entry["task"] for entry in entries}) > 10


def test_init_takes_servers_and_adapters_of_several_models(directory, capsys):
    sources = [
        "--model",
        "http://localhost:8000/v1",
        "--model",
        "me/one",
        "--adapter",
        "package:vernacular/samples/galician_adapter",
        "--adapter",
        "me/two",
    ]
    assert cli.main(["init", "new.yaml", *sources, "--model", "me/three", "--language", "Galician"]) == 0
    models = yaml.safe_load((directory / "new.yaml").read_text())["models"]
    assert models == {
        "localhost-8000": {"source": "http://localhost:8000/v1"},
        "one": {"source": "me/one", "dtype": "auto"},
        "galician_adapter": {"base": "one", "adapter": "package:vernacular/samples/galician_adapter"},
        "two": {"base": "one", "adapter": "me/two"},
        "three": {"source": "me/three", "dtype": "auto"},
    }
    assert load(["new.yaml"]).servers == ["localhost-8000"]
    assert (
        "Note: model galician_adapter: expected the base HuggingFaceTB/SmolLM2-135M-Instruct" in capsys.readouterr().out
    )


@pytest.fixture
def own_tasks(directory):
    """Return a directory with a task in a language that has no prompt lines."""
    tasks = directory / "my tasks"
    tasks.mkdir()
    (tasks / "pairs.csv").write_text("good,bad\nLa neña canta.,La neña canten.\n")
    (tasks / "quiz.csv").write_text("question,a,b,answer\n¿Cuála ye la capital?,Uviéu,Xixón,A\n")
    for name, columns in (
        ("pairs", "item_type: pair\nprotocols: [minimal_pair]\ncolumns: {good: good, bad: bad}"),
        (
            "quiz",
            "item_type: question\nprotocols: [options]\n"
            "columns: {question: question, choices: [a, b], gold: answer, gold_format: letter}",
        ),
    ):
        languages = f"languages: {{an: {{source: {{file: {name}.csv}}}}}}"
        (tasks / f"{name}.yaml").write_text(f"task: {name}\n{columns}\n{languages}\n")
    return tasks


def test_init_includes_own_tasks_and_comments_on_those_without_prompt_lines(own_tasks, capsys):
    arguments = ["init", "new.yaml", "--model", "me/one", "--language", "an", "--directory", "my tasks"]
    assert cli.main(arguments) == 0
    assert list(load(["new.yaml"]).evaluations) == ["pairs.an.minimal_pair.0shot"]
    (comment,) = [line for line in Path("new.yaml").read_text().splitlines() if line.startswith("  # - ")]
    assert "task: quiz, languages: [an]" in comment
    assert comment.endswith("needs my tasks/prompts/an.yaml")


def test_init_without_any_prompt_lines_says_where_to_write_them(own_tasks, capsys):
    (own_tasks / "pairs.yaml").unlink()
    assert cli.main(["init", "new.yaml", "--model", "me/one", "--language", "an", "--directory", "my tasks"]) == 1
    assert "`vernacular init 'my tasks/prompts/an.yaml' --prompts-from gl` writes the lines" in capsys.readouterr().err
    assert not Path("new.yaml").exists()


def test_prompt_lines_are_written_to_translate_and_read_beside_own_tasks(own_tasks, capsys):
    path = own_tasks / "prompts" / "an.yaml"
    assert cli.main(["init", str(path), "--prompts-from", "gl"]) == 0
    text = path.read_text()
    assert '# heads a question; contains {question} once\n# gl: "Pregunta: {question}"\nquestion: ""\n' in text
    assert cli.main(["init", str(path), "--prompts-from", "gl"]) == 1
    text = re.sub(r'# gl: (".*")\n(\w+): ""', r"\2: \1", text)
    path.write_text(text.replace("Pregunta:", "Entruga:").replace("Resposta:", "Rempuesta:"))
    entry = "{task: quiz, languages: [an], protocols: [options]}"
    Path("new.yaml").write_text(f"models: {{m: {{source: me/one}}}}\ntasks: [./my tasks]\nevaluations: [{entry}]\n")
    capsys.readouterr()
    assert cli.main(["show", "new.yaml", "quiz.an.options.0shot"]) == 0
    assert "Entruga: ¿Cuála ye la capital?\nRempuesta: Uviéu" in capsys.readouterr().out.replace("⟦", "").replace(
        "⟧", ""
    )


def test_lines_that_are_not_translated_are_an_error(own_tasks):
    cli.main(["init", "lines/an.yaml", "--prompts-from", "gl"])
    with pytest.raises(ConfigError, match=r"an.yaml: the lines `passage`, `question`, .* are missing or empty"):
        load_labels("an", Path("lines"))
    assert LINES.keys() == PURPOSES.keys()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["mine.yaml", "--model", "me/one", "--language", "gl"], "the file exists"),
        (["new.yaml", "--model", "me/one", "--language", "xx"], 'language "xx". For your own data, write a'),
        (
            ["new.yaml", "--adapter", "./a", "--model", "me/one", "--language", "gl"],
            "--adapter ./a: expected a --model",
        ),
        (["new.yaml", "--language", "gl"], "--model and --language are required"),
        (["new.yaml", "--model", "me/one", "--model", "you/one", "--language", "gl"], 'would be named "one"'),
        (["new.yaml", "--model", "me/store", "--language", "gl"], 'models.store: "store" is the name of a directory'),
    ],
)
def test_init_errors_write_nothing(directory, capsys, arguments, expected):
    assert cli.main(["init", *arguments]) == 1
    error = capsys.readouterr().err
    assert expected in error
    assert ".tmp" not in error
    assert os.listdir() == ["mine.yaml"]


def test_output_may_be_cut_by_its_reader():
    command = f"{sys.executable} -m vernacular tasks | head -n 1"
    run = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], cwd=ROOT / "workflow", capture_output=True, text=True
    )
    assert run.returncode == 0
    assert "Traceback" not in run.stderr


@pytest.fixture(scope="module")
def completion():
    pytest.importorskip("shtab", exc_type=ImportError)
    command = [sys.executable, "-m", "vernacular", "--print-completion", "bash"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [(["sh"], ["show"]), (["check", "--on"], ["--online"]), (["check", "config."], ["config.yaml"])],
)
def test_bash_completes_commands_options_and_files(completion, tmp_path, words, expected):
    (tmp_path / "completion").write_text(completion)
    (tmp_path / "config.yaml").touch()
    line = " ".join(["vernacular", *words])
    command = (
        f"source ./completion; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _shtab_vernacular; echo ${{COMPREPLY[@]}}"
    )
    run = subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert run.stdout.split() == expected


# C0, C1, DEL, a carriage return, direction overrides and isolates, line separators, lone surrogates
HOSTILE = [*map(chr, (*range(9), *range(11, 32), *range(127, 160))), *"\u2028\u2029\u202a\u202b\u202c\u202d\u202e"]
HOSTILE += [*"\u2066\u2067\u2068\u2069", "\ud800", "\udcff"]
LANGUAGE = "\tنَم\u200cیθ\u200d क्षि \u200f(א)\u200e é"  # joiners, marks, letters from right to left


def _hostile_task(directory: Path) -> None:
    text = "".join(f"<{character}>" for character in HOSTILE) + LANGUAGE
    row = {"id": "\x1b]0;item\x07", "question": f"{text}\r\nline", "a": "\x1b[2J", "b": "\u202etwo", "answer": "A"}
    (directory / "rows.jsonl").write_text("".join(json.dumps(row | {"id": f"{row['id']}{i}"}) + "\n" for i in range(3)))
    task = {"task": "hostile"}
    task |= {"protocols": ["letters"], "item_type": "question", "languages": {"gl": {"source": {"file": "rows.jsonl"}}}}
    columns = {"id": "id", "question": "question", "choices": ["a", "b"], "gold": "answer", "gold_format": "letter"}
    (directory / "hostile.yaml").write_text(json.dumps(task | {"columns": columns}))
    entries = [{"task": "hostile", "languages": ["gl"], "protocols": ["letters"], "shots": [0]}]
    config = {"models": {"tiny": {"source": "./tiny"}}, "tasks": ["own"], "evaluations": entries}
    Path("mine.yaml").write_text(json.dumps(config))


def test_texts_of_a_dataset_do_not_control_a_terminal(directory, capsys):
    """Redirected, as here, a text may be printed on a terminal later."""
    (directory / "own").mkdir()
    _hostile_task(directory / "own")
    arguments = ["show", "mine.yaml", "hostile.gl.letters.0shot"]
    process = subprocess.run([sys.executable, "-m", "vernacular", *arguments], capture_output=True, check=False)
    assert process.returncode == 0, process.stderr
    assert cli.main(arguments) == 0
    printed = capsys.readouterr().out
    assert re.sub(r"\([\d.]+ s\)", "", printed) == re.sub(r"\([\d.]+ s\)", "", process.stdout.decode())
    assert not set(HOSTILE) & set(printed)
    for character in HOSTILE[:-2]:  # lone surrogates are replaced when the dataset is read
        assert f"<\\u{ord(character):04x}>" in printed
    assert LANGUAGE in printed
    assert "\\u000d\nline" in printed


def test_errors_and_tracebacks_do_not_control_a_terminal(directory, capsys, monkeypatch):
    Path("mine.yaml").write_text(json.dumps({"models": {"\x1b[2J\u202e": {"source": "./x\x9b"}}}))
    assert cli.main(["check", "mine.yaml"]) == 1
    message = capsys.readouterr().err
    assert "\\u001b[2J\\u202e" in message
    assert not set(HOSTILE) & set(message)

    bug = r"""
import runpy, sys
from vernacular.commands import tasks
def fails(args):
    print("progress \x1b[2J\r", file=sys.stderr)
    raise ZeroDivisionError("\x1b[2J\u202e")
tasks.tasks = fails
sys.argv = ["vernacular", "tasks"]
runpy.run_module("vernacular", run_name="__main__")
"""
    process = subprocess.run([sys.executable, "-c", bug], capture_output=True, check=False)
    printed = process.stderr.decode()
    assert "progress \\u001b[2J\\u000d\n" in printed
    assert printed.splitlines()[-1] == r"ZeroDivisionError: \u001b[2J\u202e"
    assert not set(HOSTILE) & set(printed)
