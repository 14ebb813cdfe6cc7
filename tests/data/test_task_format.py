"""What a task file can say of rows beyond names of columns: tags, codes, constants, templates, values, joins, lines."""

import json

import pytest
from support.messages import assert_states
from support.scoring import results_of
from vernacular.config.dependencies import data_files
from vernacular.config.load import load as load_config
from vernacular.core.errors import ConfigError, DataError
from vernacular.data.columns import FORMS
from vernacular.data.load import load_items
from vernacular.data.tasks import load_task
from vernacular.protocols.prompts import load_labels, prompts_directory
from vernacular.protocols.registry import PROTOCOLS

HEAD = "task: mine\nprotocols: [{}]\nitem_type: {}\ncolumns: {}\n"


def task_of(directory, languages: str, columns: str, *, item_type="passage", protocols="options", top="", **files):
    for name, text in files.items():
        path = directory / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    head = HEAD.format(protocols, item_type, columns) + top
    (directory / "mine.yaml").write_text(f"{head}languages:\n{languages}\n", "utf-8")
    return load_task(directory / "mine.yaml", PROTOCOLS)


def test_a_table_of_codes_fills_one_source(tmp_path):
    source = 'source: {hub: a/b, split: test, files: {test: "data/{code}/test.tsv"}}\nexpected_rows: 9\n'
    languages = "  {gl: glg_Latn, sr-Latn: srp_Latn, pt-BR: {code: por_braz, expected_rows: 8}}"
    task = task_of(tmp_path, languages, "{context: text}", item_type="text", protocols="text", top=source)
    entries = task["languages"]
    assert [entry["source"][0]["files"]["test"] for entry in entries.values()] == [
        "data/glg_Latn/test.tsv",
        "data/srp_Latn/test.tsv",
        "data/por_braz/test.tsv",
    ]
    assert [entry["expected_rows"] for entry in entries.values()] == [9, 9, 8]


LABELS = "{context: text, question: {wording: topic}, choices: {labels: [sports, science/technology]}, gold: kind, gold_format: text}"
TSV = "text\tkind\nA liga comezou.\tsports\nA célula divídese.\tscience/technology\n"
WORDINGS = 'wordings: {topic: "De que trata {text}?", sports: deporte, science/technology: ciencia}\n'


def test_labels_have_the_words_of_the_language(tmp_path):
    task = task_of(tmp_path, "  gl: {source: {file: r.tsv}}", LABELS, r_dot_tsv=TSV, prompts__gl_dot_yaml=WORDINGS)
    items, _ = load_items(task, "gl")
    assert [item["choices"] for item in items] == [["deporte", "ciencia"]] * 2
    assert [item["gold"] for item in items] == [[0], [1]]
    assert items[0]["question"] == "De que trata A liga comezou.?"


def test_missing_words_are_reported_for_a_chosen_language_only(tmp_path):
    languages = "  gl: {source: {file: r.tsv}}\n  wbp: {source: {file: r.tsv}}"
    task = task_of(tmp_path, languages, LABELS, r_dot_tsv=TSV, prompts__gl_dot_yaml=WORDINGS)
    assert load_items(task, "gl")[0]
    with pytest.raises(ConfigError) as raised:
        load_items(task, "wbp")
    assert_states(raised.value, "wbp.yaml", '"wbp"', "wordings", '"topic"', '"science/technology"')


def test_inline_labels_constants_and_values(tmp_path):
    columns = "{context: p, question: h, choices: {labels: {yes: Si, no: Non}}, gold: {column: l, values: {1: 0, 0: 1}}, gold_format: index}"
    task = task_of(tmp_path, "  gl: {source: {file: r.csv}}", columns, r_dot_csv="p,h,l\na,b,1\nc,d,0\ne,f,2\n")
    items, metadata = load_items(task, "gl")
    assert [(item["choices"], item["gold"]) for item in items] == [(["Si", "Non"], [0]), (["Si", "Non"], [1])]
    assert metadata["rows"]["dropped"] == {"value not among those of the task file": 1}
    assert_states(metadata["warnings"][0], "r.csv, line 4", 'expected "1", "0"', 'got "2"')


def test_label_of_a_sentence_is_mapped(tmp_path):
    columns = "{context: text, label: {column: label, values: {correct: 1, incorrect: 0}}}"
    rows = "text\tlabel\nBen.\tcorrect\nMal.\tincorrect\n"
    task = task_of(
        tmp_path,
        "  gl: {source: {file: r.tsv}}",
        columns,
        item_type="sentence",
        protocols="acceptability",
        r_dot_tsv=rows,
    )
    assert [item["extra"]["label"] for item in load_items(task, "gl")[0]] == ["1", "0"]


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        ("lower", "İçeri girdi.", "içeri girdi."),  # not i with a second dot
        ("lower", "Işıkları söndürdü.", "ışıkları söndürdü."),
        ("lower", "Ivan ode.", "ivan ode."),
        ("open", "بارش ہوئی۔", "بارش ہوئی"),
        ("open", "Անձրև եկավ։", "Անձրև եկավ"),
        ("open", "下雨了！", "下雨了"),
    ],
)
def test_forms_of_templates_fit_the_script(form, text, expected):
    assert FORMS[form](text) == expected


def test_templates_change_the_ends_of_texts_and_keep_braces(tmp_path):
    columns = '{choices: ["{a:open}, {{si}} {b:lower}", "{a:open,lower} {c|}"], gold: {value: 1}, gold_format: index}'
    task = task_of(
        tmp_path,
        "  gl: {source: {file: r.jsonl}}",
        columns,
        item_type="pair",
        protocols="minimal_pair",
        r_dot_jsonl='{"a": "Chove.", "b": "Molla"}\n{"a": "Chove.", "b": ""}\n',
    )
    items, metadata = load_items(task, "gl")
    assert [(item["choices"], item["gold"]) for item in items] == [(["Chove, {si} molla", "chove"], [1])]
    assert metadata["rows"]["dropped"] == {"empty b": 1}


@pytest.mark.parametrize(
    ("columns", "parts"),
    [
        ('{context: "{a", question: b, choices: [c, d]}', ("columns.context", "invalid template", "{a")),
        ('{context: "{a:upper}", question: b, choices: [c, d]}', ("columns.context", "lower or open")),
        ("{context: {value: x, column: a}, question: b, choices: [c, d]}", ("columns.context", "expected one of")),
        ("{context: {value: x, values: {a: b}}, question: b, choices: [c, d]}", ("values requires", "column")),
        ('{id: "{a}-{b}", context: a, question: b, choices: [c, d]}', ("columns.id", "not a template")),
        ('{context: a, question: b, choices: [c, d], extra: {e: "{a}"}}', ("columns.extra.e", "not a template")),
        ("{context: {colum: x}, question: b, choices: [c, d]}", ("columns.context.colum", "unknown", '"column"')),
        ("{context: a, question: b, choices: {label: [x, y]}}", ("columns.choices.label", "unknown", '"labels"')),
        (
            "{context: a, question: b, choices: [c, d], gold: {value: 0}, gold_format: index}",
            ("gold", "letters", "multi_answer"),
        ),
        ("{context: a, question: b, choices: [c, d]}\njoin: eu", ('"eu"', "not found")),
        ("{context: a, question: b, choices: [c, d]}\njoin: gl", ('"id" is missing',)),
    ],
)
def test_mistakes_are_explained_with_line_and_key(tmp_path, columns, parts):
    with pytest.raises(ConfigError) as raised:
        task_of(tmp_path, "  gl: {source: {file: r.csv}}", columns, protocols="letters")
    assert_states(raised.value, "mine.yaml, line", *parts)


def test_a_code_that_a_source_needs_is_not_guessed(tmp_path):
    with pytest.raises(ConfigError) as raised:
        task_of(tmp_path, '  gl: {source: {file: "{code}.txt"}}', "{context: text}", item_type="text", protocols="text")
    assert_states(raised.value, "languages.gl", '"code" is missing')


@pytest.mark.parametrize("tag", ["sr_Latn", "sr-latn", "SR", "pt-br", "gl/..", "g", "glg_Latn", "sr-Latn\n", "a" * 40])
def test_names_that_are_no_language_tags_are_refused(tmp_path, tag):
    with pytest.raises(ConfigError) as raised:
        task_of(
            tmp_path,
            f"  {json.dumps(tag)}: {{source: {{file: r.csv}}}}",
            "{context: text}",
            item_type="text",
            protocols="text",
        )
    assert "mine.yaml" in str(raised.value)


def test_languages_are_joined_by_id_and_wrong_cells_repaired(tmp_path):
    columns = "{id: idx, context: premise, question: {column: question, repair: _joined.question, values: {cause: porque, effect: así}}, choices: [a, b], extra: {other: _joined.premise}}"
    rows = "idx,premise,question,a,b\n0,Chove.,effect,x,y\n1,Neva.,effect,x,y\n7,Soa.,effect,x,y\n"
    other = "idx,premise,question,a,b\n1,It snows.,effect,x,y\n0,It rains.,cause,x,y\n"
    task = task_of(
        tmp_path,
        "  gl: {source: {file: gl.csv}}\n  en: {source: {file: en.csv}}",
        columns,
        top="join: en\n",
        gl_dot_csv=rows,
        en_dot_csv=other,
    )
    items, metadata = load_items(task, "gl")
    assert [(item["question"], item["extra"]["other"]) for item in items] == [
        ("porque", "It rains."),
        ("así", "It snows."),
    ]
    assert metadata["rows"]["repaired"] == {"question: the value of _joined.question used instead": 1}
    assert metadata["rows"]["dropped"] == {"no row with its ID in the language that it is joined with": 1}
    assert load_items(task, "en")[1]["rows"]["repaired"] == {}


def test_files_of_the_joined_language_and_of_clusters_are_dependencies(tmp_path, monkeypatch):
    source = "source: {file: '{code}.txt', format: lines, clusters: documents.tsv}\njoin: en\n"
    columns = "{id: _row, context: text, extra: {other: _joined.text}}"
    task_of(tmp_path, "  gl: gl\n  en: en", columns, item_type="text", protocols="text", top=source)
    monkeypatch.chdir(tmp_path)
    text = "models: {m: {source: me/one}}\ntasks: [.]\nevaluations: [{task: mine, languages: [gl]}]\n"
    (tmp_path / "config.yaml").write_text(text)
    config = load_config(["config.yaml"])
    [evaluation] = config.evaluations.values()
    assert data_files(config, evaluation) == ["gl.txt", "documents.tsv", "en.txt", "documents.tsv"]


def test_equal_ids_cannot_be_joined(tmp_path):
    columns = "{id: idx, context: text, extra: {other: _joined.text}}"
    task = task_of(
        tmp_path,
        "  gl: {source: {file: r.csv}, join: en}\n  en: {source: {file: e.csv}}",
        columns,
        item_type="text",
        protocols="text",
        r_dot_csv="idx,text\n0,a\n",
        e_dot_csv="idx,text\n0,a\n0,b\n",
    )
    with pytest.raises(DataError, match='mine \\(en\\): two rows have the ID "0"'):
        load_items(task, "gl")


def test_lines_are_rows_with_a_number_and_a_document(tmp_path):
    columns = "{id: _row, context: text, cluster: _cluster}"
    source = "source: {file: '{code}.txt', format: lines, clusters: documents.tsv}\n"
    files = {"glg_dot_txt": "Un.\n\nTres.\n", "documents_dot_tsv": "d1\nd1\nd2\n"}
    task = task_of(tmp_path, "  gl: glg", columns, item_type="text", protocols="text", top=source, **files)
    items, metadata = load_items(task, "gl")
    assert [(item["item_id"], item["context"], item["cluster_id"]) for item in items] == [
        ("0", "Un.", "d1"),
        ("2", "Tres.", "d2"),
    ]
    assert metadata["rows"]["dropped"] == {"empty text": 1}
    (tmp_path / "documents.tsv").write_text("d1\nd1\n")
    with pytest.raises(DataError, match="expected a line for each of 3 rows, got 2"):
        load_items(task, "gl")


def test_rows_are_selected_by_values_and_the_others_counted(tmp_path):
    columns = "{where: {language: [nb, nn], discard: 0}, context: text}"
    rows = "language,discard,text\nnb,0,en\nsv,0,två\nnn,1,ti\nnn,0,tre\n"
    task = task_of(
        tmp_path, "  nn: {source: {file: r.csv}}", columns, item_type="text", protocols="text", r_dot_csv=rows
    )
    items, metadata = load_items(task, "nn")
    assert [(item["context"], item["source_row"]) for item in items] == [("en", 0), ("tre", 3)]
    assert metadata["rows"]["dropped"] == {"not selected by where": 2}


def test_values_of_json_are_those_of_yaml(tmp_path):
    columns = "{where: {keep: true}, context: text, label: {column: ok, values: {true: 1, false: 0}}}"
    rows = '{"keep": true, "text": "a b", "ok": false}\n{"keep": false, "text": "c", "ok": true}\n'
    task = task_of(
        tmp_path,
        "  gl: {source: {file: r.jsonl}}",
        columns,
        item_type="sentence",
        protocols="acceptability",
        r_dot_jsonl=rows,
    )
    assert [(item["context"], item["extra"]["label"]) for item in load_items(task, "gl")[0]] == [("a b", "0")]


def results(task, language, outputs: list[str]) -> list[dict]:
    items, _ = load_items(task, language)
    requests = [
        {"request_id": str(i), "item_id": item["item_id"], "role": "response", "text": "?"}
        for i, item in enumerate(items)
    ]
    generations = [
        {
            "request_id": r["request_id"],
            "item_id": r["item_id"],
            "role": "response",
            "output": text,
            "raw_output": text,
            "flags": None,
            "finish_reason": "stop",
            "decoding": None,
        }
        for r, text in zip(requests, outputs, strict=True)
    ]
    return results_of("generation", items, requests, generations, [])


def test_open_questions_accept_the_best_of_several_answers(tmp_path):
    columns = "{question: q, targets: answers}"
    rows = '{"q": "Where?", "answers": ["in Vigo", "Vigo"]}\n{"q": "Who?", "answers": ["Rosalía de Castro"]}\n{"q": "?", "answers": []}\n'
    task = task_of(
        tmp_path,
        "  gl: {source: {file: r.jsonl}}",
        columns,
        item_type="open_question",
        protocols="generation",
        r_dot_jsonl=rows,
    )
    first, second = results(task, "gl", ["vigo.", "Castro"])
    assert (first["metrics"]["exact_match"], first["correct"]) == (1.0, True)
    assert (second["metrics"]["exact_match"], second["metrics"]["token_f1"]) == (0.0, 0.5)
    assert load_items(task, "gl")[1]["rows"]["dropped"] == {"no accepted answer": 1}


def test_the_last_number_of_an_output_answers_a_question_about_a_number(tmp_path):
    columns = "{id: _row, question: question, targets: number, number: true}"
    source = "source: {file: r.tsv, header: [question, number]}\n"
    rows = "2 + 5?\t7\n600 * 2?\t1,200\nHalf?\t0.5\nNone?\tx\n"
    task = task_of(
        tmp_path, "  en: {}", columns, item_type="open_question", protocols="generation", top=source, r_dot_tsv=rows
    )
    values = [row["metrics"] for row in results(task, "en", ["2 + 5 = 7.", "It is 1200", "5"])]
    assert values == [{"exact_match": 1.0}, {"exact_match": 1.0}, {"exact_match": 0.0}]
    assert load_items(task, "en")[1]["rows"]["dropped"] == {"answer is not a number": 1}


def test_prompt_lines_fall_back_to_the_base_language_in_the_same_script(tmp_path):
    shipped = task_of(tmp_path, "  gl: {source: {file: r.csv}}", "{context: text}", item_type="text", protocols="text")
    assert load_labels("pt-BR", prompts_directory("pt-BR", shipped)) == load_labels("pt")
    assert load_labels("ca-valencia") == load_labels("ca")
    assert load_labels("sr-Latn") == load_labels("sr")
    assert load_labels("sr-Cyrl")["answer"] == "Одговор:"
    with pytest.raises(ConfigError) as raised:
        load_labels("ar-Latn")
    assert_states(raised.value, '"ar-Latn"', "not found")
