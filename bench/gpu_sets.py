"""The model's shapes, the tokenizer and the requests of `gpu.py` and `gpu_vllm.py`."""

import random
from pathlib import Path

import pyarrow as pa
from score import WORDS, words
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from vernacular.core import artifacts
from vernacular.protocols.build import build
from vernacular.protocols.schema import REQUESTS

# set: (item type, protocol, shots, evaluations, items, words per question, words per option, words per passage)
SETS = {
    "mmlu5": ("question", "letters", 5, 57, 14_042, 55, 9, 0),
    "belebele": ("question", "letters", 0, 1, 900, 14, 5, 100),
    "blimp": ("sentence", "acceptability", 0, 67, 134_000, 8, 0, 0),
    "generate5": ("question", "generation", 5, 1, 2_000, 55, 9, 0),
}
SHAPES = {
    "8b": {
        "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 128_256, "max_position_embeddings": 8192,
    },
    "tiny": {
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 50_304, "max_position_embeddings": 8192,
    },
}  # fmt: skip


def make_tokenizer(directory: str | None) -> PreTrainedTokenizerFast:
    """Return the tokenizer in `directory`, or one trained on the benchmark's words, one token each."""
    if directory:
        return AutoTokenizer.from_pretrained(directory)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    texts = [f"{word} {word} {word.capitalize()}" for word in WORDS] + ["Question: Answer: A. B. C. D.\n\n?"] * 2
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="</s>")


def write_requests(name: str, share: float, directory: Path) -> dict[str, Path]:
    """Write the requests of a set's evaluations; return their paths by evaluation."""
    item_type, protocol, shots, n_evaluations, n_items, n_question, n_option, n_passage = SETS[name]
    n_evaluations = max(1, round(n_evaluations * min(1, 10 * share)))
    size = max(2, round(n_items * share / n_evaluations))
    empty = {"question": "", "choices": [], "target": None, "cluster_id": None, "category": None, "extra": []}
    settings = {"language": "en", "protocol": protocol, "shots": shots, "seed": 0, "style": "default", "options": {}}
    paths = {}
    for number in range(n_evaluations):
        rng = random.Random(f"{name} {number}")
        rows, context = [], ""
        for index in range(size + shots):
            row = {**empty, "item_id": str(index), "source_row": index, "few_shot": index < shots}
            if item_type == "sentence":
                row |= {"context": words(rng, n_question).capitalize() + ".", "gold": [index % 2]}
            else:
                context = words(rng, n_passage) if n_passage and index % 2 == 0 else context
                row |= {"context": context, "question": words(rng, n_question) + "?", "gold": [rng.randrange(4)]}
                row |= {"choices": [words(rng, n_option) for _ in range(4)]}
            rows.append(row)
        evaluation = f"{name}-{number}"
        requests, metadata = build(
            rows, {"task": evaluation, "item_type": item_type, "protocols": [protocol]}, **settings
        )
        table = pa.Table.from_pylist(requests, schema=REQUESTS.schema)
        metadata = {**metadata, "fingerprint": evaluation}
        paths[evaluation] = artifacts.write(directory / f"{evaluation}.parquet", REQUESTS, table, metadata)
    return paths
