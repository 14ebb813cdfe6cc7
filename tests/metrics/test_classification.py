"""Classification: mutual information by hand, macro-F1 and MCC of scikit-learn, headline, baseline, confusion matrix."""

import json

import numpy as np
import pytest
from openpyxl import load_workbook
from sklearn.metrics import f1_score, matthews_corrcoef
from support.result_rows import EVALUATION
from support.sample_items import item
from support.scoring import build_requests, score
from support.workspace import Workspace
from vernacular.comparison.compare import compare_all
from vernacular.core.metadata import MetricsMetadata, ResultsMetadata
from vernacular.data.load import load_items
from vernacular.data.tasks import load_task
from vernacular.metrics import classification
from vernacular.metrics.aggregate import aggregate
from vernacular.metrics.metric import majority_baseline
from vernacular.metrics.schema import as_table
from vernacular.protocols.diagnosis import Diagnoser
from vernacular.protocols.evaluate import declared_metrics, evaluate
from vernacular.protocols.observations import Subject
from vernacular.summary.lists import confusion_rows

NAMES = ["deporte", "ciencia", "viaxes"]
CLASSES = {"class_names": json.dumps(["sports", "science", "travel"])}
GOLD = [0, 0, 1, 1, 2]
# log-probability of each class after the text; after the cue alone, it is PRIOR, which favors the first
TEXT = [[-1, -5, -6], [-3, -4, -4], [-2, -3, -6], [-2, -4, -5], [-1, -2, -3.5]]
PRIOR = [-1, -4, -4]
# pmi: [0, -1, -2], [-2, 0, 0], [-1, 1, -2], [-1, 0, -1], [0, 2, 0.5]


def outputs(extra=CLASSES, protocol="options"):
    """Return items, requests and scores of five texts."""
    columns = {"question": "Cal é o tema?", "choices": NAMES, "extra": extra}
    items = [item(f"i{n}", context=f"Texto {n}.", gold=[gold], **columns) for n, gold in enumerate(GOLD)]
    requests = build_requests(items, "passage", protocol)
    scores = []
    for request in requests:
        kind, _, index = request["role"].partition(":")
        numbers = TEXT[int(request["item_id"][1:])] if kind == "choice" else PRIOR
        scores.append(score(request, float(numbers[int(index)])))
    return items, requests, scores


def values_of(rows, metrics):
    return {row["metric"]: row for row in aggregate(rows, metrics, seed=0, categories=False)}


def test_choice_of_a_class_is_by_mutual_information():
    rows, metrics = evaluate("options", *outputs(), [])
    assert [row["option_scores"] for row in rows][:2] == [[0, -1, -2], [-2, 0, 0]]
    assert [row["predicted_indices"] for row in rows] == [[0], [1, 2], [1], [1], [1]]
    assert [row["correct"] for row in rows] == [True, False, True, True, False]
    assert [row["metrics"]["predicted_class"] for row in rows] == [0, -1, 1, 1, 1]
    assert [row["metrics"]["gold_class"] for row in rows] == GOLD
    values = values_of(rows, metrics)
    assert {name for name, row in values.items() if row["headline"]} == {"accuracy_pmi"}
    assert (values["accuracy_pmi"]["value"], values["accuracy_pmi"]["n_ties"]) == (0.6, 1)
    assert values["accuracy"]["value"] == 0.4  # always the first class
    # sports: 2 · 1 / (2 + 1), science: 2 · 2 / (2 + 3), travel: 0 / 1
    assert values["macro_f1"]["value"] == pytest.approx((2 / 3 + 4 / 5 + 0) / 3)
    assert values["accuracy_pmi"]["chance_level"] == pytest.approx(1 / 3)
    assert majority_baseline("position", rows) == 0.4


def test_other_options_keep_their_choice_headline_and_values():
    rows, metrics = evaluate("options", *outputs(extra={}), [])
    assert [row["option_scores"] for row in rows] == TEXT
    assert [row["predicted_indices"] for row in rows] == [[0], [0], [0], [0], [0]]
    values, of_classes = values_of(rows, metrics), values_of(*evaluate("options", *outputs(), []))
    assert {name for name, row in values.items() if row["headline"]} == {"accuracy"}
    assert of_classes.keys() - values.keys() == {"macro_f1", "mcc"}
    assert {name: row["value"] for name, row in values.items()} == {name: of_classes[name]["value"] for name in values}


@pytest.mark.parametrize("shape", [(60,), (7, 60)])
def test_values_are_those_of_scikit_learn(shape):
    rng = np.random.default_rng(3)
    gold = rng.integers(0, 4, shape).astype(float)
    predicted = np.where(rng.random(shape) < 0.5, gold, rng.integers(-1, 5, shape)).astype(float)
    pairs = list(zip(gold.reshape(-1, 60), predicted.reshape(-1, 60), strict=True))
    labels = [sorted({*pair[0], *pair[1]} - {-1}) for pair in pairs]
    expected = [f1_score(*pair, labels=names, average="macro") for pair, names in zip(pairs, labels, strict=True)]
    assert np.ravel(classification.macro_f1(gold, predicted)) == pytest.approx(expected)
    mcc = classification.METRICS[1].corpus(gold, predicted)
    assert np.ravel(mcc) == pytest.approx([matthews_corrcoef(*pair) for pair in pairs])


def test_letters_have_the_values_of_a_classification_and_their_own_headline():
    items, requests, _ = outputs(protocol="letters")
    scores = [score(request, -1.0 if request["role"].startswith("choice:1") else -2.0) for request in requests]
    rows, metrics = evaluate("letters", items, requests, scores, [])
    values = values_of(rows, metrics)
    assert [row["metrics"]["predicted_class"] for row in rows] == [1] * 5
    assert values["macro_f1"]["value"] == pytest.approx((4 / 7) / 3)
    assert {name for name, row in values.items() if row["headline"]} == {"accuracy"}
    assert {"macro_f1", "mcc"} <= declared_metrics("letters").keys()
    assert "macro_f1" not in declared_metrics("text")


def test_pairs_and_rankings_are_of_the_headline_of_a_classification():
    rows, _ = evaluate("options", *outputs(), [])
    better = [
        row | {"metrics": row["metrics"] | {"accuracy_pmi": 1.0, "predicted_class": row["metrics"]["gold_class"]}}
        for row in rows
    ]
    results = {"a": {"e": as_table(rows)}, "b": {"e": as_table(better)}}
    compared = compare_all([("a", "b")], results, {"e": EVALUATION}, resamples=50)
    by_metric = {row["metric"]: row for row in compared.comparisons}
    assert {name for name, row in by_metric.items() if row["headline"]} == {"accuracy_pmi"}
    assert by_metric["accuracy_pmi"]["difference"] == pytest.approx(0.4)
    assert by_metric["macro_f1"]["candidate_value"] == 1
    assert {row["metric"] for row in compared.rankings} == {"accuracy_pmi"}


def test_confusion_matrix_counts_correct_and_predicted_classes():
    items, requests, scores = outputs()
    rows, _ = evaluate("options", items, requests, scores, [])
    diagnoser = Diagnoser(Subject("options", "default"))
    diagnoser.add(items, requests, scores, rows)
    profile = diagnoser.profile()
    assert profile.confusion == [[1, 0, 0, 1], [0, 2, 0, 0], [0, 1, 0, 0]]
    assert profile.label_mass is None  # the scores are no log-probabilities
    metadata = MetricsMetadata(model="m", evaluations={"e": ResultsMetadata(profile=profile)})
    table = confusion_rows([metadata], {"e"})
    assert [row["items"] for row in table] == [1, 0, 0, 1, 0, 2, 0, 0, 0, 1, 0, 0]
    assert table[3] == {"model": "m", "evaluation": "e", "correct": "deporte", "predicted": None, "items": 1}
    assert confusion_rows([metadata], set()) == []


TASK = """\
task: topics
protocols: [options, letters]
item_type: passage
columns: {context: text, question: {wording: topic}, choices: {labels: [sports, travel, health]}, gold: kind, gold_format: text}
languages: {gl: {source: {file: topics.tsv}}}
"""
TSV = (
    "text\tkind\nO equipo gañou.\tsports\nO tren sae ás dez.\ttravel\nO médico chegou.\thealth\nXogaron ben.\tsports\n"
)


def write_task(directory):
    (directory / "topics.yaml").write_text(TASK, "utf-8")
    (directory / "topics.tsv").write_text(TSV, "utf-8")
    return directory / "topics.yaml"


def test_items_with_labels_state_the_classes_of_the_dataset(tmp_path):
    items, _ = load_items(load_task(write_task(tmp_path)), "gl")
    assert items[0]["choices"] == ["deportes", "viaxes", "saúde"]
    assert json.loads(items[0]["extra"]["class_names"]) == ["sports", "travel", "health"]
    assert classification.is_classification(items[0])
    assert not classification.is_classification(item())


@pytest.mark.slow
def test_a_classification_reaches_tables_and_report(tmp_path):
    workspace = Workspace(tmp_path, [{"task": "topics", "languages": ["gl"], "protocols": ["options", "letters"]}])
    (tmp_path / "tasks").mkdir()
    write_task(tmp_path / "tasks")
    workspace.config |= {"tasks": ["tasks"], "data": "hub"}
    assert workspace.run_stages() == 0
    results = workspace.results()
    headline = results[results["headline"].astype(bool)].groupby("protocol")["metric"].unique()
    assert headline["options"].tolist() == ["accuracy_pmi"]
    assert headline["letters"].tolist() == ["accuracy"]
    values = results[results["protocol"] == "options"].set_index("metric")
    assert values.loc["accuracy_pmi", "majority_baseline"] == 0.5
    assert values.loc["mcc", "value"] == values.loc["mcc", "value"]
    sheet = load_workbook(tmp_path / "results" / "summary" / "leaderboard.xlsx")["confusion"]
    cells = [[cell.value for cell in row] for row in sheet.iter_rows(min_row=2)]
    counts = [row for row in cells if row[1].endswith("options.0shot")]
    assert sum(row[4] for row in counts) == 4
    assert {row[2] for row in counts} == {"deportes", "viaxes", "saúde"}
    report = "".join(path.read_text("utf-8") for path in (tmp_path / "results" / "report").rglob("task.js"))
    assert '"deportes"' in report
    assert '"calibration":[]' in report  # of options: mutual information is no probability
