"""entities: rows of tokens and tags, prompts, hostile outputs, F1 of resamples against a plain recomputation."""

import contextlib
import json
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from support.messages import assert_states
from support.scoring import score
from support.stage_run import Run
from support.tools import ROOT
from support.workspace import Workspace
from vernacular.comparison.align import align
from vernacular.comparison.pairwise import compare_sides
from vernacular.config import load as config
from vernacular.core.errors import ConfigError, DataError
from vernacular.data.load import load_items, make_items
from vernacular.data.readers import read_rows
from vernacular.data.tasks import load_task, task_names
from vernacular.metrics.aggregate import aggregate
from vernacular.metrics.schema import as_table
from vernacular.protocols.build import build
from vernacular.protocols.entities.metrics import TYPES, counts, listed_entities
from vernacular.protocols.evaluate import declared_metrics, evaluate
from vernacular.protocols.prompts import PROMPTS_DIR, additional_lines
from vernacular.protocols.registry import JUDGED
from vernacular.statistics.intervals import cluster_bootstrap, expanded_tail
from vernacular.statistics.paired import t_quantile

COLUMNS = {"tokens": "tokens", "tags": "tags", "types": ["PER", "ORG", "LOC"], "joiner": " "}
KEYS = {"PER": "persona", "ORG": "organització", "LOC": "lloc"}
# own sentences, with their entities
SENTENCES = [
    ("Ana Pi viu a Vic", "B-PER I-PER O O B-LOC"),
    ("Beograd i Priština", "B-LOC O B-LOC"),
    ("Plou molt", "O O"),
    ("La Creu Roja treballa a Vic i a Vic", "O B-ORG I-ORG O O B-LOC O O B-LOC"),
    ("Pau parla amb Ana", "B-PER O O B-PER"),
    ("El riu és ample", "O O O O"),
    ("Reus guanya", "B-ORG O"),
    ("Ona neix a Olot", "B-PER O O B-LOC"),
]
TASK = """task: noms
title: Noms
protocols: [entities, entities_bits]
item_type: entities
columns: {id: sent_id, tokens: token, tags: tag, types: [PER, ORG, LOC]}
source: {file: test.iob, few_shot: dev.iob, format: iob}
languages: {ca: {}}
"""


def rows_of(sentences=SENTENCES):
    return [{"tokens": text.split(), "tags": tags.split()} for text, tags in sentences]


def items_of(rows, **columns):
    return make_items(rows, "entities", COLUMNS | columns)


def answer_of(item):
    return json.dumps({KEYS[name]: texts for name, texts in json.loads(item["target"]).items()}, ensure_ascii=False)


def requests_of(items, protocol="entities", language="ca", **settings):
    task = {"task": "noms", "item_type": "entities", "protocols": [protocol]}
    task["languages"] = {language: {"columns": COLUMNS}}
    settings = {"shots": 0, "seed": 0, "style": "default", "options": {}} | settings
    return build(items, task, language=language, protocol=protocol, **settings)


def results(texts, sentences=SENTENCES):
    """Return the results of outputs, one per sentence; None: a failed generation."""
    items, _ = items_of(rows_of(sentences))
    items = [item | {"item_id": f"s{number}", "repeats": None} for number, item in enumerate(items)]
    requests, _ = requests_of(items)
    outputs = [
        {"item_id": row["item_id"], "role": row["role"], "raw_output": text, "output": text, "finish_reason": "stop"}
        | {"flags": None if text is not None else "error: out of memory"}
        for row, text in zip(requests, texts, strict=True)
    ]
    return items, *evaluate("entities", items, requests, outputs, [])


def garbled(items, seed):
    """Return answers without a third of the entities, and with some of another type."""
    rng = np.random.default_rng(seed)
    answers = []
    for item in items:
        answer = {key: [] for key in KEYS.values()}
        for name, texts in json.loads(item["target"]).items():
            for text in texts:
                if rng.random() > 1 / 3:
                    answer[KEYS[name] if rng.random() > 0.2 else "lloc"].append(text)
        answers.append(json.dumps(answer, ensure_ascii=False))
    return [*answers[:-1], "no ho sé"]


def test_worked_example():
    gold, output = Counter({("LOC", "Beograd"): 1, ("LOC", "Priština"): 1}), '{"lloc": ["Beograd", "Brisel"]}'
    values = counts(listed_entities(output, KEYS), gold, KEYS)
    assert [values[f"entity_f1#{number}"] for number in range(3)] == [1, 2, 2]
    assert values["entity_f1"] == 0.5
    assert "entity_f1_DATE#0" not in values  # a type that the task does not have


def test_values_by_hand():
    # listed and correct: 2 of 2; 1 of 2; none, none gold; Vic twice of Vic three times, with a wrong type; failed; …
    texts = [
        '{"persona": ["Ana Pi"], "lloc": ["Vic"]}',
        '{"lloc": ["Beograd", "Brisel"]}',
        "{}",
        '{"organització": [], "lloc": ["Vic", "Vic", "Vic", "Creu Roja"]}',
        None,
        "cap",
        '{"organització": ["reus"]}',
        '{"persona": ["Ona"], "lloc": ["Olot"], "data": ["avui"]}',
    ]
    _, rows, metrics = results(texts)
    values = {row["metric"]: row for row in aggregate(rows, metrics, seed=0, categories=False)}
    correct, listed, gold = 2 + 1 + 0 + 2 + 0 + 0 + 2, 2 + 2 + 0 + 4 + 0 + 1 + 3, 2 + 2 + 0 + 3 + 0 + 1 + 2
    assert values["entity_f1"]["value"] == 2 * correct / (listed + gold)
    assert values["precision"]["value"] == correct / listed
    assert values["recall"]["value"] == correct / gold
    assert (values["unparsable"]["value"], values["unparsable"]["n"]) == (1 / 7, 7)
    assert values["entity_f1_PER"]["value"] == 1  # Ana Pi, Ona
    assert values["entity_f1_LOC"]["value"] == 2 * 5 / (8 + 6)
    assert values["entity_f1_ORG"]["value"] == 0
    assert "entity_f1_DATE" not in values
    assert [row["flags"] for row in rows] == [
        *[None] * 4, "error: out of memory", "unparsable", None, "unknown key"
    ]  # fmt: skip
    assert rows[4]["metrics"] == {}
    assert "entity_f1" not in rows[2]["metrics"]  # nothing to find, and nothing found
    assert rows[0]["choices"] == ['{"persona": ["Ana Pi"], "organització": [], "lloc": ["Vic"]}']


VIC = {("LOC", "Vic"): 1}


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ('```json\n{"lloc": ["Vic"]}\n```', VIC),
        ('Aquí la tens:\n\n{\n  "lloc": [\n    "Vic"\n  ]\n}\nEspero que serveixi {"lloc": ["Olot"]}', VIC),
        (' {"LLOC": [" Vic "], "persona": null, "organització": [""]} Frase: x', VIC),
        ('{"organitzacio\u0301": ["Cafe\u0301  Vic"]}', {("ORG", "Café Vic"): 1}),
        ('{"lloc": "Vic"}', VIC),
        ('{"lloc": ["\u200fVic\u200e"]}', VIC),
        ('{"lloc": ["Vic"], "lloc": ["Olot", "Vic"]}', {("LOC", "Vic"): 2, ("LOC", "Olot"): 1}),
        ('{"ciutat": ["Vic"], "LOC": ["Vic"]}', {(None, "Vic"): 2}),
        ('{"место": ["Вић"]}', {(None, "Вић"): 1}),
        ('{"lloc": ["ВИЦ"]}', {("LOC", "ВИЦ"): 1}),  # in another script: another text
        ('{"lloc": ["vic"]}', {("LOC", "vic"): 1}),
        ('{"lloc": ["\\ud83d"]}', {("LOC", "\ud83d"): 1}),
        ("{}", {}),
        ('{"lloc": [["Vic"]]}', None),
        ('{"lloc": {"Vic": "ciutat"}}', None),
        ('{"lloc": [{"Vic": 1}]}', None),
        ('{"lloc": [{}]}', None),
        ('{"lloc": ["Vic", 7]}', None),
        ('{"lloc": 7}', None),
        ('{"lloc": true}', None),
        ('{"lloc": NaN}', None),
        ("{'lloc': ['Vic']}", None),
        ('{"lloc": ["Vic", "Olo', None),
        ('{"lloc": ["Vic"]', None),
        ('["Vic"]', None),
        ("Vic", None),
        ("", None),
        ('{"lloc": ' + "[" * 100_000, None),
        ('{"lloc": ' + '{"a":' * 100_000, None),
        ('{"lloc": ' + "9" * 10_000 + "}", None),
    ],
)
def test_hostile_outputs(output, expected):
    listed = listed_entities(output, KEYS)
    assert listed == (expected if expected is None else Counter(expected))


def plain_f1(rows, items, indices):
    """Return the F1 score of sentences from their outputs, computed without counts."""
    correct = listed = gold = 0
    for index in indices:
        expected = [(name, text) for name, texts in json.loads(items[index]["target"]).items() for text in texts]
        with contextlib.suppress(ValueError):
            answer = json.loads(rows[index]["prediction"])
            for name, key in KEYS.items():
                for text in answer[key]:
                    listed += 1
                    left = Counter(expected)[name, text] - answer[key][: answer[key].index(text)].count(text)
                    correct += left > 0
        gold += len(expected)
    return 2 * correct / (listed + gold)


def results_of_garbled(seed):
    items, _ = items_of(rows_of(SENTENCES * 4))
    return results(garbled(items, seed), SENTENCES * 4)[:2]


def plain_draws(rows, items, resamples):
    draws = np.random.default_rng(0).integers(len(rows), size=(resamples, len(rows)))
    return np.array([plain_f1(rows, items, drawn) for drawn in draws])


def test_interval_is_that_of_the_f1_of_drawn_sentences():
    items, rows = results_of_garbled(1)
    metric = declared_metrics("entities")["entity_f1"]
    arrays = [np.array([row["metrics"][name] for row in rows]) for name in metric.needs]
    interval = cluster_bootstrap(metric.corpus, arrays, [None] * len(rows), resamples=100, seed=0)
    tail = expanded_tail(len(rows))
    assert interval == pytest.approx(np.quantile(plain_draws(rows, items, 100), [tail, 1 - tail]), abs=1e-12)
    assert 0 < interval[0] < plain_f1(rows, items, range(len(rows))) < interval[1] < 1


def test_paired_difference_is_that_of_the_f1_of_drawn_sentences():
    (items, first), (_, second) = results_of_garbled(1), results_of_garbled(2)
    order = sorted(range(len(items)), key=lambda index: items[index]["item_id"])
    items, first, second = ([rows[index] for index in order] for rows in (items, first, second))
    aligned, sides = align({"a": as_table(first), "b": as_table(second)})
    metric = declared_metrics("entities")["entity_f1"]
    (row,) = compare_sides(aligned, sides, [("a", "b")], [metric], {}, seed=0, resamples=100, categories=False)
    n = len(items)
    difference = plain_f1(second, items, range(n)) - plain_f1(first, items, range(n))
    error = (plain_draws(second, items, 100) - plain_draws(first, items, 100)).std(ddof=1) * np.sqrt(n / (n - 1))
    half_width = error * t_quantile(0.975, n - 1)
    assert row["difference"] == pytest.approx(difference, abs=1e-12)
    expected = (difference - half_width, difference + half_width)
    assert (row["ci_low"], row["ci_high"]) == pytest.approx(expected, abs=1e-9)


def test_tags_become_entities():
    items, counted = items_of(
        rows_of([*SENTENCES[:1], ("a b c d e f", "I-PER I-PER B-PER I-LOC O I-LOC"), ("a b", "B-LOC B-LOC")])
    )
    assert items[0]["context"] == "Ana Pi viu a Vic"
    assert json.loads(items[0]["target"]) == {"PER": ["Ana Pi"], "ORG": [], "LOC": ["Vic"]}
    assert json.loads(items[1]["target"]) == {"PER": ["a b", "c"], "ORG": [], "LOC": ["d", "f"]}
    assert json.loads(items[2]["target"]) == {"PER": [], "ORG": [], "LOC": ["a", "b"]}
    assert counted["repaired"] == {"I- without B- begins an entity": 1}


@pytest.mark.parametrize(
    ("tokens", "tags", "reason"),
    [
        (["a", "b"], ["O"], "2 tokens and 1 tags"),
        (["a"], ["S-PER"], 'tag "S-PER" is neither O'),
        (["a"], ["B-MISC"], "(PER, ORG, LOC)"),
        (["a"], ["B"], 'tag "B"'),
        (["a"], ["o"], 'tag "o"'),
        (["a"], ["O-PER"], 'tag "O-PER"'),
        (["a"], [7], 'tag "7"'),
        (["a"], [None], 'tag ""'),
        (["a", ""], ["O", "B-PER"], "entity without text"),
        ([""], ["O"], "empty sentence"),
    ],
)
def test_malformed_rows_are_dropped_with_their_reason(tokens, tags, reason):
    items, counted = items_of([{"tokens": tokens, "tags": tags}])
    assert items == []
    ((_, first),) = counted["first_dropped"].items()
    assert_states(first, "row 0", reason)


NAMES = {"0": "O", "1": "B-PER", "2": "I-PER", "3": "B-LOC", "4": "I-LOC", "5": "O"}


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        ({"tokens": ["Ana", "Pi", "a", "Vic"], "tags": [1, 2, 5, 3]}, {}),
        ({"tokens": "['Ana' 'Pi' 'a' 'Vic']", "tags": "[1 2 5 3]"}, {}),
        ({"tokens": "Ana Pi a Vic", "tags": "1 2 5 3"}, {"separator": " "}),
    ],
)
def test_numbers_of_tags_are_replaced_by_their_names(row, columns):
    columns |= {"tags": {"column": "tags", "values": NAMES}}
    (item,), counted = items_of([row], **columns)
    assert (item["context"], counted["repaired"]) == ("Ana Pi a Vic", {})
    assert json.loads(item["target"]) == {"PER": ["Ana Pi"], "ORG": [], "LOC": ["Vic"]}
    _, counted = items_of([{"tokens": ["a", "b"], "tags": [0, 9]}], **columns)
    assert_states(counted["first_dropped"]["value not among those of the task file"], 'got "9"')


def test_files_with_a_token_per_line(tmp_path):
    path = tmp_path / "a.iob2"
    path.write_text(
        "# newpar\n# sent_id = s1\n# text = x = y\n1\tAna Pi\tB-PER\n2\t#\tO\n\n \n\n3\tVic\tB-LOC\r\n", "utf-8"
    )
    first, second = read_rows(path, "iob", header=["number", "token", "tag"])
    assert first == {
        "sent_id": "s1", "text": "x = y", "number": ["1", "2"], "token": ["Ana Pi", "#"], "tag": ["B-PER", "O"]
    }  # fmt: skip
    assert second == {"number": ["3"], "token": ["Vic"], "tag": ["B-LOC"]}
    assert second.location.endswith("line 9")
    path.write_text("Ana B-PER \n# O\n O\nPi\u00a0i I-PER\n\nVic\n", "utf-8")
    with pytest.raises(DataError) as raised:
        read_rows(path, "iob")
    assert_states(raised.value, "a.iob2, line 6", "expected 2 columns (token, tag), got 1")
    path.write_text("Ana B-PER \n# O\n O\nPi\u00a0i I-PER\n", "utf-8")
    assert read_rows(path, "iob") == [{"token": ["Ana", "#", "", "Pi\u00a0i"], "tag": ["B-PER", "O", "O", "I-PER"]}]


def write_iob(path, sentences, first=0):
    blocks = []
    for number, (text, tags) in enumerate(sentences, start=first):
        lines = [" ".join(pair) for pair in zip(text.split(), tags.split(), strict=True)]
        blocks.append("\n".join([f"# sent_id = s{number}", *lines]))
    path.write_text("\n\n".join(blocks) + "\n", "utf-8")


def test_prompt_has_examples_with_the_words_of_the_language(tmp_path):
    (tmp_path / "noms.yaml").write_text(TASK, "utf-8")
    write_iob(tmp_path / "test.iob", SENTENCES[1:])
    write_iob(tmp_path / "dev.iob", SENTENCES[:1])
    task = load_task(tmp_path / "noms.yaml")
    items, _ = load_items(task, "ca")
    settings = {"language": "ca", "protocol": "entities", "shots": 1, "seed": 0, "style": "default", "options": {}}
    rows, _ = build(items, task, **settings)
    example = '{"persona": ["Ana Pi"], "organització": [], "lloc": ["Vic"]}'
    assert rows[0]["prefix"] == f"Frase: Ana Pi viu a Vic\nEntitats anomenades: {example}\n\n"
    assert rows[0]["text"] == "Frase: Beograd i Priština\nEntitats anomenades:"
    assert (rows[0]["stop"], rows[0]["max_new_tokens"]) == (["\nFrase:"], 128)
    assert [turn["role"] for turn in rows[0]["messages"]] == ["user", "assistant", "user"]
    assert rows[0]["messages"][1]["content"] == example
    rows, _ = build(items, task, **settings | {"style": "english"})
    assert rows[0]["prefix"].endswith(
        'Named entities: {"person": ["Ana Pi"], "organization": [], "location": ["Vic"]}\n\n'
    )
    assert items[0]["item_id"] == "s0"


def test_bits_are_those_of_the_correct_answer_after_the_same_prompt():
    items, _ = items_of(rows_of())
    items = [item | {"repeats": None} for item in items]
    generated, _ = requests_of(items, shots=2)
    rows, _ = requests_of(items, "entities_bits", shots=2)
    by_id = {item["item_id"]: item for item in items}
    for request, row in zip(generated, rows, strict=True):
        full = row["prefix"] + row["text"]
        assert full[: row["span_start"]] == request["prefix"] + request["text"]
        assert full[row["span_start"] : row["span_end"]] == f" {answer_of(by_id[row['item_id']])}"
    scores = [score(row, -np.log(2.0) * 8, offsets=[[row["span_start"], row["span_end"]]]) for row in rows]
    results, metrics = evaluate("entities_bits", items, rows, scores, [])
    n_bytes = sum(len(f" {answer_of(by_id[row['item_id']])}".encode()) for row in rows)
    values = {row["metric"]: row["value"] for row in aggregate(results, metrics, seed=0, categories=False)}
    assert values["answer_bits_per_byte"] == pytest.approx(8 * len(rows) / n_bytes)


def test_words_that_lack_are_named():
    with pytest.raises(ConfigError) as raised:
        additional_lines(("entities",), "gl", types=("PER", "FRUIT"))
    assert_states(raised.value, "gl.yaml", '"FRUIT"', "entity_types: {FRUIT: …}")


def test_words_of_two_types_differ(tmp_path):
    (tmp_path / "gl.yaml").write_text("entities: 'Nomes:'\nentity_types: {PER: nome, LOC: Nome}\n", "utf-8")
    with pytest.raises(ConfigError) as raised:
        additional_lines(("entities",), "gl", tmp_path, types=("PER", "LOC"))
    assert_states(raised.value, "gl.yaml", "another word", "entity_types")


@pytest.mark.parametrize("path", sorted(PROMPTS_DIR.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_language_has_words_for_the_usual_types(path):
    lines = additional_lines(("entities",), path.stem, types=tuple(TYPES))
    assert len(set(lines.values())) == len(TYPES) + 1


@pytest.mark.parametrize("name", ["uner", "masakhaner"])
def test_included_tasks_read_files_with_a_token_per_line(name, tmp_path):
    task = load_task(task_names([ROOT / "workflow" / "tasks"])[name])
    tabs = "1\tAna\tB-PER\t_\tx\n2\tPi\tI-PER\t_\tx\n3\tLeu\tB-OTH\t_\tx\n"
    path = tmp_path / "a.iob"
    path.write_text("# sent_id = s7\n" + (tabs if name == "uner" else "Ana B-PER\nPi I-PER\nve O\n"), "utf-8")
    for entry in task["languages"].values():
        (source,) = entry["source"]
        assert source["url"].startswith("https://raw.githubusercontent.com/")
        assert "{" not in source["url"] + source.get("few_shot", "")
        rows = read_rows(path, source["format"], header=source.get("header"))
        (item,), _ = make_items(rows, "entities", entry["columns"])
        assert json.loads(item["target"])["PER"] in (["Ana Pi"], ["AnaPi"])


def test_examples_of_a_task_on_the_web_are_in_a_file_of_their_own(tmp_path):
    write_iob(tmp_path / "test.iob", SENTENCES[1:])
    write_iob(tmp_path / "dev.iob", SENTENCES[:1], first=9)
    (tmp_path / "noms.yaml").write_text(TASK, "utf-8")
    task = load_task(tmp_path / "noms.yaml")
    source = {"url": (tmp_path / "test.iob").as_uri(), "few_shot": (tmp_path / "dev.iob").as_uri(), "format": "iob"}
    task["languages"]["ca"]["source"] = [source]
    items, metadata = load_items(task, "ca")
    assert [item["item_id"] for item in items if item["few_shot"]] == ["shot/s9"]
    assert metadata["source"]["few_shot"] == source["few_shot"]


def test_answers_are_not_prose():
    assert "language_correct" not in declared_metrics("entities")
    assert "entities" not in JUDGED


@pytest.mark.slow
def test_entities_reach_the_tables(tmp_path, few_resamples):
    protocols = ["entities", "entities_bits"]
    entries = [{"task": "noms", "languages": ["ca"], "protocols": protocols, "shots": [0, 1]}]
    workspace = Workspace(tmp_path, entries)
    workspace.config["models"]["other"] = {"source": "./other", "dtype": "float32"}
    workspace.config["comparisons"] = [{"baseline": "tiny", "candidate": "other"}]
    workspace.config["tasks"] = ["mine"]
    workspace.write_config()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "noms.yaml").write_text(TASK, "utf-8")
    write_iob(tmp_path / "mine" / "test.iob", SENTENCES[1:])
    write_iob(tmp_path / "mine" / "dev.iob", SENTENCES[:1], first=9)
    with contextlib.chdir(tmp_path):
        assert Run(config.load(["config.yaml"]), has_versions=True).run_all() == 0
    results = workspace.results()
    values = results[(results["category"] == "") & (results["model"] == "tiny")].set_index(["evaluation", "metric"])
    for evaluation in ("noms.ca.entities.0shot", "noms.ca.entities.1shot"):
        assert values.loc[(evaluation, "entity_f1"), "headline"]
        assert values.loc[(evaluation, "entity_f1"), "value"] == 0  # a model without training lists nothing
        assert values.loc[(evaluation, "unparsable"), "value"] == 1
        assert np.isnan(values.loc[(evaluation, "precision"), "value"])
    assert values.loc[("noms.ca.entities_bits.1shot", "answer_bits_per_byte"), "value"] > 0
    tokens = pd.read_parquet(tmp_path / "results" / "tiny" / "tokens.parquet")
    assert tokens["tokens"].isna().all()  # brackets and keys are no text of the language
    comparisons = pd.read_csv(tmp_path / "results" / "summary" / "comparisons.csv")
    assert {"entity_f1", "recall", "unparsable"} <= set(comparisons["metric"])
