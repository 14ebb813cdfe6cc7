"""Values, weights, roles and correct options of lm-eval's tasks by hand, in an environment with lm_eval.

Needs the environment of the benchmarks (`make .bench/.complete`), which has lm_eval; skipped without it.
"""

import hashlib
import json
import os
import subprocess

import pytest
from support.optional import BENCH, needs_bench
from support.workspace import ROOT

pytestmark = [
    pytest.mark.slow,
    needs_bench,
]

SCRIPT = """
import doctest, json, math
from types import SimpleNamespace as Record
from lm_eval.api.registry import AGGREGATION_REGISTRY
from vernacular.lm_eval.evaluation import UnitMetrics, _agree, _components, _needs, _parts
from jinja2 import UndefinedError
from vernacular.core.errors import DataError
from vernacular.lm_eval import evaluation, loading, sandbox
from vernacular.commands.lm_eval_index import reason
from vernacular.lm_eval.instances import GENERATE, ROLLING, _check, _gold, _query, clean, document_hash, repeats, role

task = Record(aggregation=lambda: {"acc": AGGREGATION_REGISTRY["mean"], "f1": AGGREGATION_REGISTRY["f1"]},
              higher_is_better=lambda: {"acc": True, "f1": True})

def sample(number, acc, f1):
    return {"doc_id": number, "filter": "none", "metrics": ["acc", "f1"], "acc": acc, "f1": f1}

samples = {"t": [sample(0, 1, (1, 1)), sample(1, 0, (0, 1))], "u": [sample(0, 1, (1, 1))]}
values = {"acc,none": 0.75, "acc_stderr,none": 0.1, "f1,none": 0.5, "alias": "x"}
single = UnitMetrics(Record(name="t", is_group=False, groups={}, tasks={"t": task}),
                     {"samples": samples, "results": {"t": values}})
group = Record(aggregate_metric_list=[Record(metric="acc", weight_by_size=False)])
pooled = UnitMetrics(Record(name="g", is_group=True, groups={"g": group}, tasks={"t": task, "u": task}),
                     {"samples": samples, "results": {"g": values}})
def allowed(instance, generates):
    try:
        return _check(instance, generates) is None
    except DataError:
        return False

def rendered(template):
    try:
        return sandbox._Sandbox(lambda text, *_: text).from_string(template).render(a="x")
    except UndefinedError:
        return None

def both_classes(pairs):  # as sklearn's area under the curve, which raises without one of the classes
    if len({gold for gold, _ in pairs}) < 2:
        raise ValueError("one class")
    return sum(gold == answer for gold, answer in pairs) / len(pairs)

def interval(n_first):  # of 16 items, this many of the first class
    pairs = [(int(i >= n_first), i % 2) for i in range(16)]
    task = Record(aggregation=lambda: {"x": both_classes}, higher_is_better=lambda: {"x": True})
    found = [{"doc_id": i, "filter": "none", "metrics": ["x"], "x": pair} for i, pair in enumerate(pairs)]
    unit = UnitMetrics(Record(name="t", is_group=False, groups={}, tasks={"t": task}),
                       {"samples": {"t": found}, "results": {"t": {"x,none": 0.5}}})
    return unit._bootstrap("x", "t")

model = next(kind for kind in vars(evaluation).values() if "generate_until" in getattr(kind, "__dict__", {}))
functions = Record(problem=lambda name: None)
answered = Record(_lookup=lambda requests: [(request, "a b\\nc") for request in requests])
generated = lambda n, arguments, **more: Record(request_type=GENERATE, idx=0, repeats=n, args=("", arguments), **more)
sampled = {"do_sample": True, "temperature": 0.7}
print(json.dumps({
    "components": [_components("a", v) for v in (0.5, True, math.nan, (1, 2.5), [3], ("x", 1), "x")],
    "parts": [_parts((1, 2)), _parts([1]), _parts("ab")],
    "needs": [_needs("a", name) for name in ("weighted_mean", "perplexity", "f1")],
    "agree": [_agree(*pair) for pair in ((1.0, 1 + 1e-10), (1.0, 1.1), (1e6, 1e6 + 1e-4), (1e6, 1e6 + 1),
                                         (None, math.nan), (None, 0.5), (0.5, math.inf))],
    "definitions": [{d["name"]: [d["unit"], d["proportion"], d["headline"], d["corpus"], d["needs"]]
                     for d in unit.definitions("surprisal")} for unit in (single, pooled)],
    "per item": [single.per_item, pooled.per_item],
    "gold": [_gold(Record(), {}, target, ["x", "y"]) for target in (1, "y", [0, 1], [True, 2, -1, "z", "x"], None)],
    "hash": document_hash({"b": 1, "a": "\\u00f1"}),
    "clean": clean("a\\ud800b"),
    "roles": [role(generated(1, {}), 1), role(generated(1, {}), 2), role(generated(3, {}), 1, 2),
              role(Record(request_type="loglikelihood", idx=3), 4), role(Record(request_type=ROLLING, idx=1), 2),
              role(Record(request_type=ROLLING, idx=0), 1)],
    "rendered": [rendered("{{ a }}\\n"), rendered("{{ b }}")],
    "seed": loading.SEED,
    "examples": [*doctest.testmod(loading)][:2],
    "intervals": [interval(n) for n in (1, 2)],
    "allowed": [allowed(generated(n, {}), True) for n in (None, 0, 1, 10_000, 10_001, True, "2")]
               + [allowed(generated(1, {}), False), allowed(generated(1, {"num_beams": 4}), True)],
    "reasons": [reason({"output_type": kind, "generation_kwargs": {"num_beams": 4}}, functions)
                for kind in ("generate_until", "multiple_choice")] + [reason({"doc_to_audio": "x"}, functions), reason({}, functions)],
    "stopped": model.generate_until(answered, [generated(1, {"until": stops}) for stops in (["\\n"], ["b", "\\n"])]),
    "repeats": [repeats(generated(3, sampled)), repeats(generated(None, sampled)), repeats(generated(3, {})),
                repeats(Record(request_type="loglikelihood", repeats=3, args=("", sampled)))],
}))
"""


@pytest.fixture(scope="module")
def found() -> dict:
    variables = os.environ | {"PYTHONPATH": str(ROOT / "workflow")}
    done = subprocess.run([BENCH, "-c", SCRIPT], capture_output=True, text=True, env=variables, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_values_of_an_item(found):
    assert found["components"] == [{"a": 0.5}, {"a": 1.0}, {}, {"a:0": 1.0, "a:1": 2.5}, {"a:0": 3.0}, {}, {}]
    assert found["parts"] == [[1, 2], [1], ["ab"]]
    assert found["needs"] == [["a", "a:weight"], ["a"], ["a:0", "a:1"]]


def test_own_value_is_that_of_lm_eval_up_to_rounding(found):
    assert found["agree"] == [True, False, True, False, True, False, False]


def test_metrics_of_a_task_and_of_a_group_that_averages_its_tasks(found):
    """A group of tasks with two items and one: each of the first counts a half. Only lm-eval can average f1."""
    of_task, of_group = found["definitions"]
    assert of_task == {
        "acc": ["share", True, True, None, []],
        "f1": ["score", False, False, "f1", ["f1:0", "f1:1"]],
    }
    assert of_group == {"acc": ["share", False, True, "weighted_mean", ["acc", "acc:weight"]]}
    assert found["per item"] == [
        {"0": {"acc": 1, "f1:0": 1, "f1:1": 1}, "1": {"acc": 0, "f1:0": 0, "f1:1": 1}},
        {
            "t/0": {"acc": 1, "f1:0": 1, "f1:1": 1, "acc:weight": 0.5},
            "t/1": {"acc": 0, "f1:0": 0, "f1:1": 1, "acc:weight": 0.5},
            "u/0": {"acc": 1, "f1:0": 1, "f1:1": 1, "acc:weight": 1},
        },
    ]


def test_resamples_without_a_class_are_drawn_again(found):
    single, two = found["intervals"]
    assert single == [None, None]
    assert 0 <= two[0] < 0.5 < two[1] <= 1


def test_correct_options_documents_and_roles(found):
    assert found["gold"] == [[1], [1], [0, 1], [0], []]
    assert found["hash"] == hashlib.sha256(rb'{"a": "\u00f1", "b": 1}').hexdigest()[:32]
    assert found["clean"] == "a\ufffdb"
    assert found["roles"] == ["response", "response:0", "response:0@2", "choice:3", "text:1", "text"]
    assert found["repeats"] == [3, 1, 1, 1]
    assert found["allowed"] == [True, False, True, True, False, False, False, False, False]


def test_examples_of_generation_arguments(found):
    failed, attempted = found["examples"]
    assert failed == 0 < attempted


def test_templates_and_texts_are_those_of_lm_eval(found):
    assert found["rendered"] == ["x\n", None]  # an unknown name is an error, and a newline at the end remains
    assert found["stopped"] == ["a b", "a "]
    assert found["seed"] == 1234
    assert found["reasons"] == ["generation argument not supported: num_beams", None, "needs audio", None]
