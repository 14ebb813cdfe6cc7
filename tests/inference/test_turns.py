"""Ends of turns: what a template writes after an assistant turn ends a response; another turn's header is flagged.

An adapter's tokenizer brings its special tokens and limits, and control tokens in the text of an item are flagged.
"""

import copy
import json

import pytest
from support import lora_training, reasoning, tiny
from support.engines import generate, score
from tokenizers import AddedToken
from vernacular.checkpoints.adapters import resolve_adapter
from vernacular.checkpoints.resolve import resolve
from vernacular.core.errors import ModelError
from vernacular.inference.generation.decode import end_token_ids
from vernacular.inference.model.load import load, use_adapter
from vernacular.inference.model.rendering import render, turn_end
from vernacular.inference.model.tokenization import control_token_flag

TURN = [{"role": "user", "content": "Cal é a capital?"}]
TEMPLATES = {
    "chatml": "{% for m in messages %}<|im_start|>{{m['role']}}\n{{m['content']}}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "header only": "{% for m in messages %}<|{{m['role']}}|>{{m['content']|trim}}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}",
    "instructions": "{% for m in messages %}{% if m['role'] == 'user' %}<s>[INST] {{m['content']}} [/INST]"
    "{% else %} {{m['content']}} </s>{% endif %}{% endfor %}",
    "plain": "{% for m in messages %}### {{m['role']|capitalize}}: {{m['content']}}\n\n{% endfor %}"
    "{% if add_generation_prompt %}### Assistant:{% endif %}",
    "no punctuation": "{% for m in messages %}{{m['role']}}\n{{m['content']}}\n\n{% endfor %}"
    "{% if add_generation_prompt %}assistant\n{% endif %}",
    "one line": "{% for m in messages %}{{m['role']|upper}}: {{m['content']}}{{ ' ' if m['role'] == 'user' else '</s>' }}"
    "{% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}",
    "short": "{% for m in messages %}{{ 'Q: ' if m['role'] == 'user' else 'A: ' }}{{m['content']}}\n\n{% endfor %}"
    "{% if add_generation_prompt %}A:{% endif %}",
    "text before the end": "{% for m in messages %}<|{{m['role']}}|>{{m['content']}}"
    "{% if m['role'] == 'assistant' %} (fin)<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}",
    "one exchange": "{% if messages|length > 2 %}{{ raise_exception('one turn') }}{% endif %}"
    "{% for m in messages %}<|{{m['role']}}|>{{m['content']}}<|end|>{% endfor %}",
}
TOKENS = {
    "chatml": ["<|im_start|>", "<|im_end|>"],
    "header only": ["<|user|>", "<|assistant|>"],
    "instructions": ["<s>", "</s>"],
    "one exchange": ["<|end|>"],
    "one line": ["</s>"],
    "text before the end": ["<|user|>", "<|assistant|>", "<|end|>"],
}
ENDS = {
    "text before the end": "<|end|>",
    "one exchange": "<|end|>",
    "chatml": "<|im_end|>",
    "header only": "<|user|>",
    "instructions": "</s>",
    "one line": "</s>",
}
STOPS = {"plain": "\n### User:", "short": "\nQ:"}


def chat(name, *, special=True, arch="gpt2", **settings):
    tokenizer = copy.deepcopy(tiny.tokenizer("bytes"))
    tokenizer.add_tokens([AddedToken(token, special=special) for token in TOKENS.get(name, [])])
    tokenizer.chat_template = TEMPLATES[name]
    return tiny.wrap(tiny.model(arch, len(tokenizer)), tokenizer, tiny.record(arch, chat="auto", **settings))


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("name", TEMPLATES)
def test_end_of_a_turn_is_what_the_template_writes_there(name, special):
    loaded = chat(name, special=special)
    ending = turn_end(loaded)
    token = ENDS.get(name)
    assert ending.end_id == (token and loaded.tokenizer.convert_tokens_to_ids(token))
    assert ending.stop == STOPS.get(name)
    assert end_token_ids(loaded) == {loaded.eos_id, ending.end_id} - {None}


def respond(name, text, **content):
    loaded = chat(name)
    prompt = loaded.tokenizer(render(loaded, TURN), add_special_tokens=False)["input_ids"]
    ids = loaded.tokenizer(text, add_special_tokens=False)["input_ids"]
    reasoning.write(loaded, ids, prompt_length=len(prompt))
    [row] = generate(loaded, reasoning.table(reasoning.request(messages=TURN, max_new_tokens=60, **content)))[
        0
    ].to_pylist()
    return row


@pytest.mark.parametrize(
    ("name", "text", "output", "is_flagged"),
    [
        ("chatml", "Lugo<|im_end|>\n<|im_start|>user\nE?<|im_end|>", "Lugo", False),
        ("chatml", "Lugo\n<|im_start|>user\nE que", "Lugo\nuser\nE que", True),
        ("chatml", "Lugo<|im_start|>", "Lugo", True),
        ("chatml", "Lugo, dixo o user de onte", "Lugo, dixo o user de onte", False),
        ("header only", "Lugo\n<|user|>E?", "Lugo", False),
        ("text before the end", "Lugo (fin)<|end|><|user|>E?", "Lugo (fin)", False),
        ("instructions", "Lugo </s><s>[INST] E? [/INST] Vigo", "Lugo", False),
        ("instructions", "Lugo [INST] E? [/INST] Vigo", "Lugo [INST] E? [/INST] Vigo", True),
        ("plain", " Lugo\n\n### User: E?\n\n### Assistant: Vigo", "Lugo", False),
        ("no punctuation", "Lugo\n\nuser\nE?\n\nassistant\nVigo", "Lugo\n\nuser\nE?\n\nassistant\nVigo", True),
        ("no punctuation", "Lugo\n\nVigo", "Lugo\n\nVigo", False),
        ("no punctuation", "Lugo\nuser\nE?", "Lugo\nuser\nE?", True),
        ("no punctuation", "user", "user", False),
        ("chatml", "assistant\nLugo", "assistant\nLugo", True),
        ("plain", " Lugo\n### User: E?", "Lugo", False),
        ("plain", " Lugo\n\n\n###  User: E?", "Lugo\n\n\n###  User: E?", True),
        ("plain", "### Assistant: Lugo", "### Assistant: Lugo", True),
        ("one line", " Lugo USER: E? ASSISTANT: Vigo", "Lugo USER: E? ASSISTANT: Vigo", True),
        ("one line", " Lugo\nASSISTANT: Vigo", "Lugo\nASSISTANT: Vigo", True),
        ("one line", " O meu SUPERUSER: eu", "O meu SUPERUSER: eu", False),
        ("short", " Lugo\nQ: E?", "Lugo", False),
        ("short", " Lugo\nA: Vigo", "Lugo\nA: Vigo", True),
        ("short", " Lugo, ou A: Vigo", "Lugo, ou A: Vigo", False),
    ],
)
def test_response_ends_with_its_turn_or_is_flagged(name, text, output, is_flagged):
    row = respond(name, text)
    assert row["output"] == output
    assert ("another turn" in (row["flags"] or "")) is is_flagged


def test_stop_string_hides_another_turn():
    row = respond("no punctuation", "Lugo\n\nuser\nE?", stop=["\n"])
    assert (row["output"], row["flags"]) == ("Lugo", None)


def test_markers_of_reasoning_end_no_turn():
    loaded = reasoning.load("harmony")
    assert "<|end|>" in reasoning.TEMPLATES["harmony"]
    assert end_token_ids(loaded) == {loaded.eos_id} - {None}


# ----- adapters ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def adapted(tmp_path_factory):
    directory = tmp_path_factory.mktemp("adapters")
    tiny.save("llama", directory / "base", tokens="bytes")
    lora_training.train(directory / "base", directory / "tuned")
    base = resolve("base", str(directory / "base"), directory / "out")
    return directory, base | {"dtype": "float32", "device": "cpu"}


def with_tokenizer(adapted, tmp_path, **changes):
    """Return the record of a copy of the adapter that has the base's tokenizer, with changes in its settings."""
    directory, base = adapted
    copied = tmp_path / "adapter"
    copied.mkdir()
    for file in [*(directory / "tuned").iterdir(), *(directory / "base").glob("tokenizer*")]:
        (copied / file.name).write_bytes(file.read_bytes())
    settings = json.loads((copied / "tokenizer_config.json").read_text())
    (copied / "tokenizer_config.json").write_text(json.dumps(settings | changes))
    return copied, base


def test_special_tokens_and_limits_are_those_of_the_adapter(adapted, tmp_path):
    copied, base = with_tokenizer(adapted, tmp_path, eos_token="<bos>", bos_token="<eos>", model_max_length=77)
    loaded = load(base)
    assert (loaded.eos_id, loaded.bos_id, loaded.max_length) == (0, 1, 512)
    record = resolve_adapter("tuned", str(copied), base)
    with use_adapter(loaded, record) as tuned:
        assert (tuned.eos_id, tuned.bos_id, tuned.max_length, tuned.tokenizer_limit) == (1, 0, 77, True)
        assert 1 in end_token_ids(tuned)
    assert (loaded.eos_id, loaded.max_length) == (0, 512)


@pytest.mark.parametrize("own_tokenizer", [True, False])
def test_settings_that_peft_drops_are_noted_beside_those_of_the_base(adapted, tmp_path, own_tokenizer):
    copied, base = with_tokenizer(adapted, tmp_path)
    for file in [] if own_tokenizer else [*copied.glob("tokenizer*")]:
        file.unlink()
    settings = copied / "adapter_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"gain_of_later": 2.0, "none_of_later": None}))
    loaded = load(base)
    loaded.notes["loading"] = ["a note of the base"]
    with use_adapter(loaded, resolve_adapter("tuned", str(copied), base)) as tuned:
        note, unknown = tuned.notes["loading"]
    assert note == "a note of the base"
    assert "adapter_config.json has gain_of_later: 2.0, which PEFT" in unknown


def test_settings_without_vocabulary_in_an_adapter_are_rejected_unless_they_are_the_base_s(adapted, tmp_path):
    copied, base = with_tokenizer(adapted, tmp_path)
    (copied / "tokenizer.json").unlink()
    (copied / "tokenizer_config.json").write_bytes((adapted[0] / "base" / "tokenizer_config.json").read_bytes())
    assert not resolve_adapter("tuned", str(copied), base).adapter.own_tokenizer
    (copied / "tokenizer_config.json").write_text('{"eos_token": "<bos>"}')
    with pytest.raises(ModelError, match=r"model tuned: the adapter .* contains tokenizer_config.json"):
        resolve_adapter("tuned", str(copied), base)


def test_tokens_with_other_ids_in_an_adapter_are_rejected(adapted, tmp_path):
    copied, base = with_tokenizer(adapted, tmp_path)
    content = json.loads((copied / "tokenizer.json").read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    (copied / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ModelError, match="2 of the tokens differ, such as 'a'"):
        resolve_adapter("tuned", str(copied), base)


# ----- control tokens in the text of an item -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "text", "flag"),
    [
        ("prepend", "Usa <s>texto</s> aquí.", "control token: the text contains <s>, </s>"),
        ("metaspace", "o <mask> dorme", "control token: the text contains <mask>"),
        ("prepend", "Usa <S> e </ s> aquí.", None),
    ],
)
def test_control_tokens_in_a_scored_text_are_flagged_and_values_kept(tokens, text, flag):
    loaded = tiny.load_model("llama", tokens=tokens)
    prefix = "Exemplo. "
    requests = tiny.score_requests([(prefix + text, len(prefix), len(prefix + text))])
    [row] = score(loaded, requests)[0].to_pylist()
    assert [part for part in (row["flags"] or "").split("; ") if part.startswith("control")] == ([flag] if flag else [])
    assert len(row["logprobs"]) == len(row["tokens"]) > 0


def test_control_tokens_of_the_template_are_not_flagged_but_those_of_its_turns_are():
    loaded = chat("chatml")
    texts = ["Cal é a capital?", "Cal é <|im_end|> a capital?"]
    rows = [reasoning.request(str(i), messages=[{"role": "user", "content": text}]) for i, text in enumerate(texts)]
    flags = generate(loaded, reasoning.table(*rows))[0]["flags"].to_pylist()
    assert "control token" not in (flags[0] or "")
    assert "control token: the text contains <|im_end|>" in flags[1]


def test_control_tokens_that_were_not_added_as_special_are_flagged():
    """Those that the tokenizer's template writes, or another one of the config, or that end texts by the checkpoint."""
    tokenizer = copy.deepcopy(tiny.tokenizer("bytes"))
    tokenizer.add_tokens(["<|fin|>", "<|outro|>"])
    text, template = "O gato <|fin|> dorme <|outro|>.", "{% for m in messages %}{{ m.content }}<|fin|>{% endfor %}"

    def flag(tokenizer, ends=None, **settings):
        model = tiny.model("gpt2", len(tokenizer))
        model.generation_config.eos_token_id = ends
        return control_token_flag(tiny.wrap(model, tokenizer, tiny.record("gpt2", **settings)), [text])

    assert flag(tokenizer) is None
    expected = "control token: the text contains <|fin|>"
    assert flag(tokenizer, chat_template=template) == expected
    assert flag(tokenizer, ends=[1, tokenizer.convert_tokens_to_ids("<|fin|>")]) == expected
    other = copy.deepcopy(tokenizer)
    other.chat_template = template
    assert flag(other) == expected
