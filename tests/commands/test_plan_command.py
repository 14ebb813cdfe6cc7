"""The command `plan`: assumed components, components of an earlier run, and errors."""

import math

import pytest
from support.messages import assert_states
from vernacular import cli
from vernacular.comparison.schema import PROMPTS
from vernacular.core import artifacts

ROW = dict.fromkeys(PROMPTS.schema.names) | {
    "model": "a", "evaluation": "t.gl.letters.0shot.all", "metric": "accuracy", "unit": "share", "headline": True, "n": 200,
    "n_clusters": 100, "n_prompts": 5, "variance_items": 0.04, "variance_prompts": 0.0009, "variance_items_prompts": 0.0,
}  # fmt: skip


@pytest.fixture
def run_directory(tmp_path):
    rows = [ROW, ROW | {"model": "b", "variance_items": 0.06}, ROW | {"model": "b", "baseline": "a"}]
    artifacts.write(tmp_path / "summary" / "prompts.parquet", PROMPTS, rows, {"fingerprint": "x"})
    return tmp_path


def numbers(output, title):
    lines = output.partition(title)[2].splitlines()
    rows = (line.split() for line in lines[2:6] if line.strip())
    return {int(row[0]): row[1:] for row in rows if row[0].isdecimal()}


def test_plan_states_its_assumptions_and_prints_each_design(capsys):
    assert cli.main(["plan", "--items", "100", "400", "--sd-prompts", "3"]) == 0
    output = capsys.readouterr().out
    assert "3 points" in output
    errors = numbers(output, "standard error of a mean")
    assert float(errors[400][3]) < float(errors[400][0])
    differences = numbers(output, "smallest paired difference")
    assert 0 < float(differences[400][0]) < float(differences[100][0])  # paired, with this prompt
    # √((0.32 · clusters' variance) / 100) · (t(0.975) + t(0.8)), as models agree on 68 % of the items
    assert float(differences[100][0]) == pytest.approx(100 * (0.32 / 100) ** 0.5 * (1.984 + 0.845), abs=0.02)


def test_plan_uses_the_mean_components_of_a_run(run_directory, capsys):
    assert cli.main(["plan", "--results", str(run_directory), "--items", "200", "800"]) == 0
    errors = numbers(capsys.readouterr().out, "standard error of a mean")
    # two items per cluster
    assert float(errors[200][0]) == pytest.approx(100 * (0.05 / 100 + 0.0009) ** 0.5, abs=0.006)
    assert float(errors[800][3]) == pytest.approx(100 * (0.05 / 400 + 0.0009 / 5) ** 0.5, abs=0.006)


def test_plan_states_the_items_that_a_standard_error_needs(run_directory, capsys):
    assert cli.main(["plan", "--results", str(run_directory), "--items", "200", "--se", "2"]) == 0
    lines = capsys.readouterr().out.partition("items for a standard error of 2\n")[2].splitlines()
    needed = {line.split()[0]: line.split("  ")[-1] for line in lines[:5]}
    assert needed["1"] == "no number is enough"  # prompts alone differ by 3 points
    assert int(needed["5"].replace(",", "")) == 2 * math.ceil(0.05 / (0.02**2 - 0.0009 / 5))  # two items per cluster


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (
            ["--evaluation", "t.gl.letters.0shot"],
            ("prompts.parquet", '"t.gl.letters.0shot"', '"t.gl.letters.0shot.all"'),
        ),
        (["--metric", "f1"], ("prompts.parquet", '"f1"', "not found")),
        (["--se", "0"], ("--se", "above 0")),
        (["--items", "100", "0"], ("--items: expected at least 1, got 0",)),
        (["--items-per-cluster", "0"], ("--items-per-cluster: expected at least 1, got 0",)),
        (["--sd-prompts", "-1"], ("--sd-prompts: expected at least 0, got -1",)),
    ],
)
def test_plan_errors_name_the_file(run_directory, capsys, arguments, parts):
    assert cli.main(["plan", "--results", str(run_directory), *arguments]) == 1
    assert_states(capsys.readouterr().err, *parts)


def test_plan_of_a_run_with_one_prompt_states_what_to_do(tmp_path, capsys):
    artifacts.write(tmp_path / "summary" / "prompts.parquet", PROMPTS, [], {"fingerprint": "x"})
    assert cli.main(["plan", "--results", str(tmp_path)]) == 1
    assert_states(capsys.readouterr().err, "prompts.parquet", "prompts: all")
