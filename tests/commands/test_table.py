"""Command `table`: a table for a paper from the results of a run."""

import pytest
from support.table_rows import comparison_row, metrics_row, metrics_table, ranking_row  # noqa: F401
from vernacular import cli
from vernacular.comparison.schema import COMPARISONS, PROMPTS, RANKINGS
from vernacular.core import artifacts
from vernacular.metrics.schema import RESULTS
from vernacular.summary.grid import combine_tables, to_arrow

CONFIG = """
models: {base: {source: ./base}, mine: {base: base, adapter: ./lora}, lost: {source: ./lost}}
data: samples
evaluations:
  - {task: openbookqa, languages: [gl], protocols: [generation, letters], shots: 5}
  - {task: belebele, languages: [gl], protocols: [options]}
similarity: {encoders: {default: ./encoder}}
"""
GENERATION, LETTERS = ("openbookqa.gl.generation.5shot", "openbookqa.gl.letters.5shot")


@pytest.fixture
def run(metrics_table, ranking_row, comparison_row, tmp_path, monkeypatch, capsys):  # noqa: F811
    """Return a function that runs `table` in a directory with results, and returns (status, output, errors)."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(CONFIG)
    rows = [
        {"model": model, "protocol": protocol, "value": value, "style": "default", "metric": metric, "seed": 0}
        for model, values in (("base", (0.5, 0.3)), ("mine", (0.45, 0.6)), ("removed", (0.9, 0.9)))
        for (protocol, metric), value in zip(
            (("generation", "cosine_accuracy"), ("letters", "accuracy")), values, strict=True
        )
    ]
    summary = tmp_path / "results" / "summary"
    artifacts.write(summary / "results.parquet", RESULTS, to_arrow(combine_tables([metrics_table(*rows)])), {})
    ranked = [
        ranking_row(model=model, evaluation=LETTERS, metric="accuracy", best="mine", in_best_group=True)
        for model in ("base", "mine")
    ]
    artifacts.write(summary / "rankings.parquet", RANKINGS, ranked, {})
    compared = [comparison_row(evaluation=LETTERS, metric="accuracy")]
    artifacts.write(summary / "comparisons.parquet", COMPARISONS, compared, {})
    artifacts.write(summary / "prompts.parquet", PROMPTS, [], {})

    def table(*arguments):
        status = cli.main(["table", "mine.yaml", *arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return table


def test_table_has_the_models_and_evaluations_of_the_config_and_names_missing_ones(run):
    status, text, errors = run("--format", "markdown")
    lines = text.splitlines()
    assert status == 0
    assert lines[0].count("OpenBookQA") == 2
    assert [line.split(" | ")[0] for line in lines[2:4]] == ["| base", "| mine"]
    assert "**60.0**" in lines[3]
    assert "30.0†" in lines[2]
    assert "(exact McNemar, mid-p)" in lines[-1]
    assert "not tested: gl OpenBookQA, generation, 5 shots" in lines[-1]
    assert errors.startswith(
        "table: no results of model lost, belebele.gl.options.0shot; see results/summary/notes.csv"
    )


def test_table_of_chosen_tasks_protocols_and_models(run):
    arguments = [
        "--protocols",
        "letters",
        "--models",
        "mine",
        "--models",
        "base",
        "--label",
        "tab:x",
        "--marks",
        "interval",
    ]
    status, text, errors = run("--tasks", "openbookqa", "--languages", "gl", *arguments)
    assert (status, errors) == (0, "")
    assert r"\label{tab:x}" in text
    assert r"    mine & \textbf{60.0} {\scriptsize [40.0, 60.0]} \\" in text.splitlines()
    assert text.index("    mine &") < text.index("    base &")
    assert "generation" not in text
    assert run("--tasks", "openbookqa", *arguments, "--models", "base,mine") == (status, text, errors)


def test_transposed_table(run):
    status, text, _ = run("--transpose", "--format", "markdown")
    lines = text.splitlines()
    assert (status, lines[0]) == (0, "| Lang. | Task | Setting | Metric | base | mine |")
    assert lines[3].startswith("| gl | OpenBookQA | letters, 5 shots | Accuracy ↑ | 30.0† |")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--models", "mina"], '"mina" is not a model of mine.yaml. Did you mean "mine"'),
        (["--models", "lost"], '--models: no results of "lost"'),
        (["--tasks", "openbook"], 'no results of "openbook" in this selection. Did you mean "openbookqa"'),
        (["--languages", "es"], '--languages: no results of "es"'),
        (["--metrics", "accurac"], 'Did you mean "accuracy"'),
        (["--width", "-3"], "--width: expected at least 0, got -3."),
        (["--width", "nan"], "--width: expected at least 0, got nan."),
    ],
)
def test_errors_name_what_exists(run, arguments, expected):
    status, text, errors = run(*arguments)
    assert (status, text) == (1, "")
    assert expected in errors


def test_table_without_results_names_the_command_to_run(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["table", "mine.yaml"]) == 1
    expected = "`vernacular run mine.yaml -c4`"  # here are no rules
    assert expected in capsys.readouterr().err
    (tmp_path / "Snakefile").touch()
    (tmp_path / "mine.yaml").rename("my config.yaml")
    assert cli.main(["table", "my config.yaml"]) == 1
    assert "`snakemake -c4 --configfile 'my config.yaml'`" in capsys.readouterr().err
    (tmp_path / "my config.yaml").rename("config.yaml")
    assert cli.main(["table"]) == 1
    assert "`snakemake -c4`" in capsys.readouterr().err


def test_prompts_of_one_evaluation_are_one_column_with_their_mean(run, metrics_table, tmp_path):  # noqa: F811
    config = tmp_path / "mine.yaml"
    prompts = "protocols: [letters], shots: 5, prompts: [default, formal]}"
    config.write_text(CONFIG.replace("protocols: [generation, letters], shots: 5}", prompts))
    common = {"protocol": "letters", "style": "default", "seed": 0, "model": "base"}
    names = {"default": LETTERS, "formal": f"{LETTERS}.formal", "all": f"{LETTERS}.all"}
    rows = [
        common | {"evaluation": name, "prompt": prompt, "value": value}
        for (prompt, name), value in zip(names.items(), (0.3, 0.4, 0.35), strict=True)
    ]
    summary = tmp_path / "results" / "summary"
    artifacts.write(summary / "results.parquet", RESULTS, to_arrow(combine_tables([metrics_table(*rows)])), {})
    mean = {"model": "base", "evaluation": names["all"], "metric": "accuracy", "n": 100, "n_prompts": 2}
    mean |= {"evaluations": [names["default"], names["formal"]], "question": "these prompts"}
    artifacts.write(summary / "prompts.parquet", PROMPTS, [mean], {})
    status, text, errors = run(
        "--models", "base", "--format", "markdown", "--marks", "interval", "--tasks", "openbookqa"
    )
    assert (status, errors) == (0, "")
    lines = text.splitlines()
    assert "letters, 5 shots, mean over prompts" in lines[0]
    assert lines[2].startswith(r"| base | 35.0 \[40.0, 60.0\]")
    assert "Mean over prompts: 2 wordings of the prompt for the same items." in lines[-1]
