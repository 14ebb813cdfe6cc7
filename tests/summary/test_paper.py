"""Tables for papers: selection, marks, caption, and escaping for LaTeX and Markdown."""

import subprocess

import pytest
from support.optional import needs_latex
from vernacular.core.errors import DataError
from vernacular.summary.grid import combine_tables, make_headings
from vernacular.summary.paper import choose, latex_text, make_table, markdown_text, to_latex, to_markdown

TITLES = {"openbookqa": {"title": "OpenBookQA"}, "calame": {"title": "CALAME"}}
LOSS = {
    "task": "calame",
    "protocol": "last_word",
    "shots": 0,
    "metric": "surprisal",
    "unit": "nats",
    "higher_is_better": False,
    "chance_level": None,
    "n": 250,
}


@pytest.fixture
def paper_table(metrics_table, ranking_row):
    """Return a function that makes a table of rows; `ranked`: {(evaluation, metric): (best, in_best_group)}."""

    def make(*rows, ranked=None, compared=None, **arguments):
        long = combine_tables([metrics_table(*({"style": "default"} | row for row in rows))])
        rankings = [
            ranking_row(model=model, evaluation=evaluation, metric=metric, best=best, in_best_group=model in group)
            for (evaluation, metric), (best, group) in (ranked or {}).items()
            for model in long["model"].unique()
        ]
        for row in rankings:
            row |= (compared or {}).get(row["model"], {})
        models = list(long["model"].unique())
        return make_table(long, make_headings(long, TITLES), rankings, **{"models": models} | arguments)

    return make


OPENBOOKQA, CALAME = "openbookqa.gl.generation.5shot", "calame.gl.last_word.0shot"
RANKED = {(OPENBOOKQA, "accuracy"): ("b", "bc"), (CALAME, "surprisal"): ("a", "ac")}
ROWS = [
    {"model": "a", "value": 0.4}, {"model": "b", "value": 0.6254}, {"model": "c", "value": 0.58, "n": 99},
    LOSS | {"model": "a", "value": 1.5}, LOSS | {"model": "b", "value": 3}, LOSS | {"model": "c", "value": None},
]  # fmt: skip
CAPTION = (
    "Surprisal in nats (lower is better); Accuracy in % (higher is better). Items: gl CALAME n = 250; gl OpenBookQA "
    "n = 99–100. Bold: best value of the column. †: not significantly different from the best: paired tests on the "
    "same items (exact McNemar, mid-p), Holm correction over all headline metrics of a pair of models and, against the best of all "
    "models, over all models, significance level 0.05."
)


def test_latex_table_with_significance_marks(paper_table):
    tests = {(OPENBOOKQA, "accuracy"): ["exact McNemar, mid-p"]}
    table = paper_table(*ROWS, ranked=RANKED, tests=tests, models=["c", "b", "a"])
    assert table.caption == CAPTION
    expected = r"""% requires \usepackage{booktabs}
% accuracy|v1
\begin{table}
  \centering
  \caption{CAPTION}
  \label{tab:mine}
  \begin{tabular}{lrr}
    \toprule
    & \multicolumn{2}{c}{gl} \\
    \cmidrule(lr){2-3}
    & \multicolumn{1}{c}{CALAME} & \multicolumn{1}{c}{OpenBookQA} \\
    & \multicolumn{1}{c}{\shortstack{last word, \\ 0 shots}} & \multicolumn{1}{c}{\shortstack{generation, \\ 5 shots}} \\
    Model & \multicolumn{1}{c}{Surprisal $\downarrow$} & \multicolumn{1}{c}{Accuracy $\uparrow$} \\
    \midrule
    c & n/a & 58.0$^{\dagger}$ \\
    b & 3.000 & \textbf{62.5} \\
    a & \textbf{1.500} & 40.0 \\
    \bottomrule
  \end{tabular}
\end{table}
"""
    caption = CAPTION.replace("%", r"\%").replace("†", r"$^{\dagger}$").replace("–", "--")
    assert to_latex(table, "tab:mine") == expected.replace("CAPTION", caption)


def test_transposed_table_has_a_row_per_evaluation(paper_table):
    table = paper_table(*ROWS, ranked=RANKED, models=["c", "b", "a"], transpose=True)
    assert "Bold: best value of the row." in table.caption
    assert "column" not in table.caption
    lines = to_latex(table).splitlines()
    assert r"  \begin{tabular}{llllrrr}" in lines
    headings = " & ".join(rf"\multicolumn{{1}}{{c}}{{{model}}}" for model in "cba")
    assert rf"    Lang. & Task & Setting & Metric & {headings} \\" in lines
    assert r"    gl & CALAME & last word, 0 shots & Surprisal $\downarrow$ & n/a & 3.000 & \textbf{1.500} \\" in lines
    assert (
        r"    & OpenBookQA & generation, 5 shots & Accuracy $\uparrow$ & 58.0$^{\dagger}$ & \textbf{62.5} & 40.0 \\"
        in lines
    )
    assert to_markdown(table).splitlines()[0] == "| Lang. | Task | Setting | Metric | c | b | a |"


@pytest.fixture
def wide(paper_table):
    """A table with a column for each of 20 evaluations, and long names."""
    rows = [
        {"model": m, "task": f"task_{t}", "value": 0.5 + t / 100} for m in ("mine-7b-instruct", "b") for t in range(20)
    ]
    return paper_table(*rows)


def test_table_is_divided_at_the_width_of_the_text(wide):
    parts = wide.parts(345)
    assert 2 < len(parts) < 8
    assert [text for part in parts for text in part.headings[1]] == wide.headings[1]
    assert all(len(row) == len(part.headings[0]) for part in parts for row in part.cells)
    latex = to_latex(wide, "tab:x", 345)
    assert latex.count(r"\begin{table}") == latex.count("mine-7b-instruct &") == len(parts)
    assert [f"\\label{{tab:x{end}}}" in latex for end in ("", "-2")] == [True, True]
    assert to_latex(wide).count(r"\begin{table}") == 1
    assert len(wide.parts(1)) == 20  # never without a column


@needs_latex
@pytest.mark.parametrize("is_transposed", [False, True])
def test_divided_tables_compile_and_fit(wide, is_transposed, tmp_path):
    table = wide.transposed() if is_transposed else wide
    compile_latex(table, tmp_path)


def compile_latex(table, directory):
    """Compile the divided table in an article, in which it fits the text."""
    text = f"\\documentclass{{article}}\\usepackage{{booktabs}}\\begin{{document}}\n{to_latex(table, width=345)}\\end{{document}}"
    (directory / "t.tex").write_text(text)
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "t.tex"], cwd=directory, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull \\hbox" not in done.stdout
    assert "Float too large" not in done.stdout


def test_five_columns_of_two_models_are_one_table(paper_table):
    rows = [{"model": m, "task": f"task_{t}", "value": 0.5 + t / 100} for m in ("mine-7b", "base-7b") for t in range(5)]
    table = paper_table(*rows)
    assert len(table.parts(345)) == 2
    latex = to_latex(table, width=345)
    assert latex.count(r"\begin{table}") == latex.count(r"\footnotesize") == 1


def test_a_table_for_one_column_has_chance_and_intervals_below_values(paper_table):
    rows = [
        {"model": m, "task": f"task_{t}", "value": v, "ci_low": 0.1, "ci_high": 0.9}
        for m, v in (("base", 0.5), ("mine", 0.6))
        for t in range(5)
    ]
    table = paper_table(*rows, {"model": "base", "task": "bits", "chance_level": None}, transpose=True, chance=True,
                        dense=True, intervals=True)  # fmt: skip
    assert table.headings == [["base", "mine", "Chance"]]
    assert [row[-1] and row[-1].text for row in table.cells] == [None, *["25.0"] * 5]
    (part,) = table.parts(219)
    assert part.names[1] == ["gl task_0: generation, 5 shots"]
    latex = to_latex(table, width=219)
    assert latex.count(r"\begin{table}") == 1
    assert r"\shortstack[r]{\textbf{60.0} \\ {\scriptsize [10.0, 90.0]}}" in latex


@needs_latex
def test_transposed_table_of_many_evaluations_with_long_names_fits(paper_table, tmp_path):
    names = [f"carballo-llama-3.1-{k}b-instruct" for k in range(6)]
    settings = [(f"A long title {t}", protocol) for t in range(40) for protocol in ("acceptability", "options")]
    metrics = ["cosine_accuracy", "accuracy"]
    rows = [
        {"model": name, "task": task, "protocol": protocol, "metric": metrics[k % 2], "value": 0.5 + k / 999}
        for name in names
        for k, (task, protocol) in enumerate(settings)
    ]
    table = paper_table(*rows, transpose=True)
    parts = table.parts(345)
    assert sum(len(part.names) * len(part.headings[0]) for part in parts) == len(settings) * len(names)
    compile_latex(table, tmp_path)


def test_markdown_table_with_intervals(paper_table):
    rows = [
        {"model": "a", "value": 0.4, "ci_low": 0.35, "ci_high": 0.4501},
        {"model": "b", "value": 0.5, "ci_low": None, "ci_high": None},
        {"model": "b", "shots": 0, "value": 0.3},
    ]
    assert to_markdown(paper_table(*rows, ranked=RANKED, intervals=True)) == (
        "| Model | gl · OpenBookQA · generation, 0 shots | gl · OpenBookQA · generation, 5 shots |\n"
        "| :-- | --: | --: |\n"
        "| a | – | 40.0 \\[35.0, 45.0\\] |\n"
        "| b | 30.0 \\[40.0, 60.0\\] | **(50.0)** |\n"
        "\n"
        "Table: Accuracy in % (higher is better). n = 100 items. In parentheses: values without a 95 % interval. "
        "In brackets: 95 % intervals over items. Bold: best value of the column.\n"
    )


def test_caption_names_columns_that_were_not_tested(paper_table):
    caption = paper_table(*ROWS[:5], ranked={(OPENBOOKQA, "accuracy"): ("b", "b")}).caption
    assert caption.endswith("Differences were not tested: gl CALAME, last word, 0 shots.")
    caption = paper_table(*ROWS[:3]).caption
    assert caption.endswith("Bold: best value of the column. Differences were not tested.")
    assert "†" not in caption


def test_models_are_tested_against_the_best_of_the_selection(paper_table, ranking_row):
    """The best model of the run is not in the table: the tests of the others against each other are those of the run."""
    table = paper_table(*ROWS[:3], ranked={(OPENBOOKQA, "accuracy"): ("other", "bc")})
    assert [[cell.mark for cell in row] for row in table.cells] == [[0], [2], [0]]
    assert "not tested" in table.caption
    compared = {"a": {"compared_with": ["b"], "worse_than": ["b"]}, "c": {"compared_with": ["b"], "worse_than": []}}
    table = paper_table(*ROWS[:3], ranked={(OPENBOOKQA, "accuracy"): ("other", "bc")}, compared=compared)
    assert [[cell.mark for cell in row] for row in table.cells] == [[0], [2], [1]]


def test_caption_states_that_values_at_chance_have_no_mark(paper_table):
    note = "no value at chance or worse is marked"
    assert note not in paper_table(*ROWS[:3], ranked=RANKED).caption
    table = paper_table({"model": "a", "value": 0.25}, *ROWS[1:3], ranked={(OPENBOOKQA, "accuracy"): ("b", "abc")})
    assert [row[0].mark for row in table.cells] == [0, 2, 1]
    assert table.caption.endswith(f"significance level 0.05; {note}.")


def test_values_at_chance_or_worse_have_no_mark(paper_table):
    table = paper_table(*({"model": m, "value": v} for m, v in (("a", 0.25), ("b", 0.2), ("c", 0.1))))
    assert {cell.mark for row in table.cells for cell in row} == {0}
    assert "Bold" not in table.caption


def test_one_model_or_equal_values_have_no_best(paper_table):
    for rows in ([{"value": 0.5}], [{"model": "a"}, {"model": "b"}]):
        table = paper_table(*rows)
        assert {cell.mark for row in table.cells for cell in row} == {0}
        assert table.caption == "Accuracy in % (higher is better). n = 100 items."


def test_one_metric_represents_an_evaluation_unless_others_are_chosen(paper_table):
    rows = [{"metric": "f1"}, {}, {"metric": "length", "headline": False, "unit": "characters"}]
    assert len(paper_table(*rows).cells[0]) == 1
    table = paper_table(*rows, metrics=["length", "f1"])
    assert table.headings[-1] == ["F1 ↑", "Length ↑"]
    assert "Length in characters" in table.caption
    with pytest.raises(DataError, match="no headline metric"):
        paper_table({"headline": False})


def test_values_by_category_are_not_in_the_table(paper_table):
    table = paper_table({}, {"category": "syntax", "value": 0.9})
    assert [[cell.text for cell in row] for row in table.cells] == [["50.0"]]


def test_negative_values_have_a_minus_sign_and_zero_has_none(paper_table):
    rows = [
        {"model": model, "unit": "score", "value": value, "chance_level": None}
        for model, value in (("a", -0.25), ("b", -0.0001))
    ]
    table = paper_table(*rows)
    assert [row[0].text for row in table.cells] == ["-0.250", "0.000"]
    latex = to_latex(table).splitlines()
    assert r"    a & $-$0.250 \\" in latex
    assert r"    b & \textbf{0.000} \\" in latex


def test_a_half_is_rounded_as_in_the_workbooks(paper_table):
    [[cell]] = paper_table({"value": 0.3125, "ci_low": 0.1875, "ci_high": 0.0625}, intervals=True).cells
    assert (cell.text, cell.interval) == ("31.3", ("18.8", "6.3"))


@pytest.mark.parametrize(
    ("text", "latex", "markdown"),
    [
        ("a_b", r"a\_b", r"a\_b"),
        ("50% & $5 #1", r"50\% \& \$5 \#1", r"50% \& \$5 \#1"),
        ("{x}~^\\", r"\{x\}\textasciitilde{}\textasciicircum{}\textbackslash{}", r"\{x\}\~^" + "\\\\"),
        ("[a]*<b>|c", r"{[}a{]}{*}\textless{}b\textgreater{}\textbar{}c", r"\[a\]\*\<b\>\|c"),
        ("`x`", "`x`", r"\`x\`"),
        ("a--b---c", "a-{}-b-{}--c", "a--b---c"),
        ("gl-modelo ñ 模型", "gl-modelo ñ 模型", "gl-modelo ñ 模型"),
        ("a\nb\x00", r"a b\textbackslash{}x00", "a b\\\\x00"),
    ],
)
def test_escaping(text, latex, markdown):
    assert latex_text(text) == latex
    assert markdown_text(text) == markdown


def test_names_of_models_cannot_change_the_structure(paper_table):
    table = paper_table({"model": r"[x] & \\ | y"}, {"model": "b", "value": 0.1})
    (row,) = [line for line in to_latex(table).splitlines() if r"\textbf" in line]
    assert row == r"    {[}x{]} \& \textbackslash{}\textbackslash{} \textbar{} y & \textbf{50.0} \\"
    (row,) = [line for line in to_markdown(table).splitlines() if "**" in line]
    assert row == r"| \[x\] \& \\\\ \| y | **50.0** |"


def test_unknown_names_suggest_those_with_results(metrics_table):
    long = combine_tables([metrics_table({}, {"task": "belebele"})])
    assert set(choose(long, "task", None, "--tasks")["task"]) == {"openbookqa", "belebele"}
    assert set(choose(long, "task", ["belebele"], "--tasks")["task"]) == {"belebele"}
    with pytest.raises(DataError, match=r'--tasks: no results of "belebel".*Did you mean "belebele"'):
        choose(long, "task", ["belebel"], "--tasks")


def test_demonstration_items_and_failures_are_named(paper_table):
    rows = [{"model": m, "value": v, "dataset_revision": "samples 5a"} for m, v in (("a", 0.5), ("b", 0.4))]
    failures = {("a", OPENBOOKQA): "15 of 16 responses contain none of the options."}
    table = paper_table(*rows, failures=failures)
    assert table.headings[1] == ["OpenBookQA (samples)"]
    assert "(samples): a few demonstration items of the package" in table.caption
    assert table.caption.endswith("‡: a failure explains the value: 15 of 16 responses contain none of the options.")
    lines = to_latex(table).splitlines()
    assert r"    a & \textbf{50.0}$^{\ddagger}$ \\" in lines
    assert r"    b & 40.0 \\" in lines
    mixed = paper_table(*rows, {"language": "es"}).headings
    assert (mixed[1], [" (samples)" in setting for setting in mixed[2]]) == (["OpenBookQA"] * 2, [False, True])
