"""Prompts and generated text: stop strings, lengths, templates and random generators per request."""

import copy
import math

import pyarrow as pa
import pytest
import torch
from support import reasoning, tiny
from support.engines import generate, outputs
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast, RepetitionPenaltyLogitsProcessor
from vernacular.inference.generation.decode import Sampler, common_prefix
from vernacular.inference.generation.generate import VLLMGeneration
from vernacular.inference.generation.prepare import (
    MARGIN,
    PreparedPrompt,
    decode_continuation,
    prepare_prompt,
    truncate_output,
)
from vernacular.inference.model.rendering import drop_examples
from vernacular.inference.schema import MemoryJournal
from vernacular.protocols.schema import REQUESTS

SAMPLED = {"temperature": 0.5, "top_k": 50, "top_p": None, "repetition_penalty": 0.5, "seed": 7}
TEMPLATE = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}</>{% endfor %}{% if add_generation_prompt %}<a>{% endif %}"


@pytest.fixture(autouse=True)
def single_thread():
    torch.set_num_threads(1)


def build_request(text="O gato", name="a", **content):
    content = {"prefix": "", "stop": [], "max_new_tokens": 8, **content}
    names = dict.fromkeys(REQUESTS.schema.names)
    return names | {"request_id": name, "item_id": name, "role": "response", "kind": "generate", "text": text} | content


def run_generate(loaded, *requests):
    table, _ = generate(loaded, pa.Table.from_pylist(list(requests), schema=REQUESTS.schema), journal=MemoryJournal())
    return table.to_pylist()


def write_text(loaded, text, *, prompt="O gato"):
    """Make the model generate `text` and its EOS token after the tokens of `prompt`."""
    ids = loaded.tokenizer(text, add_special_tokens=False)["input_ids"]
    reasoning.write(loaded, ids, prompt_length=len(loaded.tokenizer(prompt)["input_ids"]))
    return loaded


@pytest.mark.parametrize(
    ("text", "stops", "raw_output", "output", "finish_reason"),
    [
        ("a casa", [], "a casa", "a casa", "eos"),
        ("a casa\nQuestion: What", ["\n"], "a casa\n", "a casa", "stop"),
        ("a casa. Fin, e", ["Fin", ". "], "a casa. ", "a casa", "stop"),
        ("\nQuestion", ["\n"], "\n", "", "stop"),
        ("a casa e a cadela ladra na rúa", [], None, None, "length"),
        ("gato 🐈 مرحبا", [], "gato 🐈 مرحبا", "gato 🐈 مرحبا", "eos"),
        ("", [], "", "", "eos"),
    ],
)
def test_output_ends_before_first_stop(text, stops, raw_output, output, finish_reason):
    loaded = write_text(tiny.load_model("gpt2"), text)
    max_new_tokens = 6 if finish_reason == "length" else 99
    (result,) = run_generate(loaded, build_request(stop=stops, max_new_tokens=max_new_tokens))
    assert result["finish_reason"] == finish_reason
    if finish_reason == "length":
        assert result["n_tokens"] == 6
    else:
        assert (result["raw_output"], result["output"]) == (raw_output, output)


def test_repeated_label_in_output_is_preserved():
    prompt = "Question: x\nAnswer:"
    loaded = write_text(tiny.load_model("gpt2"), " Answer: Answer: B", prompt=prompt)
    (result,) = run_generate(loaded, build_request(prompt, stop=["\n"], max_new_tokens=40))
    assert result["raw_output"] == " Answer: Answer: B"
    assert result["output"] == "Answer: Answer: B"


def test_sentencepiece_continuation_preserves_leading_space():
    tokenizer = tiny.tokenizer("prepend")
    ids = tokenizer("The keys to the cabinet", add_special_tokens=False)["input_ids"]
    start = next(i for i, token in enumerate(tokenizer.convert_ids_to_tokens(ids)) if i and token.startswith("▁"))
    text = decode_continuation(tokenizer, ids[:start], ids[start:])
    assert text.startswith(" ")
    assert tokenizer.decode(ids[:start]) + text == "The keys to the cabinet"
    assert text.lstrip() == tokenizer.decode(ids[start:])  # decoded without context


def test_bytes_of_an_incomplete_character_do_not_hide_the_others():
    names = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁"]
    core = Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, [], unk_token="<unk>", byte_fallback=True))
    core.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer, text = PreTrainedTokenizerFast(tokenizer_object=core), "ខ្ញុំអានសៀវភៅ"  # three bytes each, no spaces
    ids = tokenizer(text)["input_ids"]
    assert len(ids) == 3 * len(text)
    for start in range(len(text) - 1):
        assert decode_continuation(tokenizer, ids[: 3 * start], ids[3 * start :]) == text[start:]
        for n_missing in (1, 2):
            found = decode_continuation(tokenizer, ids[: 3 * start], ids[3 * start : -n_missing])
            assert found == text[start:-1] + "\ufffd"


def test_special_tokens_are_not_in_text():
    loaded = tiny.load_model("gpt2")
    ids = loaded.tokenizer("O gato")["input_ids"]
    assert (
        decode_continuation(loaded.tokenizer, ids, [*loaded.tokenizer(" dorme")["input_ids"], loaded.eos_id])
        == " dorme"
    )


def test_chat_output_may_begin_with_empty_line():
    assert truncate_output("\n\na mazá\nmore", ["\n"], skip_leading_space=True) == "a mazá"
    assert truncate_output("\n\na mazá\nmore", ["\n"], skip_leading_space=False) == ""
    assert truncate_output("  \n", ["\n"], skip_leading_space=True) == ""


def test_max_new_tokens_covers_longest_target():
    loaded = tiny.load_model("gpt2")
    target = " a cadela ladra na rúa"
    n_target_tokens = len(loaded.tokenizer(target)["input_ids"])
    prompt = prepare_prompt(loaded, build_request(max_new_tokens=None, longest_target=target))
    assert prompt.max_new_tokens == n_target_tokens + MARGIN
    assert prepare_prompt(loaded, build_request(max_new_tokens=3, longest_target=target)).max_new_tokens == 3


def few_shot_examples(n):
    return [f"Question: What is it? {i}\nAnswer: D\n" for i in range(n)]


def test_long_prompt_drops_few_shot_examples_only():
    examples = few_shot_examples(4)
    request = build_request("Question: What is the capital?", prefix="".join(examples), few_shot_examples=examples)
    loaded = tiny.load_model("gpt2")
    n_prompt_tokens = len(loaded.tokenizer("".join(examples[2:]) + request["text"])["input_ids"])
    loaded = tiny.load_model("gpt2", max_length=n_prompt_tokens + 8)
    prompt = prepare_prompt(loaded, request)
    assert prompt.n_dropped_examples == 2
    assert loaded.tokenizer.decode(prompt.ids) == "".join(examples[2:]) + request["text"]
    assert prompt.flag == "truncated: 2 few-shot examples dropped"
    (result,) = run_generate(loaded, request)
    assert (result["flags"], result["n_prompt_tokens"]) == ("truncated: 2 few-shot examples dropped", n_prompt_tokens)


def test_oversized_prompt_is_flagged_and_not_generated():
    examples = few_shot_examples(2)
    request = build_request("Question: What is the capital?", prefix="".join(examples), few_shot_examples=examples)
    (result,) = run_generate(tiny.load_model("gpt2", max_length=12), request)
    assert result["flags"].startswith("error: ")
    assert "at most 12 tokens" in result["flags"]
    assert (result["raw_output"], result["output"], result["finish_reason"]) == (None, None, None)


def test_prefix_with_other_text_is_not_truncated():
    examples = few_shot_examples(4)
    request = build_request(
        "Question: What?", prefix="Answer in Galician.\n" + "".join(examples), few_shot_examples=examples
    )
    (result,) = run_generate(tiny.load_model("gpt2", max_length=60), request)
    assert "at most 60 tokens" in result["flags"]


def test_truncated_rows_do_not_prevent_prefix_sharing():
    examples = few_shot_examples(4)
    rows = [
        build_request(text, name=str(i), prefix="".join(examples), few_shot_examples=examples)
        for i, text in enumerate(["O gato", "A cadela", "Question: What is the capital of Galicia, and of Vigo?" * 4])
    ]
    loaded = tiny.load_model("gpt2")
    max_prompt_tokens = len(loaded.tokenizer(rows[2]["prefix"] + rows[2]["text"])["input_ids"])
    loaded = tiny.load_model("gpt2", max_length=max_prompt_tokens + 7)
    table, metadata = generate(loaded, pa.Table.from_pylist(rows, schema=REQUESTS.schema), journal=MemoryJournal())
    assert [s["used"] for s in metadata["engine"]["strategies"]] == ["prefix", "single"]
    assert [f is None for f in table.column("flags").to_pylist()] == [True, True, False]


def with_chat_template(loaded):
    loaded.tokenizer = type(loaded.tokenizer)(tokenizer_object=loaded.tokenizer.backend_tokenizer, eos_token="<eos>")
    loaded.tokenizer.chat_template = TEMPLATE
    return loaded


def messages(n):
    turns = [{"role": r, "content": f"{r} {i}"} for i in range(n) for r in ("user", "assistant")]
    return [{"role": "system", "content": "S"}, *turns, {"role": "user", "content": "last"}]


def test_chat_template_is_applied_and_rendered_text_stored():
    loaded = with_chat_template(tiny.load_model("gpt2", chat="auto"))
    (result,) = run_generate(loaded, build_request(messages=messages(1)))
    assert result["rendered"] == "<system>S</><user>user 0</><assistant>assistant 0</><user>last</><a>"
    assert result["n_prompt_tokens"] == len(loaded.tokenizer(result["rendered"])["input_ids"])


def test_chat_drops_complete_turns():
    request = build_request(messages=messages(3), prefix="abc", few_shot_examples=["a", "b", "c"])
    assert [t["content"] for t in drop_examples(request, 2)["messages"]] == ["S", "user 2", "assistant 2", "last"]


def test_single_chat_message_drops_its_few_shot_examples():
    examples = few_shot_examples(3)
    request = build_request("Q", prefix="".join(examples), few_shot_examples=examples)
    request["messages"] = [{"role": "user", "content": "".join(examples) + "Q"}]
    assert drop_examples(request, 2)["messages"] == [{"role": "user", "content": examples[2] + "Q"}]


@pytest.mark.parametrize(
    ("policy", "tokens", "first_token"),
    [("auto", "bytes", None), ("always", "bytes", "<bos>"), ("eos", "bytes", "<eos>"), ("never", "bytes-bos", None),
     ("auto", "bytes-bos", "<bos>"), ("eos", "bytes-bos", "<bos>"), ("always", "bytes-bos", "<bos>")],
)  # fmt: skip
def test_bos_policy_of_prompt(policy, tokens, first_token):
    loaded = tiny.load_model("gpt2", tokens=tokens, bos=policy)
    ids = prepare_prompt(loaded, build_request()).ids
    plain_ids = loaded.tokenizer("O gato", add_special_tokens=False)["input_ids"]
    assert ids == ([loaded.tokenizer.convert_tokens_to_ids(first_token)] if first_token else []) + plain_ids


@pytest.mark.parametrize(("policy", "first_token"), [("auto", "<"), ("always", "<bos>")])
def test_chat_template_adds_bos_only_with_always(policy, first_token):
    loaded = tiny.load_model("gpt2", tokens="bytes", bos=policy, chat=True)
    tokenizer = copy.deepcopy(loaded.tokenizer)
    tokenizer.chat_template, loaded.tokenizer = TEMPLATE, tokenizer
    prompt = prepare_prompt(loaded, build_request(messages=messages(0)))
    template_ids = tokenizer(prompt.rendered, add_special_tokens=False)["input_ids"]
    assert tokenizer.convert_ids_to_tokens(prompt.ids[:1]) == [first_token]
    assert prompt.ids[-len(template_ids) :] == template_ids


@pytest.mark.parametrize(("policy", "expected"), [("auto", "[CLS] gato"), ("never", "[CLS] gato")])
def test_closing_special_tokens_are_removed_from_prompt(policy, expected):
    loaded = tiny.load_model("gpt2", tokens="wordpiece", bos=policy)
    assert loaded.tokenizer.convert_ids_to_tokens(loaded.tokenizer("gato")["input_ids"]) == ["[CLS]", "gato", "[SEP]"]
    ids = prepare_prompt(loaded, build_request("gato")).ids
    assert " ".join(loaded.tokenizer.convert_ids_to_tokens(ids)) == expected


def test_eos_added_by_tokenizer_is_removed_from_prompt():
    loaded = tiny.load_model("gpt2", tokens="metaspace")
    assert loaded.tokenizer("O gato")["input_ids"][-1] == loaded.eos_id
    assert prepare_prompt(loaded, build_request()).ids[-1] != loaded.eos_id


def test_common_prefix_leaves_each_row_one_token():
    assert common_prefix([[1, 2, 3], [1, 2, 3, 4]]) == [1, 2]
    assert common_prefix([[1, 2, 3], [1, 2, 9]]) == [1, 2]
    assert common_prefix([[5], [6, 7]]) == []
    assert common_prefix([[1, 2], [1, 2]]) == [1]


def build_prompt(name="a", ids=(1, 2, 3), **decoding):
    return PreparedPrompt(name, list(ids), None, 8, [], {**SAMPLED, **decoding})


def test_repetition_penalty_matches_transformers():
    torch.manual_seed(0)
    logits = torch.randn(1, 40)
    expected = RepetitionPenaltyLogitsProcessor(1.7)(torch.tensor([[1, 2, 3]]), logits.clone()).argmax().item()
    tokens = Sampler([build_prompt(temperature=0.0, repetition_penalty=1.7)], 40, "cpu").sample(logits, [0])
    assert tokens.tolist() == [expected]


def test_repetition_penalty_includes_generated_tokens():
    sampler = Sampler([build_prompt(ids=[0], temperature=0.0, repetition_penalty=10.0)], 4, "cpu")
    logits = torch.tensor([[0.0, 5.0, 4.0, 3.0]])
    assert [sampler.sample(logits, [0]).item() for _ in range(3)] == [1, 2, 3]


def test_sampling_follows_distribution():
    probabilities = torch.tensor([0.5, 0.3, 0.2])
    decoding = {"temperature": 1.0, "top_k": None, "repetition_penalty": None}
    sampler = Sampler([build_prompt(str(i), **decoding) for i in range(4000)], 3, "cpu")
    tokens = sampler.sample(probabilities.log().expand(4000, 3), list(range(4000)))
    for token, probability in enumerate(probabilities.tolist()):
        assert abs((tokens == token).double().mean().item() - probability) < 5 * math.sqrt(
            probability * (1 - probability) / 4000
        )


@pytest.mark.parametrize("limits", [{"top_k": 2}, {"top_p": 0.6}])
def test_top_k_and_top_p_limit_sampling(limits):
    decoding = {"temperature": 1.0, "top_k": None, "repetition_penalty": None, **limits}
    sampler = Sampler([build_prompt(str(i), **decoding) for i in range(300)], 3, "cpu")
    logits = torch.tensor([0.5, 0.3, 0.2]).log().expand(300, 3)
    assert set(sampler.sample(logits, list(range(300))).tolist()) == {0, 1}


def test_sampled_text_is_independent_of_batch():
    loaded = tiny.load_model("llama")
    texts = ["O gato", "A choiva cae amodo sobre a vila", "The keys", "Jutros smo otišli"]
    rows = [build_request(text, name=str(i), decoding=SAMPLED) for i, text in enumerate(texts)]
    batched = run_generate(loaded, *rows)
    assert batched == [run_generate(loaded, r)[0] for r in rows]
    assert batched == run_generate(loaded, *rows[::-1])[::-1]


def test_seeds_give_different_texts():
    loaded = tiny.load_model("llama")
    decoding = {**SAMPLED, "temperature": 5.0, "repetition_penalty": None}
    texts = {
        run_generate(loaded, build_request(decoding=decoding | {"seed": seed}))[0]["raw_output"] for seed in range(5)
    }
    assert len(texts) == 5


def test_missing_vllm_raises_model_error(monkeypatch):
    import sys

    from vernacular.core.errors import ModelError

    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(ModelError, match=r"pip install vernacular\[vllm\]"):
        outputs(VLLMGeneration(tiny.load_model("gpt2"), REQUESTS.schema.empty_table()), MemoryJournal())
