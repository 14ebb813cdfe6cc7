"""Rows of lm-eval's tasks become items: what is worded how, what is kept out and counted, which functions run."""

import json

import pytest
from support.lm_eval_files import settings, write
from vernacular.core.errors import ConfigError, DataError
from vernacular.data.lm_eval import functions, task_file, templates
from vernacular.data.lm_eval.items import lay_out
from vernacular.data.lm_eval.templates import CannotLayOut

FILE = {"kind": "file", "file": "x.jsonl"}


def laid_out(folder, text, rows, shots=(), provenance=FILE, **source):
    _, found = settings(folder, text, **source)
    return lay_out(rows, list(shots), found, folder, provenance)


def text(**keys):
    lines = {"dataset_path": "owner/set", "test_split": "test", "output_type": "multiple_choice", **keys}
    return "".join(f"{key}: {value}\n" for key, value in lines.items())


def test_a_template_cannot_reach_into_python():
    with pytest.raises(CannotLayOut, match="unsafe"):
        templates.render("{{ ''.__class__.__mro__[1].__subclasses__() }}", {})


def test_a_column_that_is_not_there_is_no_empty_text():
    with pytest.raises(CannotLayOut, match="'b' is undefined"):
        templates.render("{{b}}", {"a": 1})


def test_a_trailing_newline_of_a_template_stays():
    assert templates.render("{{a}}\n", {"a": "x"}) == "x\n"


def test_rows_that_cannot_be_laid_out_are_counted_by_reason(tmp_path):
    yaml = text(doc_to_text="'{{q}}'", doc_to_target="right", doc_to_choice="'{{[a, b]}}'")
    rows = [{"q": "?", "a": "si", "b": "non", "right": 0}, {"q": "?", "a": 3, "b": "non", "right": 0}]
    items, counts, _, _ = laid_out(tmp_path, yaml, rows)
    assert (len(items), counts["read"], counts["kept"]) == (1, 2, 1)
    assert counts["dropped"] == {"doc_to_choice is not a list of texts": 1}


def test_a_first_row_that_cannot_be_laid_out_is_an_error_because_it_decides_for_all(tmp_path):
    yaml = text(doc_to_text="'{{gone}}'", doc_to_target="0", doc_to_choice="[a, b]")
    with pytest.raises(DataError, match=r"the first row cannot be rendered .*'gone' is undefined"):
        laid_out(tmp_path, yaml, [{"q": "?"}])


@pytest.mark.parametrize(
    ("right", "gold"), [(1, [1]), ("b", [1]), ("c", []), (7, []), (-1, []), ([0, 1], [0, 1]), ([5, 1], [1])]
)
def test_the_right_option_is_a_number_a_text_or_a_list_and_otherwise_not_known(tmp_path, right, gold):
    yaml = text(doc_to_text="q", doc_to_target="right", doc_to_choice="[a, b]")
    items, counts, _, _ = laid_out(tmp_path, yaml, [{"q": "?", "right": right}])
    assert items[0]["gold"] == gold
    assert bool(counts["repaired"]) == (not gold)


def test_blanks_quotes_and_scripts_come_through_to_the_letter(tmp_path):
    question, options = " =SUM(A1)  \n", [" أكلت ", "🐈‍⬛", ""]
    yaml = text(doc_to_text="q", doc_to_target="0", doc_to_choice="o")
    items, _, _, _ = laid_out(tmp_path, yaml, [{"q": question, "o": options}])
    assert (items[0]["context"], items[0]["choices"]) == (question, options)


def test_csv_columns_are_numbers_as_datasets_reads_them(tmp_path):
    yaml = text(doc_to_text="q", doc_to_target="right", doc_to_choice="[a, b]")
    rows = [{"q": "01 euro", "right": "1"}, {"q": "?", "right": "0"}]
    items, _, _, _ = laid_out(tmp_path, yaml, rows, provenance={"kind": "hub", "files": ["a.csv"]})
    assert [item["gold"] for item in items] == [[1], [0]]
    items, _, _, _ = laid_out(tmp_path, yaml, rows)  # JSON says what is text
    assert [item["gold"] for item in items] == [[], []]


def test_every_row_of_the_pool_keeps_its_place_even_if_it_cannot_be_shown(tmp_path):
    yaml = text(training_split="train", doc_to_text="q", doc_to_target="right", doc_to_choice="[a, b]")
    shots = [{"q": "1", "right": 0}, {"q": "2", "right": 5}, {"q": "1", "right": 0}]
    _, _, examples, counts = laid_out(tmp_path, yaml, [{"q": "?", "right": 0}], shots)
    assert [example["context"] for example in examples] == ["1 a\n\n", "", "1 a\n\n"]
    assert examples[1]["extra"]["cannot"] == "doc_to_target is not the number of an option"
    assert len({example["item_id"] for example in examples}) == 3
    assert counts["duplicates"] == 1


def test_samples_written_in_the_file_are_the_pool(tmp_path):
    yaml = text(doc_to_text="q", doc_to_target="right", doc_to_choice="[a, b]")
    yaml += "fewshot_config: {samples: [{q: Mostra, right: 1}]}\n"
    _, _, examples, _ = laid_out(tmp_path, yaml, [{"q": "?", "right": 0}])
    assert [example["context"] for example in examples] == ["Mostra b\n\n"]


def test_a_trusted_function_runs_and_an_absent_package_matters_only_when_used(tmp_path):
    write(
        tmp_path,
        "tools.py",
        """
        from no_such_package.metrics import rouge
        def loud(dataset):
            return dataset.map(lambda row: {"q": row["q"].upper()})
        def needy(dataset):
            return rouge(dataset)
        """,
    )
    yaml = text(doc_to_text="q", doc_to_target="0", doc_to_choice="[a, b]")
    rows = [{"q": "que?"}]
    items, _, _, _ = laid_out(tmp_path, yaml + "process_docs: !function tools.loud\n", rows, trust_functions=True)
    assert items[0]["context"] == "QUE?"
    with pytest.raises(ConfigError, match=r"requires no_such_package\.metrics\.rouge, which is not installed"):
        laid_out(tmp_path, yaml + "process_docs: !function tools.needy\n", rows, trust_functions=True)
    with pytest.raises(ConfigError, match=r"function not found in .*tools\.py"):
        laid_out(tmp_path, yaml + "process_docs: !function tools.gone\n", rows, trust_functions=True)
    with pytest.raises(ImportError):
        import no_such_package  # noqa: F401


def test_modules_of_the_harness_are_found_in_the_tree_around_a_task(tmp_path):
    write(tmp_path, "lm_eval/utils_of_tests.py", "def tidy(text):\n    return text.strip()\n")
    module = """
        from lm_eval.utils_of_tests import tidy
        def clean(dataset):
            return [{"q": tidy(row["q"])} for row in dataset]
    """
    path = write(tmp_path, "lm_eval/tasks/small/tools.py", module)
    mark = {"function": "tools.clean", "file": str(path), "sha256": "0"}
    assert functions.load(mark, tmp_path)([{"q": " a "}]) == [{"q": "a"}]
    assert task_file.installed() in (None, tmp_path / "lm_eval" / "tasks")  # and still no error


def test_item_ids_follow_the_content_and_not_the_place(tmp_path):
    yaml = text(doc_to_text="q", doc_to_target="0", doc_to_choice="[a, b]")
    rows = [{"q": "un"}, {"q": "dous"}, {"q": "un"}]
    ids = [item["item_id"] for item in laid_out(tmp_path, yaml, rows)[0]]
    assert ids[2] == f"{ids[0]}~2"
    assert laid_out(tmp_path, yaml, rows[1:])[0][0]["item_id"] == ids[1]


def test_several_right_answers_of_a_generated_text_are_all_kept(tmp_path):
    yaml = text(output_type="generate_until", doc_to_text="q", doc_to_target="answers")
    items, _, _, _ = laid_out(tmp_path, yaml, [{"q": "?", "answers": ["un", "1"]}])
    assert json.loads(items[0]["extra"]["targets"]) == ["un", "1"]
    assert json.loads(items[0]["extra"]["ask"])["until"] == ["\n\n"]  # theirs, where a file says none
