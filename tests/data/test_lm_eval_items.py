"""Conversion of rows of lm-eval tasks to items: rendered texts, dropped rows with counts, and functions."""

import json

import pytest
from support.lm_eval_files import settings, write
from vernacular.core.errors import ConfigError, DataError
from vernacular.data.lm_eval import functions, task_file, templates
from vernacular.data.lm_eval.items import build_items
from vernacular.data.lm_eval.templates import RenderError

PROVENANCE = {"kind": "file", "file": "x.jsonl"}


def translate_and_build(directory, content, rows, few_shot_rows=(), provenance=PROVENANCE, **source):
    _, lm_eval_settings = settings(directory, content, **source)
    return build_items(rows, list(few_shot_rows), lm_eval_settings, directory, provenance)


def task_yaml(**keys):
    lines = {"dataset_path": "owner/set", "test_split": "test", "output_type": "multiple_choice", **keys}
    return "".join(f"{key}: {value}\n" for key, value in lines.items())


def test_template_cannot_access_python_internals():
    with pytest.raises(RenderError, match="unsafe"):
        templates.render("{{ ''.__class__.__mro__[1].__subclasses__() }}", {})


def test_missing_column_raises_render_error():
    with pytest.raises(RenderError, match="'b' is undefined"):
        templates.render("{{b}}", {"a": 1})


def test_trailing_newline_of_a_template_is_kept():
    assert templates.render("{{a}}\n", {"a": "x"}) == "x\n"


def test_rows_that_cannot_be_rendered_are_counted_by_reason(tmp_path):
    yaml = task_yaml(doc_to_text="'{{q}}'", doc_to_target="right", doc_to_choice="'{{[a, b]}}'")
    rows = [{"q": "?", "a": "si", "b": "non", "right": 0}, {"q": "?", "a": 3, "b": "non", "right": 0}]
    items, counts, _, _ = translate_and_build(tmp_path, yaml, rows)
    assert (len(items), counts["read"], counts["kept"]) == (1, 2, 1)
    assert counts["dropped"] == {"doc_to_choice is not a list of texts": 1}


def test_first_row_that_cannot_be_rendered_raises_data_error(tmp_path):
    yaml = task_yaml(doc_to_text="'{{gone}}'", doc_to_target="0", doc_to_choice="[a, b]")
    with pytest.raises(DataError, match=r"the first row cannot be rendered .*'gone' is undefined"):
        translate_and_build(tmp_path, yaml, [{"q": "?"}])


@pytest.mark.parametrize(
    ("target", "gold"), [(1, [1]), ("b", [1]), ("c", []), (7, []), (-1, []), ([0, 1], [0, 1]), ([5, 1], [1])]
)
def test_gold_from_index_text_or_list(tmp_path, target, gold):
    yaml = task_yaml(doc_to_text="q", doc_to_target="right", doc_to_choice="[a, b]")
    items, counts, _, _ = translate_and_build(tmp_path, yaml, [{"q": "?", "right": target}])
    assert items[0]["gold"] == gold
    assert bool(counts["repaired"]) == (not gold)


def test_whitespace_and_unicode_are_unchanged(tmp_path):
    question, options = " =SUM(A1)  \n", [" أكلت ", "🐈‍⬛", ""]
    yaml = task_yaml(doc_to_text="q", doc_to_target="0", doc_to_choice="o")
    items, _, _, _ = translate_and_build(tmp_path, yaml, [{"q": question, "o": options}])
    assert (items[0]["context"], items[0]["choices"]) == (question, options)


def test_csv_columns_are_typed_as_in_datasets(tmp_path):
    yaml = task_yaml(doc_to_text="q", doc_to_target="right", doc_to_choice="[a, b]")
    rows = [{"q": "01 euro", "right": "1"}, {"q": "?", "right": "0"}]
    items, _, _, _ = translate_and_build(tmp_path, yaml, rows, provenance={"kind": "hub", "files": ["a.csv"]})
    assert [item["gold"] for item in items] == [[1], [0]]
    items, _, _, _ = translate_and_build(tmp_path, yaml, rows)  # JSON has types
    assert [item["gold"] for item in items] == [[], []]


def test_unusable_few_shot_rows_keep_their_index(tmp_path):
    yaml = task_yaml(training_split="train", doc_to_text="q", doc_to_target="right", doc_to_choice="[a, b]")
    few_shot_rows = [{"q": "1", "right": 0}, {"q": "2", "right": 5}, {"q": "1", "right": 0}]
    _, _, examples, counts = translate_and_build(tmp_path, yaml, [{"q": "?", "right": 0}], few_shot_rows)
    assert [example["context"] for example in examples] == ["1 a\n\n", "", "1 a\n\n"]
    assert examples[1]["extra"]["cannot"] == "doc_to_target is not the number of an option"
    assert len({example["item_id"] for example in examples}) == 3
    assert counts["duplicates"] == 1


def test_samples_in_the_task_file_are_the_few_shot_examples(tmp_path):
    yaml = task_yaml(doc_to_text="q", doc_to_target="right", doc_to_choice="[a, b]")
    yaml += "fewshot_config: {samples: [{q: Mostra, right: 1}]}\n"
    _, _, examples, _ = translate_and_build(tmp_path, yaml, [{"q": "?", "right": 0}])
    assert [example["context"] for example in examples] == ["Mostra b\n\n"]


def test_trusted_function_runs_unless_it_calls_a_missing_package(tmp_path):
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
    yaml = task_yaml(doc_to_text="q", doc_to_target="0", doc_to_choice="[a, b]")
    rows = [{"q": "que?"}]
    items, _, _, _ = translate_and_build(
        tmp_path, yaml + "process_docs: !function tools.loud\n", rows, trust_functions=True
    )
    assert items[0]["context"] == "QUE?"
    with pytest.raises(ConfigError, match=r"requires no_such_package\.metrics\.rouge, which is not installed"):
        translate_and_build(tmp_path, yaml + "process_docs: !function tools.needy\n", rows, trust_functions=True)
    with pytest.raises(ConfigError, match=r"function not found in .*tools\.py"):
        translate_and_build(tmp_path, yaml + "process_docs: !function tools.gone\n", rows, trust_functions=True)
    with pytest.raises(ImportError):
        import no_such_package  # noqa: F401


def test_lm_eval_modules_are_found_in_parent_directories(tmp_path):
    write(tmp_path, "lm_eval/utils_of_tests.py", "def tidy(text):\n    return text.strip()\n")
    module = """
        from lm_eval.utils_of_tests import tidy
        def clean(dataset):
            return [{"q": tidy(row["q"])} for row in dataset]
    """
    path = write(tmp_path, "lm_eval/tasks/small/tools.py", module)
    function_spec = {"function": "tools.clean", "file": str(path), "sha256": "0"}
    assert functions.load(function_spec, tmp_path)([{"q": " a "}]) == [{"q": "a"}]
    assert task_file.installed() in (None, tmp_path / "lm_eval" / "tasks")  # does not raise an error


def test_item_ids_depend_on_content_not_index(tmp_path):
    yaml = task_yaml(doc_to_text="q", doc_to_target="0", doc_to_choice="[a, b]")
    rows = [{"q": "un"}, {"q": "dous"}, {"q": "un"}]
    ids = [item["item_id"] for item in translate_and_build(tmp_path, yaml, rows)[0]]
    assert ids[2] == f"{ids[0]}~2"
    assert translate_and_build(tmp_path, yaml, rows[1:])[0][0]["item_id"] == ids[1]


def test_all_targets_of_a_generation_task_are_stored(tmp_path):
    yaml = task_yaml(output_type="generate_until", doc_to_text="q", doc_to_target="answers")
    items, _, _, _ = translate_and_build(tmp_path, yaml, [{"q": "?", "answers": ["un", "1"]}])
    assert json.loads(items[0]["extra"]["targets"]) == ["un", "1"]
    assert json.loads(items[0]["extra"]["settings"])["until"] == ["\n\n"]  # lm-eval's default
