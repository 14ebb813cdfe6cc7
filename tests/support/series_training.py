"""A training run for tests: a tiny model learns agreement and word order from generated sentences, saved eight times."""

import functools
import json
import random
import shutil
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerBase

from support import tiny
from support.once import once

NOUNS = ["gato", "neno", "can", "lobo", "home", "amigo", "veciño", "carteiro", "mestre", "rato"]
VERBS = [
    ("come", "comen"),
    ("quere", "queren"),
    ("ve", "ven"),
    ("colle", "collen"),
    ("pide", "piden"),
    ("leva", "levan"),
]
OBJECTS = ["pan", "queixo", "auga", "leite", "peixe", "arroz", "sopa", "froita"]
STEPS = (1, 10, 20, 40, 80, 120, 160, 200)  # eight checkpoints


TASK = {
    "task": "grammar",
    "protocols": ["minimal_pair"],
    "item_type": "pair",
    "columns": {"good": "good", "bad": "bad", "category": "phenomenon", "cluster": "frame"},
    "languages": {"gl": {"source": {"file": "pairs.jsonl"}}},
}
EVALUATION = "grammar.gl.minimal_pair.0shot"


def sentence(noun: str, plural: bool, verb: tuple[str, str], obj: str) -> str:
    return f"{'Os' if plural else 'O'} {noun}{'s' if plural else ''} {verb[plural]} {obj}."


def combinations() -> list[tuple]:
    rows = [
        (noun, plural, verb, obj) for noun in NOUNS for plural in (False, True) for verb in VERBS for obj in OBJECTS
    ]
    random.Random(0).shuffle(rows)
    return rows


def write_pairs(path: Path, count: int = 100) -> None:
    """Write minimal pairs of held-out sentences: the wrong number of the verb, and the wrong order of verb and object."""
    rows = []
    for i, (noun, plural, verb, obj) in enumerate(combinations()[:count]):
        good = sentence(noun, plural, verb, obj)
        agreement = good.replace(f" {verb[plural]} ", f" {verb[not plural]} ")
        order = good.replace(f" {verb[plural]} {obj}.", f" {obj} {verb[plural]}.")
        for phenomenon, bad in (("agreement", agreement), ("order", order)):
            rows.append({"good": good, "bad": bad, "phenomenon": phenomenon, "frame": str(i)})
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")


def train(directory: Path, *, seed: int = 0, learning_rate: float = 3e-3, steps: tuple[int, ...] = STEPS) -> None:
    """Train a tiny model and save it as `directory`/checkpoint-N after each of `steps`."""
    tokenizer = tiny.tokenizer("bytes-bos")
    model = tiny.model("llama", len(tokenizer), seed=seed).requires_grad_(True).train()
    texts = [sentence(*row) for row in combinations()[100:]]
    generator = random.Random(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    for step in range(1, max(steps) + 1):
        ids = encode(tokenizer, generator.sample(texts, 32))
        _loss(model, ids).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step in steps:
            model.save_pretrained(directory / f"checkpoint-{step}")
            tokenizer.save_pretrained(directory / f"checkpoint-{step}")


def copy_trained(tmp_path_factory, directory: Path, *, seed: int = 0, steps: tuple[int, ...] = STEPS) -> None:
    """Copy checkpoints of a series that is trained once for all tests."""
    trained = once(tmp_path_factory, f"series-{seed}", functools.partial(train, seed=seed))
    for step in steps:
        shutil.copytree(trained / f"checkpoint-{step}", directory / f"checkpoint-{step}")


def encode(tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> torch.Tensor:
    """Return (texts, length) token ids, padded on the right with -100."""
    rows = [torch.tensor(tokenizer(text)["input_ids"]) for text in texts]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-100)


def _loss(model, ids: torch.Tensor) -> torch.Tensor:
    known = ids.ne(-100)
    return model(input_ids=ids.clamp(min=0), attention_mask=known.long(), labels=ids).loss
