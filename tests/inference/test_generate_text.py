"""Prompts into tokens, tokens into answers: stops, lengths, templates, and the random stream of a request."""

import copy
import math

import pyarrow as pa
import pytest
import torch
from support import tiny
from transformers import RepetitionPenaltyLogitsProcessor
from vernacular.inference.generation.cache import shared_start
from vernacular.inference.generation.decode import Sampler
from vernacular.inference.generation.generate import generate
from vernacular.inference.generation.prepare import MARGIN, Prompt, answer_of, continuation, prompt_of
from vernacular.inference.journal import MemoryJournal
from vernacular.inference.model.rendering import shortened
from vernacular.protocols.schema import REQUESTS

SAMPLED = {"temperature": 0.5, "top_k": 50, "top_p": None, "repetition_penalty": 0.5, "seed": 7}
TEMPLATE = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}</>{% endfor %}{% if add_generation_prompt %}<a>{% endif %}"


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def row(text="O gato", name="a", **content):
    content = {"prefix": "", "stop": [], "max_new_tokens": 8, **content}
    names = dict.fromkeys(REQUESTS.schema.names)
    return names | {"request_id": name, "item_id": name, "role": "response", "kind": "generate", "text": text} | content


def run(loaded, *requests):
    table, _ = generate(loaded, pa.Table.from_pylist(list(requests), schema=REQUESTS.schema), journal=MemoryJournal())
    return table.to_pylist()


def spelling(loaded, text):
    """A model that writes `text` and then its end token, whatever it is asked."""
    ids = [*loaded.tokenizer(text, add_special_tokens=False)["input_ids"], loaded.eos_id]
    prompts = {}

    def forward(input_ids=None, attention_mask=None, past_key_values=None, **_):
        from types import SimpleNamespace

        start = prompts.setdefault("length", attention_mask.shape[1])
        logits = torch.zeros(len(input_ids), 1, len(loaded.tokenizer))
        logits[..., ids[min(attention_mask.shape[1] - start, len(ids) - 1)]] = 9.0
        return SimpleNamespace(logits=logits)

    loaded.model.forward = forward
    return loaded


@pytest.mark.parametrize(
    ("text", "stops", "raw", "answer", "reason"),
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
def test_an_answer_ends_before_its_first_stop(text, stops, raw, answer, reason):
    loaded = spelling(tiny.loaded("gpt2"), text)
    new = 6 if reason == "length" else 99
    (found,) = run(loaded, row(stop=stops, max_new_tokens=new))
    assert found["finish_reason"] == reason
    if reason == "length":
        assert found["n_tokens"] == 6
    else:
        assert (found["raw_output"], found["output"]) == (raw, answer)


def test_hostile_text_that_repeats_the_label_is_kept_as_it_is():
    loaded = spelling(tiny.loaded("gpt2"), " Answer: Answer: B")
    (found,) = run(loaded, row("Question: x\nAnswer:", stop=["\n"], max_new_tokens=40))
    assert found["raw_output"] == " Answer: Answer: B"
    assert found["output"] == "Answer: Answer: B"


def test_a_sentencepiece_continuation_keeps_its_first_blank():
    tokenizer = tiny.tokenizer("prepend")
    whole = tokenizer("The keys to the cabinet", add_special_tokens=False)["input_ids"]
    new = next(i for i, piece in enumerate(tokenizer.convert_ids_to_tokens(whole)) if i and piece.startswith("▁"))
    found = continuation(tokenizer, whole[:new], whole[new:])
    assert found.startswith(" ")
    assert tokenizer.decode(whole[:new]) + found == "The keys to the cabinet"
    assert found.lstrip() == tokenizer.decode(whole[new:])  # what decoding them alone would give


def test_special_tokens_are_no_text():
    loaded = tiny.loaded("gpt2")
    ids = loaded.tokenizer("O gato")["input_ids"]
    assert continuation(loaded.tokenizer, ids, [*loaded.tokenizer(" dorme")["input_ids"], loaded.eos_id]) == " dorme"


def test_a_chat_turn_may_open_with_an_empty_line():
    assert answer_of("\n\na mazá\nmore", ["\n"], after_blank=True) == "a mazá"
    assert answer_of("\n\na mazá\nmore", ["\n"], after_blank=False) == ""
    assert answer_of("  \n", ["\n"], after_blank=True) == ""


def test_as_many_tokens_as_the_longest_answer_needs():
    loaded = tiny.loaded("gpt2")
    answer = " a cadela ladra na rúa"
    needed = len(loaded.tokenizer(answer)["input_ids"])
    prompt = prompt_of(loaded, row(max_new_tokens=None, longest_target=answer))
    assert prompt.max_new_tokens == needed + MARGIN
    assert prompt_of(loaded, row(max_new_tokens=3, longest_target=answer)).max_new_tokens == 3


def few_shot_examples(n):
    return [f"Question: What is it? {i}\nAnswer: D\n" for i in range(n)]


def test_a_long_prompt_sheds_demonstrations_and_never_the_question():
    block = few_shot_examples(4)
    request = row("Question: What is the capital?", prefix="".join(block), few_shot_examples=block)
    loaded = tiny.loaded("gpt2")
    two = len(loaded.tokenizer("".join(block[2:]) + request["text"])["input_ids"])
    loaded = tiny.loaded("gpt2", max_length=two + 8)
    prompt = prompt_of(loaded, request)
    assert prompt.left_out == 2
    assert loaded.tokenizer.decode(prompt.ids) == "".join(block[2:]) + request["text"]
    assert prompt.flag == "truncated: 2 few-shot examples dropped"
    (found,) = run(loaded, request)
    assert (found["flags"], found["n_prompt_tokens"]) == ("truncated: 2 few-shot examples dropped", two)


def test_a_question_that_does_not_fit_is_not_asked():
    block = few_shot_examples(2)
    request = row("Question: What is the capital?", prefix="".join(block), few_shot_examples=block)
    (found,) = run(tiny.loaded("gpt2", max_length=12), request)
    assert found["flags"].startswith("error: ")
    assert "at most 12 tokens" in found["flags"]
    assert (found["raw_output"], found["output"], found["finish_reason"]) == (None, None, None)


def test_a_few_shot_block_that_is_not_its_examples_joined_is_not_cut():
    block = few_shot_examples(4)
    request = row("Question: What?", prefix="Answer in Galician.\n" + "".join(block), few_shot_examples=block)
    (found,) = run(tiny.loaded("gpt2", max_length=60), request)
    assert "at most 60 tokens" in found["flags"]


def test_truncated_rows_do_not_spoil_the_others_prefix():
    block = few_shot_examples(4)
    rows = [
        row(text, name=str(i), prefix="".join(block), few_shot_examples=block)
        for i, text in enumerate(["O gato", "A cadela", "Question: What is the capital of Galicia, and of Vigo?" * 4])
    ]
    loaded = tiny.loaded("gpt2")
    longest = len(loaded.tokenizer(rows[2]["prefix"] + rows[2]["text"])["input_ids"])
    loaded = tiny.loaded("gpt2", max_length=longest + 7)
    table, metadata = generate(loaded, pa.Table.from_pylist(rows, schema=REQUESTS.schema), journal=MemoryJournal())
    assert [s["used"] for s in metadata["engine"]["strategies"]] == ["prefix", "single"]
    assert [f is None for f in table.column("flags").to_pylist()] == [True, True, False]


def chat(loaded):
    loaded.tokenizer = type(loaded.tokenizer)(tokenizer_object=loaded.tokenizer.backend_tokenizer, eos_token="<eos>")
    loaded.tokenizer.chat_template = TEMPLATE
    return loaded


def messages(n):
    asked = [{"role": r, "content": f"{r} {i}"} for i in range(n) for r in ("user", "assistant")]
    return [{"role": "system", "content": "S"}, *asked, {"role": "user", "content": "last"}]


def test_a_chat_model_reads_its_template_and_the_text_is_kept():
    loaded = chat(tiny.loaded("gpt2", chat="auto"))
    (found,) = run(loaded, row(messages=messages(1)))
    assert found["rendered"] == "<system>S</><user>user 0</><assistant>assistant 0</><user>last</><a>"
    assert found["n_prompt_tokens"] == len(loaded.tokenizer(found["rendered"])["input_ids"])


def test_chat_sheds_whole_turns():
    request = row(messages=messages(3), prefix="abc", few_shot_examples=["a", "b", "c"])
    assert [t["content"] for t in shortened(request, 2)["messages"]] == ["S", "user 2", "assistant 2", "last"]


def test_a_single_chat_message_sheds_its_own_demonstrations():
    block = few_shot_examples(3)
    request = row("Q", prefix="".join(block), few_shot_examples=block)
    request["messages"] = [{"role": "user", "content": "".join(block) + "Q"}]
    assert shortened(request, 2)["messages"] == [{"role": "user", "content": block[2] + "Q"}]


@pytest.mark.parametrize(
    ("policy", "tokens", "first"),
    [("auto", "bytes", None), ("always", "bytes", "<bos>"), ("eos", "bytes", "<eos>"), ("never", "bytes-bos", None),
     ("auto", "bytes-bos", "<bos>"), ("eos", "bytes-bos", "<bos>"), ("always", "bytes-bos", "<bos>")],
)  # fmt: skip
def test_the_bos_policy_is_followed(policy, tokens, first):
    loaded = tiny.loaded("gpt2", tokens=tokens, bos=policy)
    ids = prompt_of(loaded, row()).ids
    plain = loaded.tokenizer("O gato", add_special_tokens=False)["input_ids"]
    assert ids == ([loaded.tokenizer.convert_tokens_to_ids(first)] if first else []) + plain


@pytest.mark.parametrize(("policy", "first"), [("auto", "<"), ("always", "<bos>")])
def test_a_chat_template_brings_its_own_special_tokens_unless_one_is_demanded(policy, first):
    loaded = tiny.loaded("gpt2", tokens="bytes", bos=policy, chat=True)
    tokenizer = copy.deepcopy(loaded.tokenizer)
    tokenizer.chat_template, loaded.tokenizer = TEMPLATE, tokenizer
    prompt = prompt_of(loaded, row(messages=messages(0)))
    rest = tokenizer(prompt.rendered, add_special_tokens=False)["input_ids"]
    assert tokenizer.convert_ids_to_tokens(prompt.ids[:1]) == [first]
    assert prompt.ids[-len(rest) :] == rest


@pytest.mark.parametrize(("policy", "expected"), [("auto", "[CLS] gato"), ("never", "[CLS] gato")])
def test_only_the_bos_is_taken_away_in_front_and_everything_behind(policy, expected):
    loaded = tiny.loaded("gpt2", tokens="wordpiece", bos=policy)
    assert loaded.tokenizer.convert_ids_to_tokens(loaded.tokenizer("gato")["input_ids"]) == ["[CLS]", "gato", "[SEP]"]
    ids = prompt_of(loaded, row("gato")).ids
    assert " ".join(loaded.tokenizer.convert_ids_to_tokens(ids)) == expected


def test_a_closing_token_that_the_tokenizer_adds_is_not_part_of_the_prompt():
    loaded = tiny.loaded("gpt2", tokens="metaspace")
    assert loaded.tokenizer("O gato")["input_ids"][-1] == loaded.eos_id
    assert prompt_of(loaded, row()).ids[-1] != loaded.eos_id


def test_shared_start_leaves_every_row_a_token_of_its_own():
    assert shared_start([[1, 2, 3], [1, 2, 3, 4]]) == [1, 2]
    assert shared_start([[1, 2, 3], [1, 2, 9]]) == [1, 2]
    assert shared_start([[5], [6, 7]]) == []
    assert shared_start([[1, 2], [1, 2]]) == [1]


def prompt(name="a", ids=(1, 2, 3), **decoding):
    return Prompt(name, list(ids), None, 8, [], {**SAMPLED, **decoding})


def test_repetition_penalty_is_transformers_own():
    torch.manual_seed(0)
    logits = torch.randn(1, 40)
    expected = RepetitionPenaltyLogitsProcessor(1.7)(torch.tensor([[1, 2, 3]]), logits.clone()).argmax().item()
    chosen = Sampler([prompt(temperature=0.0, repetition_penalty=1.7)], 40, "cpu").choose(logits, [0])
    assert chosen == [expected]


def test_repetition_penalty_sees_what_was_generated():
    sampler = Sampler([prompt(ids=[0], temperature=0.0, repetition_penalty=10.0)], 4, "cpu")
    logits = torch.tensor([[0.0, 5.0, 4.0, 3.0]])
    assert [sampler.choose(logits, [0])[0] for _ in range(3)] == [1, 2, 3]


def test_sampling_follows_the_distribution():
    shares = torch.tensor([0.5, 0.3, 0.2])
    decoding = {"temperature": 1.0, "top_k": None, "repetition_penalty": None}
    sampler = Sampler([prompt(str(i), **decoding) for i in range(4000)], 3, "cpu")
    chosen = torch.tensor(sampler.choose(shares.log().expand(4000, 3), list(range(4000))))
    for token, share in enumerate(shares.tolist()):
        assert abs((chosen == token).double().mean().item() - share) < 5 * math.sqrt(share * (1 - share) / 4000)


@pytest.mark.parametrize("cut", [{"top_k": 2}, {"top_p": 0.6}])
def test_sampling_keeps_to_the_likeliest(cut):
    decoding = {"temperature": 1.0, "top_k": None, "repetition_penalty": None, **cut}
    sampler = Sampler([prompt(str(i), **decoding) for i in range(300)], 3, "cpu")
    logits = torch.tensor([0.5, 0.3, 0.2]).log().expand(300, 3)
    assert set(sampler.choose(logits, list(range(300)))) == {0, 1}


def test_a_sampled_text_does_not_depend_on_its_batch():
    loaded = tiny.loaded("llama")
    texts = ["O gato", "A choiva cae amodo sobre a vila", "The keys", "Jutros smo otišli"]
    rows = [row(text, name=str(i), decoding=SAMPLED) for i, text in enumerate(texts)]
    together = run(loaded, *rows)
    assert together == [run(loaded, r)[0] for r in rows]
    assert together == run(loaded, *rows[::-1])[::-1]


def test_another_seed_is_another_text():
    loaded = tiny.loaded("llama")
    hot = {**SAMPLED, "temperature": 5.0, "repetition_penalty": None}
    found = {run(loaded, row(decoding=hot | {"seed": seed}))[0]["raw_output"] for seed in range(5)}
    assert len(found) == 5


def test_vllm_that_is_not_installed_is_one_sentence(monkeypatch):
    import sys

    from vernacular.core.errors import ModelError
    from vernacular.inference.generation import vllm

    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(ModelError, match=r"pip install vernacular\[vllm\]"):
        vllm.generate(tiny.loaded("gpt2"), REQUESTS.schema.empty_table(), journal=MemoryJournal())
