"""Values of a tool beside those of a run: differences, reasons, the page and the plot."""

import xml.etree.ElementTree as ET

import pytest
from replicate import bos, page, plot, published, references
from replicate.compare import Run, compare
from vernacular.core import artifacts
from vernacular.inference.schema import SCORES
from vernacular.metrics.schema import TASK_RESULTS

EVALUATION = {"id": "cola.gl.acceptability.0shot", "task": "cola", "language": "gl", "protocol": "acceptability"}
VERSIONS = {"workflow": {"vernacular": "0", "torch": "1"}, "tools": {"lm_eval": "2", "minicons": "3", "torch": "1"}}
EFFECTS = [bos.Effect("multiblimp", "gl", 12, 1.25, 20.0, "accuracy", 75.0, 66.7, 1)]


@pytest.fixture
def run(tmp_path):
    """A run with one item: scores of two options, a surprisal, and ten scored tokens."""
    row = dict.fromkeys(TASK_RESULTS.schema.names) | {
        "item_id": "i", "prompt": "p", "choices": ["a", "b"], "gold": [0], "option_scores": [-2.0, -1.0],
        "predicted_indices": [1], "prediction": "b", "metrics": [("surprisal", 2.0), ("accuracy", 0.0)],
    }  # fmt: skip
    score = dict.fromkeys(SCORES.schema.names) | {
        "request_id": "r", "item_id": "i", "role": "choice:1", "tokens": ["t"] * 10, "logprobs": [-0.1] * 10,
        "flags": "boundary",
    }  # fmt: skip
    for folder, kind, content in (("tasks", TASK_RESULTS, row), ("scores", SCORES, score)):
        path = tmp_path / "results" / "m" / folder / f"{EVALUATION['id']}.parquet"
        path.parent.mkdir(parents=True)
        artifacts.write(path, kind, [content], {"fingerprint": "f"})
    return Run(tmp_path)


def reference(column, value, reason=None):
    writer = references.Writer(None, "minicons")
    writer.add("sequence_score", "m", EVALUATION, {"item_id": "i"}, column, value, reason=reason)
    return writer.lines[0]


@pytest.mark.parametrize(
    ("column", "value", "difference", "reason"),
    [
        ("surprisal", 2.00005, 5e-5, None),
        ("option_scores:0", -2.0, 0.0, None),
        ("option_scores:1", -1.00015, 1.5e-4, "float"),  # less than 2e-5 for each of ten tokens, on each side
        ("option_scores:1", -1.5, 0.5, "split"),  # the row has the flag
        ("chosen", 1, None, None),
        ("prediction", "b", None, None),
        ("accuracy", 0.0, None, None),
    ],
)
def test_value_agrees_or_has_a_reason(run, column, value, difference, reason):
    [found] = compare(run, [reference(column, value)])
    assert found.difference == (None if difference is None else pytest.approx(difference))
    assert (found.equal, found.reason) == (reason is None, reason)


@pytest.mark.parametrize(
    ("column", "value"),
    [("option_scores:0", -2.1), ("chosen", 0), ("prediction", "a"), ("accuracy", 1.0), ("absent", 1.0)],
)
def test_difference_without_a_reason_is_unexplained(run, column, value):
    [found] = compare(run, [reference(column, value)])
    assert (found.equal, found.reason) == (False, None)


def test_choice_between_equal_scores_is_a_tie(run):
    values = [("option_scores:0", -1.00001), ("option_scores:1", -1.0), ("chosen", 0)]
    assert compare(run, [reference(*value) for value in values])[2].reason == "tie"


def test_known_difference_of_the_tool_is_the_reason(run):
    [found] = compare(run, [reference("surprisal", None, "dropped")])
    assert (found.equal, found.reason) == (False, "dropped")


def test_page_counts_values_and_lists_differences(run):
    values = [("surprisal", 2.00005), ("option_scores:1", -1.5), ("chosen", 0), ("chosen", 1)]
    comparisons = compare(run, [reference(*value) for value in values])
    rows = [published.Replicated(row, None, None, "not run") for row in published.read()]
    text = page.page(comparisons, VERSIONS, EFFECTS, rows)
    assert text == page.page(list(reversed(comparisons)), VERSIONS, EFFECTS, rows), "independent of the order of values"
    assert "4 values of 1 tools are compared, in 1 evaluations and 1 languages." in text
    assert "| `acceptability` | minicons | gl | 2 | 5e-05 | 5e-05 | 1 of 2 | 1 |" in text
    assert "| cola.gl.acceptability.0shot | i | m | minicons | chosen | 0 | [1] | unknown |" in text
    assert "Differences without a known reason: 1." in text
    assert "| multiblimp | gl | 12 | 1.2 | 20.0 | `accuracy` | 75.0 | 66.7 | 1 |" in text
    assert text.count("not run") == len(rows)


def test_plot_has_a_circle_per_decile_and_kind():
    rows = [("text, minicons", [(0.0, False), (1e-12, False), (1.02e-5, False), (0.98e-5, False), (0.5, True)])]
    root = ET.fromstring(plot.svg(rows, 1e-4))
    titles = [element.text for element in root.iter("{http://www.w3.org/2000/svg}title")]
    assert sorted(titles) == ["1", "2", "2"]


def test_choice_of_a_tool_is_its_first_maximum(tmp_path):
    path = tmp_path / "values.jsonl"
    with references.Writer(path, "lm-eval") as writer:
        writer.choose("loglikelihood", "m", EVALUATION, {"item_id": "i"}, [-2.0, -1.0, -1.0])
    [value] = references.read(path)
    assert (value["column"], value["value"]) == ("chosen", 1)


def test_spans_are_context_and_scored_text():
    request = {"prefix": "Shot.\n", "text": "Q: A", "span_start": 8, "span_end": 10}
    item = {"requests": {"choice:0": request, "choice:1": request, "uncond:0": {}}}
    assert references.spans(item, "choice") == [("Shot.\nQ:", " A")] * 2
