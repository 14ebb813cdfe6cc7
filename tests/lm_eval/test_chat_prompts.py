"""Tasks of lm-eval with a chat template: prompts, log-likelihoods and texts equal those of `--apply_chat_template`.

Needs the environment of the benchmarks (`make .bench/.complete`), which has lm_eval and torch; skipped without it.
"""

import itertools
import json
import math
import os
import subprocess

import pyarrow as pa
import pytest
from support import lm_eval_cases, reasoning, tiny
from support.engines import generate, score
from support.optional import BENCH, needs_bench
from support.workspace import ROOT
from transformers import AutoModelForCausalLM, AutoTokenizer
from vernacular.inference.model.loaded import wrap
from vernacular.inference.scoring.prepare import prepare
from vernacular.protocols.schema import REQUESTS

pytestmark = [
    pytest.mark.slow,
    needs_bench,
]
# choice, choice with gen_prefix and mutual information, loglikelihood, generate, multiple_input, description, group
TASKS = ("letters", "mutual", "last", "written", "contexts", "several", "weighted", "instructed")
GENERATED = ("written", "instructed")
SYSTEM = "Responde en galego."
_TURNS = "{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}<|end|>\n{% endfor %}"
_HEADER = "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
TEMPLATES = {
    "newline": f"{{{{ bos_token }}}}{_TURNS}{_HEADER}",
    # without BOS, which the tokenizer adds; no system turns
    "no_system": "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system turns') }}{% endif %}"
    f"{_TURNS}{_HEADER}",
}
# (template, examples as turns, system text, number of examples)
RUNS = [
    *(("newline", *rest) for rest in itertools.product((True, False), (None, SYSTEM), (0, 2))),
    ("no_system", True, SYSTEM, 0), ("no_system", False, None, 2),
]  # fmt: skip
SCRIPT = """
import json, logging, sys
from lm_eval.evaluator import simple_evaluate
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from vernacular.lm_eval.instances import build
from vernacular.lm_eval.loading import LoadedUnit

logging.disable(logging.WARNING)
tasks, runs = json.load(sys.stdin)
manager = TaskManager(include_path="tasks", include_defaults=False)
models, found = {}, []
for template, multiturn, system, shots in runs:
    if template not in models:
        models[template] = HFLM(pretrained=template, dtype="float32", device="cpu", batch_size=4)
    for name in tasks:
        expected = simple_evaluate(
            model=models[template], tasks=[name], num_fewshot=shots, task_manager=manager, bootstrap_iters=0,
            apply_chat_template=True, fewshot_as_multiturn=multiturn, system_instruction=system,
        )["samples"]
        loaded = manager.load([name])
        for task in loaded["tasks"].values():
            if task.get_config("num_fewshot") != 0:
                task.set_config(key="num_fewshot", value=shots)
            task.set_fewshot_seed(seed=1234)
        unit = LoadedUnit(name, bool(loaded.get("groups")), loaded["tasks"], loaded.get("groups", {}))
        chat = {"apply_chat_template": True, "fewshot_as_multiturn": multiturn}
        _, rows = build(unit, limit=None, seed=0, generates=name in ("written", "instructed"), chat=chat)
        samples = {
            task: [[s["doc_id"], s["arguments"], s["resps"]] for s in expected[task]]
            for task in loaded["tasks"]
        }
        found.append([template, multiturn, system, shots, name, rows, samples])
json.dump(found, open("found.json", "w"), default=str)
"""


# with the settings of IFEval: no stop strings, greedy, more tokens than the default
INSTRUCTED = """
task: instructed
dataset_path: csv
dataset_kwargs: {data_files: {test: written.test.csv}}
output_type: generate_until
test_split: test
num_fewshot: 0
doc_to_text: question
doc_to_target: answer
generation_kwargs: {until: [], do_sample: false, temperature: 0.0, max_gen_toks: 48}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""
EVALUATED = """
import json, logging, sys
from lm_eval.tasks import TaskManager
from vernacular.lm_eval.evaluation import evaluate
from vernacular.lm_eval.instances import build
from vernacular.lm_eval.loading import LoadedUnit

logging.disable(logging.WARNING)
loaded = TaskManager(include_path="tasks", include_defaults=False).load(["filters"])
unit = LoadedUnit("filters", False, loaded["tasks"], {})
chat = {"apply_chat_template": True, "fewshot_as_multiturn": True}
gen_kwargs = {"temperature": 0.5, "min_p": 0.1, "think_max_toks": 64}
_, rows = build(unit, limit=None, seed=0, generates=True, chat=chat, gen_kwargs=gen_kwargs)
texts = [("\\n\\n6 peras\\n7", "closed"), ("", "unclosed"), ("\\n9", None)]
outputs = [
    {"item_id": row["item_id"], "role": row["role"], "raw_output": text, "think_state": state, "flags": None}
    for row, (text, state) in zip(rows, texts)
]
results = evaluate(unit, rows, outputs, limit=None, trusted=True, chat=chat)
strict = [s for s in results["samples"]["filters"] if s["filter"] == "strict"]
json.dump([rows, [s["resps"] for s in strict], [s["filtered_resps"] for s in strict]], open("evaluated.json", "w"))
"""


def run_script(directory, script, content=""):
    variables = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    variables |= {"HF_HUB_OFFLINE": "1", "HF_HOME": str(directory / "hf"), "TQDM_DISABLE": "1"}
    variables["PYTHONPATH"] = str(ROOT / "workflow")
    run = subprocess.run(
        [BENCH, "-c", script], cwd=directory, input=content, capture_output=True, text=True, check=False, env=variables
    )
    assert run.returncode == 0, run.stderr[-3000:]


def test_reasoning_is_removed_before_stop_strings_and_filters(tmp_path):
    lm_eval_cases.write(tmp_path / "tasks", tmp_path)
    run_script(tmp_path, EVALUATED)
    rows, responses, filtered = json.loads((tmp_path / "evaluated.json").read_text("utf-8"))
    assert responses == [[["6 peras"]], [[""]], [[""]]], "as in lm-eval, only after reasoning is whitespace removed"
    assert [each[0] for each in filtered] == ["6", "[invalid]", "[invalid]"]
    assert rows[0]["decoding"]["temperature"] == 0.0
    assert rows[0]["gen_kwargs"] == {"min_p": 0.1, "think_max_toks": 64, "temperature": 0.0, "max_gen_toks": 8}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    directory = tmp_path_factory.mktemp("lm_eval_chat")
    lm_eval_cases.write(directory / "tasks", directory)
    for name, template in TEMPLATES.items():
        tiny.save("llama", directory / name)
        tokenizer = AutoTokenizer.from_pretrained(directory / name)
        tokenizer.chat_template = template
        tokenizer.save_pretrained(directory / name)
    (directory / "tasks" / "instructed.yaml").write_text(INSTRUCTED)
    run_script(directory, SCRIPT, json.dumps([TASKS, RUNS]))
    return directory, json.loads((directory / "found.json").read_text("utf-8"))


def load(directory, template, system):
    model = AutoModelForCausalLM.from_pretrained(directory / template, dtype="float32").eval()
    record = tiny.record("llama", chat="auto", system_instruction=system, directory=str(directory / template))
    return wrap(model, AutoTokenizer.from_pretrained(directory / template), record)


def test_prompts_and_log_likelihoods_equal_those_of_lm_eval(found):
    directory, runs = found
    n_prompts = n_newlines = n_dropped = 0
    for (template, system), group in itertools.groupby(runs, key=lambda run: (run[0], run[2])):
        loaded = load(directory, template, system)
        for _, _, _, _, name, rows, samples in group:
            rows = [{column: row.get(column) for column in REQUESTS.schema.names} for row in rows]
            table = pa.Table.from_pylist(rows, schema=REQUESTS.schema)
            outputs = (generate if name in GENERATED else score)(loaded, table)[0].to_pylist()
            by_key = {(row["item_id"], row["role"]): (row, out) for row, out in zip(rows, outputs, strict=True)}
            for task, documents in samples.items():
                for doc_id, arguments, responses in documents:
                    item = f"{task}/{doc_id}" if name == "weighted" else str(doc_id)
                    for index, (argument, (response, *_)) in enumerate(zip(arguments, responses, strict=True)):
                        role = "response" if name in GENERATED else f"choice:{index}"
                        row, output = by_key[item, role]
                        n_dropped += "system turn dropped" in (output["flags"] or "")
                        if name in GENERATED:
                            assert output["rendered"] == argument[0]
                            text = output["raw_output"]
                            for stop in row["stop"]:
                                text = text.split(stop)[0]
                            assert text.lstrip() == response.lstrip()
                        else:
                            context, span = argument
                            assert (output["rendered"] or span) == context + span
                            loglik, greedy = response
                            assert abs(math.fsum(output["logprobs"]) - float(loglik)) < 2e-4
                            assert all(output["is_greedy"]) == (str(greedy) == "True")
                            if context and not row["text"].endswith(f"Resposta:{span}"):
                                n_newlines += check_newline(loaded, row, span)
                        n_prompts += 1
    assert n_prompts > 1000
    assert n_newlines > 500
    assert n_dropped > 20


def check_newline(loaded, row, span) -> bool:
    """Assert on token IDs that the newline after the header of the model's turn is scored with the continuation."""
    request = prepare(loaded, row)
    scored = loaded.tokenizer.decode(request.span.tolist())
    assert scored.startswith("\n")
    assert scored.strip() == span.strip()
    return True


def test_newline_of_the_header_is_not_scored_by_own_protocols():
    loaded = reasoning.load("llama3", chat=True)
    row = dict.fromkeys(REQUESTS.schema.names) | {
        "request_id": "r", "item_id": "i", "role": "choice:0", "kind": "score", "prefix": "", "text": "Onde chove? A",
        "span_start": 11, "span_end": 13, "messages": [{"role": "user", "content": "Onde chove?"}],
    }  # fmt: skip
    request, as_lm_eval = prepare(loaded, row), prepare(loaded, row | {"extras": ["chat"], "span_start": 12})
    assert request.rendered == as_lm_eval.rendered
    assert request.rendered.endswith("<|assistant|>\n\nA")
    assert loaded.tokenizer.decode(request.span.tolist()) == "A"
    assert loaded.tokenizer.decode(as_lm_eval.span.tolist()) == "\n\nA"
