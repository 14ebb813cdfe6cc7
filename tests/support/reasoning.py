"""Tiny models with chat templates of reasoning models: each template has one trait of its family, in its own words.

`load("qwen3")` is a model whose next texts are set by `write`; special-token markers are special in its tokenizer, too.
"""

import copy
from types import SimpleNamespace

import pyarrow as pa
import torch
from tokenizers import AddedToken
from vernacular.inference.model.loaded import LoadedModel, wrap
from vernacular.protocols.schema import REQUESTS

from support import tiny

_TURNS = "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end_turn|>\n{% endfor %}"
_ANSWER = "{% if add_generation_prompt %}<|assistant|>"
_OFF = "<think>\n\n</think>\n\n"
TEMPLATES = {
    # reasons by default; a closed block in the prompt turns it off; reasoning of earlier turns is removed
    "qwen3": (
        "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'].split('</think>')[-1] }}<|end_turn|>\n{% endfor %}"
        f"{_ANSWER}{{% if enable_thinking is defined and enable_thinking is false %}}{_OFF}{{% endif %}}{{% endif %}}"
    ),
    # the prompt opens the block
    "qwen3.5": f"{_TURNS}{_ANSWER}{{% if enable_thinking is defined and not enable_thinking %}}{_OFF}"
    "{% else %}<think>\n{% endif %}{% endif %}",
    # the same, always
    "r1": f"{_TURNS}{_ANSWER}<think>\n{{% endif %}}",
    # off by default, with an argument of another name
    "deepseek": f"{_TURNS}{_ANSWER}{{% if thinking %}}<think>{{% else %}}</think>{{% endif %}}{{% endif %}}",
    # channels between special tokens, and an effort that cannot be none
    "harmony": (
        "<|start|>system<|message|>Reasoning: {{ reasoning_effort or 'medium' }}<|end|>"
        "{% for m in messages %}<|start|>{{ m['role'] }}{% if m['role'] == 'assistant' %}<|channel|>final{% endif %}"
        "<|message|>{{ m['content'] }}<|end|>{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}"
    ),
    # special tokens, always
    "magistral": (
        "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}{# [THINK]…[/THINK] #}[assistant]"
    ),
    # special tokens and a label; off by default, with an empty block
    "gemma4": (
        "{% if enable_thinking %}<|turn>system\n<|think|><turn|>\n{% endif %}"
        "{% for m in messages %}<|turn>{{ m['role'] }}\n{{ m['content'] | trim }}<turn|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|turn>model\n{% if not enable_thinking %}<|channel>thought\n<channel|>"
        "{% endif %}{% endif %}"
    ),
    # no system turns, content stripped, no reasoning
    "gemma2": (
        "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
        "{% endif %}<turn>{{ m['role'] }}\n{{ m['content'] | trim }}</turn>\n{% endfor %}"
        "{% if add_generation_prompt %}<turn>model\n{% endif %}"
    ),
    # a date, no reasoning
    "llama3": (
        "{% if not date_string is defined %}{% set date_string = '26 Jul 2024' %}{% endif %}"
        f"Today: {{{{ date_string }}}}\n{_TURNS}{_ANSWER}\n\n{{% endif %}}"
    ),
}
MARKERS = {
    "harmony": ["<|channel|>", "<|message|>", "<|end|>", "<|start|>", "<|return|>"],
    "magistral": ["[THINK]", "[/THINK]"],
    "gemma4": ["<|channel>", "<channel|>", "<|turn>", "<turn|>", "<|think|>"],
}


def load(family: str, arch: str = "gpt2", *, has_ids: bool = True, **settings) -> LoadedModel:
    """Return a tiny model with the template of a family; `has_ids`: its markers are tokens of their own."""
    tokenizer = copy.deepcopy(tiny.tokenizer("bytes"))
    special = MARKERS.get(family, [])
    if has_ids:
        tokenizer.add_tokens(
            [AddedToken(text, special=True, normalized=False) for text in special], special_tokens=True
        )
        tokenizer.add_tokens([AddedToken(text, normalized=False) for text in ("<think>", "</think>") if not special])
    tokenizer.chat_template = TEMPLATES[family]
    return wrap(tiny.model(arch, len(tokenizer)), tokenizer, tiny.record(arch, **{"chat": "auto", **settings}))


def ids_of(loaded: LoadedModel, *parts: str) -> list[int]:
    """Return the IDs of some texts, each tokenized alone; a part that begins with "quoted:" becomes no marker."""
    ids = []
    for part in parts:
        quoted = part.removeprefix("quoted:")
        texts = [quoted] if quoted == part else list(quoted)  # letter by letter, no marker is found
        ids += [token for text in texts for token in loaded.tokenizer(text, add_special_tokens=False)["input_ids"]]
    return ids


def request(name: str = "a", text: str = "Que animal durme?", **content) -> dict:
    messages = content.pop("messages", [{"role": "user", "content": text}])
    row = {"request_id": name, "item_id": name, "role": "response", "kind": "generate", "prefix": "", "text": text}
    return (
        dict.fromkeys(REQUESTS.schema.names) | row | {"messages": messages, "stop": [], "max_new_tokens": 24} | content
    )


def table(*rows: dict) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=REQUESTS.schema)


def write(loaded: LoadedModel, ids: list[int], *, prompt_length: int) -> None:
    """Make the model generate `ids` after a prompt, and then its EOS token."""
    script = [*ids, loaded.eos_id]

    def forward(input_ids=None, attention_mask=None, past_key_values=None, logits_to_keep=0, use_cache=True, **_):
        length = input_ids.shape[1] if attention_mask is None else attention_mask.shape[1]
        logits = torch.zeros(len(input_ids), input_ids.shape[1], len(loaded.tokenizer))
        for column, position in enumerate(range(length - input_ids.shape[1], length)):
            logits[:, column, script[min(max(0, position + 1 - prompt_length), len(script) - 1)]] = 99.0
        return SimpleNamespace(logits=logits[:, -logits_to_keep:], past_key_values=past_key_values)

    loaded.model.forward = forward
