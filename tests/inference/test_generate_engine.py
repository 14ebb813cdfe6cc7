"""Greedy texts are independent of batches, prefixes, interruptions and memory; reference: transformers' `generate`."""

import inspect
import json

import pyarrow as pa
import pytest
import torch
from support import architectures, tiny
from support.engines import generate, score
from support.result_rows import stored
from vernacular.core.processes import StopFlag, Stopped
from vernacular.inference.generation import self_check
from vernacular.inference.generation.prepare import decode_continuation
from vernacular.inference.job.store import Journal
from vernacular.inference.model.load import load
from vernacular.inference.model.loaded import STATES
from vernacular.inference.schema import GENERATIONS, MemoryJournal
from vernacular.protocols.schema import REQUESTS

TEXTS = [
    "O gato",
    "A choiva cae amodo sobre a vila; ninguén",
    "Question: What is the capital of Galicia?",
    "Jutros smo",
    "أكلت القطة",
    "The keys to the",
    "დღეს 🐈",
]
FEW_SHOT_EXAMPLES = ["Question: Which animal sleeps on the roof?\nAnswer: B\n", "Question: What is it?\nAnswer: D\n"]
CAUSAL = [arch for arch in tiny.CONFIGS if arch not in tiny.MASKED]
MAX_NEW_TOKENS = 10


@pytest.fixture(autouse=True)
def single_thread():
    torch.set_num_threads(1)


def build_request(i, text, **content):
    names = dict.fromkeys(REQUESTS.schema.names)
    content = {"prefix": "", "stop": [], "max_new_tokens": MAX_NEW_TOKENS, **content}
    return (
        names
        | {"request_id": f"r{i}", "item_id": f"i{i}", "role": "response", "kind": "generate", "text": text}
        | content
    )


def build_requests(texts=TEXTS, shots=2, **content):
    few_shot_examples = FEW_SHOT_EXAMPLES[:shots]
    return [
        build_request(i, text, prefix="".join(few_shot_examples), few_shot_examples=few_shot_examples, **content)
        for i, text in enumerate(texts)
    ]


def run_generate(loaded, requests, journal=None):
    table, metadata = generate(
        loaded,
        pa.Table.from_pylist(requests, schema=REQUESTS.schema),
        journal=MemoryJournal() if journal is None else journal,
    )
    stored(table, GENERATIONS)
    return {row["item_id"]: row for row in table.to_pylist()}, metadata


def transformers_generate(loaded, request, **options):
    """Return the continuation that transformers generates for one request."""
    ids = loaded.tokenizer(request["prefix"] + request["text"], return_tensors="pt")["input_ids"]
    kwargs = {"do_sample": False, "max_new_tokens": request["max_new_tokens"], "pad_token_id": 0, **options}
    output_ids = loaded.model.generate(ids, attention_mask=torch.ones_like(ids), **kwargs)[0]
    return decode_continuation(loaded.tokenizer, ids[0].tolist(), output_ids[ids.shape[1] :].tolist())


@pytest.mark.parametrize("shots", [0, 2])
@pytest.mark.parametrize("arch", CAUSAL)
def test_batched_greedy_matches_single_transformers_generate(arch, shots):
    loaded = tiny.load_model(arch)
    requests = build_requests(shots=shots)
    outputs, _ = run_generate(loaded, requests)
    assert [outputs[r["item_id"]]["raw_output"] for r in requests] == [
        transformers_generate(loaded, r) for r in requests
    ]


@pytest.mark.parametrize("penalty", [0.5, 1.3])
def test_batch_with_repetition_penalty_matches_single_generate(penalty):
    """In a batch, transformers applies the penalty to padding; here it covers the row's own tokens only."""
    loaded = tiny.load_model("llama")
    decoding = {"temperature": 0.0, "top_k": None, "top_p": None, "repetition_penalty": penalty, "seed": 0}
    requests = build_requests(decoding=decoding)
    outputs, _ = run_generate(loaded, requests)
    expected = [transformers_generate(loaded, request, repetition_penalty=penalty) for request in requests]
    assert [outputs[r["item_id"]]["raw_output"] for r in requests] == expected


def test_shared_prefix_is_computed_once():
    loaded = tiny.load_model("llama")
    _, shared = run_generate(loaded, build_requests())
    strategy = shared["engine"]["strategies"][0]
    assert strategy["used"] == "prefix"
    assert strategy["prefix_tokens"] == shared["counters"]["prefix_tokens"] >= 16
    assert strategy["prefix_difference"]["largest"] < 1e-4


@pytest.mark.parametrize("arch", ["mistral", "gemma3", "mamba"])
def test_sliding_window_and_recurrent_models_share_no_prefix(arch):
    _, metadata = run_generate(tiny.load_model(arch), build_requests())
    assert metadata["engine"]["strategies"][0]["used"] == "batch"
    assert metadata["counters"]["prefix_tokens"] == 0


OLD_NAMES = """from transformers import LlamaConfig, LlamaForCausalLM, LlamaModel
from transformers.modeling_outputs import CausalLMOutputWithPast
class C(LlamaConfig): model_type = "old"
class B(LlamaModel):
    def forward(self, input_ids=None, attention_mask=None, position_ids=None, past_key_values=None, use_cache=None):
        return super().forward(input_ids, attention_mask, position_ids, past_key_values, use_cache=use_cache)
class M(LlamaForCausalLM):
    config_class = C
    def __init__(self, config):
        super().__init__(config)
        self.model = B(config)
        self.post_init()
    def forward(self, input_ids=None, attention_mask=None, position_ids=None, past_key_values=None, use_cache=None,
                logits_to_keep=0, return_dict=None):
        options = {"past_key_values": past_key_values, "use_cache": use_cache}
        outputs = self.model(input_ids, attention_mask, position_ids, **options)
        logits = self.lm_head(outputs[0][:, -logits_to_keep:])
        return CausalLMOutputWithPast(logits=logits, past_key_values=outputs.past_key_values)
"""


def test_remote_code_with_the_names_of_earlier_versions_is_computed_at_the_same_speed(tmp_path):
    """Its forward pass takes `past_key_values`, whereas transformers prepares `cache`."""
    record = tiny.save("llama", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    classes = {"AutoConfig": "old_names.C", "AutoModelForCausalLM": "old_names.M"}
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "old", "auto_map": classes}))
    (tmp_path / "old_names.py").write_text(OLD_NAMES)
    loaded = load(record | {"trust_remote_code": True})
    assert "past_key_values" in inspect.signature(loaded.model.forward).parameters
    own, expected = (
        run_generate(each, build_requests()) for each in (loaded, load(tiny.save("llama", tmp_path / "new")))
    )
    assert own[0] == expected[0]
    assert own[1]["engine"]["strategies"][0]["used"] == "prefix"
    assert own[1]["counters"]["tokens_computed"] == expected[1]["counters"]["tokens_computed"]
    text = FEW_SHOT_EXAMPLES[0] * 3
    requests = tiny.score_requests([(text + end, len(text), len(text) + 2) for end in (" A", " B", " D", "O gato")])
    (scores, metadata), (expected_scores, _) = (score(each, requests) for each in (loaded, tiny.load_model("llama")))
    assert metadata["engine"]["strategy"] == "tree"
    assert metadata["counters"]["tokens_computed"] == metadata["counters"]["tokens_trie"]
    assert scores["logprobs"].to_pylist() == [
        pytest.approx(row, abs=1e-5) for row in expected_scores["logprobs"].to_pylist()
    ]


def test_few_shot_examples_of_a_model_without_a_usual_cache():
    """BLT, whose config has the layers of its parts only."""
    loaded = architectures.build("blt", "causal")
    rows, metadata = run_generate(loaded, build_requests(TEXTS[:2]))
    assert [row["flags"] for row in rows.values()] == [None, None]
    assert metadata["engine"]["strategies"][0]["used"] == "uncached"


def test_prefix_failing_self_check_is_not_used():
    """GPT-Neo's local attention counts padding as text, which its cache does not reveal."""
    _, metadata = run_generate(tiny.load_model("gpt_neo"), build_requests())
    strategy = metadata["engine"]["strategies"][0]
    assert strategy["prefix_difference"]["largest"] > 0.1
    assert strategy["used"] == "batch"


def test_batching_failing_self_check_is_not_used():
    """Also not with single texts, if a state of keys and values changes what the model computes."""
    loaded = tiny.load_model("llama")

    def disturb(module, arguments, outputs):
        if any(getattr(outputs, name, None) is not None for name in STATES):
            outputs.logits = outputs.logits.flip(-1)

    with loaded.model.register_forward_hook(disturb):
        outputs, metadata = run_generate(loaded, build_requests())
    assert metadata["engine"]["strategies"][0]["used"] == "uncached"
    assert outputs["i0"]["raw_output"] == transformers_generate(loaded, build_requests()[0])


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), TypeError("no such argument")])
def test_error_in_prefix_check_disables_prefix_with_reason(error):
    loaded = tiny.load_model("llama")
    expected, metadata = run_generate(loaded, build_requests())
    prefix_shape = (1, metadata["counters"]["prefix_tokens"])

    def raise_error(ids):
        if tuple(ids.shape) == prefix_shape:
            raise error

    tiny.on_forward(loaded, raise_error)
    outputs, metadata = run_generate(loaded, build_requests())
    assert outputs == expected
    strategy = metadata["engine"]["strategies"][0]
    assert strategy["used"] == "batch"
    assert strategy["prefix_error"] in ("out of memory", "TypeError: no such argument")


def test_out_of_memory_for_longest_prompt_affects_only_it():
    loaded = tiny.load_model("llama")
    expected, _ = run_generate(loaded, build_requests())
    max_tokens = max(len(loaded.tokenizer(r["prefix"] + r["text"])["input_ids"]) for r in build_requests())
    tiny.Memory(loaded, tokens=max_tokens - 1)
    outputs, metadata = run_generate(loaded, build_requests())
    assert metadata["engine"]["strategies"][0]["used"] == "single"
    failed_ids = [name for name in outputs if outputs[name]["flags"]]
    assert [outputs[name]["flags"] for name in failed_ids] == ["error: out of memory in a batch of one prompt"]
    assert all(outputs[name] == expected[name] for name in outputs if name not in failed_ids)


def test_nan_never_agrees():
    loaded, logprobs, nan_logprobs = (
        tiny.load_model("llama"),
        [torch.tensor([0.0, -1.0])],
        [torch.tensor([0.0, float("nan")])],
    )
    assert not self_check.compare(loaded, nan_logprobs, logprobs).agrees
    equal = self_check.compare(loaded, logprobs, logprobs)
    assert (equal.agrees, equal.largest, equal.mean) == (True, 0.0, 0.0)


@pytest.mark.parametrize(
    "limits", [{"_CPU_ROWS": 1}, {"_CPU_ROWS": 3}, {"_CPU_PREFILL": 40}, {"_CPU_CACHE": 120 * 384}]
)
def test_texts_are_independent_of_batch_size(low_limits, limits):
    loaded = tiny.load_model("llama")
    expected, _ = run_generate(loaded, build_requests())
    low_limits("inference.generation.generate", **limits)
    outputs, metadata = run_generate(loaded, build_requests())
    assert metadata["counters"]["batches"] > 1
    assert {k: v["raw_output"] for k, v in outputs.items()} == {k: v["raw_output"] for k, v in expected.items()}


def test_texts_are_independent_of_row_order():
    loaded = tiny.load_model("qwen3")
    expected, _ = run_generate(loaded, build_requests())
    outputs, _ = run_generate(loaded, build_requests()[::-1])
    subset, _ = run_generate(loaded, build_requests()[2:5])
    assert outputs == expected
    assert subset == {name: expected[name] for name in subset}


def test_equal_requests_are_generated_once():
    requests = build_requests(TEXTS[:2])
    requests.append({**requests[0], "item_id": "twin"})
    outputs, metadata = run_generate(tiny.load_model("llama"), requests)
    assert metadata["counters"]["distinct"] == 2
    assert outputs["twin"] == {**outputs["i0"], "item_id": "twin"}


def test_finished_rows_are_removed_from_batch():
    loaded = tiny.load_model("llama")
    requests = build_requests(max_new_tokens=1)
    requests[0]["max_new_tokens"] = 60
    _, metadata = run_generate(loaded, requests)
    # 60 tokens for one row cost about 60 rows of work, not 60 batches of 7
    prefill = 3 * sum(len(loaded.tokenizer(r["prefix"] + r["text"])["input_ids"]) for r in requests)
    assert metadata["counters"]["tokens_computed"] < prefill + 60 + 7
    assert metadata["counters"]["tokens_generated"] == 60 + 6


def test_zero_new_tokens_give_empty_text():
    outputs, _ = run_generate(tiny.load_model("llama"), build_requests(max_new_tokens=0))
    assert {(r["raw_output"], r["finish_reason"], r["n_tokens"]) for r in outputs.values()} == {("", "length", 0)}


def test_skipped_items_are_flagged():
    skipped = build_request(9, "-", kind="score", span_start=1, span_end=1) | {"role": "skipped: no question"}
    outputs, _ = run_generate(tiny.load_model("llama"), [*build_requests(TEXTS[:1]), skipped])
    assert outputs["i9"]["flags"] == "error: no question"
    assert outputs["i9"]["raw_output"] is None


def test_no_requests_give_no_rows():
    outputs, metadata = run_generate(tiny.load_model("llama"), [])
    assert outputs == {}
    assert metadata["counters"]["forwards"] == 0


def test_out_of_memory_halves_batch_without_losing_rows():
    loaded = tiny.load_model("llama")
    expected, _ = run_generate(loaded, build_requests())
    memory = tiny.Memory(loaded, rows=2)
    outputs, metadata = run_generate(loaded, build_requests())
    assert outputs == expected
    assert [rows for rows, _ in memory.failures] == [7, 3]
    assert metadata["counters"]["oom_retries"] == 2


def test_row_exceeding_memory_is_flagged():
    loaded = tiny.load_model("llama")
    tiny.Memory(loaded, tokens=1)
    outputs, _ = run_generate(loaded, build_requests(TEXTS[:2]))
    assert {r["flags"] for r in outputs.values()} == {"error: out of memory in a batch of one prompt"}


def test_other_errors_are_not_treated_as_out_of_memory():
    loaded = tiny.load_model("llama")

    def raise_runtime_error(ids):
        if len(ids) == len(TEXTS):
            raise RuntimeError("shapes do not match")

    tiny.on_forward(loaded, raise_runtime_error)
    with pytest.raises(RuntimeError, match="shapes"):
        run_generate(loaded, build_requests())


def test_nan_logits_are_flagged_as_error():
    loaded = tiny.load_model("llama", seed=5)
    with torch.no_grad():
        loaded.model.lm_head.weight[0, 0] = float("nan")
    outputs, _ = run_generate(loaded, build_requests(TEXTS[:2]))
    assert {r["flags"] for r in outputs.values()} == {"error: the model returned NaN"}
    assert {r["raw_output"] for r in outputs.values()} == {None}


def test_interrupted_run_resumes(tmp_path, low_limits):
    loaded = tiny.load_model("llama")
    low_limits("inference.generation.generate", CPU_ROWS=2)
    expected, full_metadata = run_generate(loaded, build_requests())
    stop = StopFlag()
    stop.name = "SIGTERM"
    with pytest.raises(Stopped):
        run_generate(loaded, build_requests(), Journal(tmp_path / "journal", "key", stop=stop))
    outputs, resumed = run_generate(loaded, build_requests(), Journal(tmp_path / "journal", "key"))
    assert outputs == expected
    assert resumed["counters"]["resumed"] == 1
    assert resumed["counters"]["batches"] == full_metadata["counters"]["batches"] - 1


def test_halved_batches_of_earlier_attempt_are_reused(tmp_path):
    loaded = tiny.load_model("llama")
    memory = tiny.Memory(loaded, rows=4)
    journal = Journal(tmp_path / "journal", "key")
    expected, _ = run_generate(loaded, build_requests(), journal)
    journal.flush()
    memory.rows = None
    outputs, metadata = run_generate(loaded, build_requests(), Journal(tmp_path / "journal", "key"))
    assert outputs == expected
    assert metadata["counters"]["batches"] == 0
