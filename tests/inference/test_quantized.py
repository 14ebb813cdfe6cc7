"""8-bit weights of bitsandbytes, whose layers round by all tokens of a forward pass: each text is computed alone.

bitsandbytes is installed beside the environment (`make tools`), so that these tests run in a process of their own.
"""

import os
import subprocess

import pytest
import torch
from support import reasoning, tiny
from support.engines import generate, score
from support.optional import TOOLS, needs_package, needs_tools, package_problem
from support.workspace import ROOT
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from vernacular.inference.model.load import load
from vernacular.inference.model.tokenization import decode_continuation
from vernacular.inference.schema import MemoryJournal
from vernacular.inference.scoring.strategy import BATCH_ROUNDING

IS_INSTALLED = package_problem("bitsandbytes") is None
quantized = needs_package("bitsandbytes")
TEXTS = [
    ("Question: who sleeps?\nAnswer:", f" {answer}", 29, 29 + len(answer)) for answer in ("the cat", "A", "nobody")
]
TEXTS += [(line, 0, len(line)) for line in tiny.LINES[:5]]


def load_8bit(arch, directory, **settings):
    return load(tiny.save(arch, directory) | {"quantization": {"load_in_8bit": True, **settings}})


def logprobs(loaded, texts, **options):
    """Return (log-probabilities by text, metadata)."""
    table, metadata = score(loaded, tiny.score_requests(texts), **options)
    return dict(zip(["".join(text[:-2]) for text in texts], table["logprobs"].to_pylist(), strict=True)), metadata


@needs_tools
@pytest.mark.skipif(IS_INSTALLED, reason="bitsandbytes is installed in this environment")
def test_all_others_of_this_file_beside_bitsandbytes():
    command = [TOOLS / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "workflow")}
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, result.stdout
    assert result.stdout.startswith("s......")  # all but this one


@quantized
@pytest.mark.parametrize("arch", ["llama", "bert"])
@pytest.mark.parametrize("strategy", ["auto", "prefix"])
def test_scores_do_not_depend_on_other_texts(tmp_path, arch, strategy):
    loaded = load_8bit(arch, tmp_path)
    values, metadata = logprobs(loaded, TEXTS, strategy=strategy)
    assert logprobs(loaded, TEXTS[::-1], strategy=strategy)[0] == values
    for text in TEXTS:
        assert logprobs(loaded, [text])[0].items() <= values.items()
    assert metadata["engine"]["batching"] == "single"
    if arch == "llama":
        assert metadata["engine"]["strategy"] == "plain"
        assert f"prefix: {BATCH_ROUNDING}" in metadata["engine"]["fallback"]


@quantized
def test_scores_and_texts_are_those_of_transformers(tmp_path):
    loaded = load_8bit("llama", tmp_path)
    config = BitsAndBytesConfig(load_in_8bit=True)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, quantization_config=config).eval()
    prompts = [line[: 12 + 3 * number] for number, line in enumerate(tiny.LINES[:4])]
    rows = [
        reasoning.request(f"r{number}", prompt, messages=None, max_new_tokens=8, stop=["\n"])
        for number, prompt in enumerate(prompts)
    ]
    table, _ = generate(loaded, reasoning.table(*rows), journal=MemoryJournal())
    values = logprobs(loaded, [(prompt, 0, len(prompt)) for prompt in prompts])[0]
    for prompt, output in zip(prompts, table["raw_output"].to_pylist(), strict=True):
        ids = loaded.tokenizer(prompt, return_tensors="pt").input_ids
        with torch.inference_mode():
            logits = model(ids[:, :-1]).logits.log_softmax(-1)
            new_ids = model.generate(ids, max_new_tokens=8, do_sample=False, pad_token_id=0)[0, ids.shape[1] :]
        assert values[prompt] == pytest.approx(logits.gather(-1, ids[:, 1:, None])[0, :, 0].tolist(), abs=1e-4)
        text = decode_continuation(loaded.tokenizer, ids[0].tolist(), new_ids.tolist())
        assert text.split("\n")[0] == output


@quantized
def test_without_outliers_texts_share_forward_passes(tmp_path):
    _, metadata = logprobs(load_8bit("llama", tmp_path, llm_int8_threshold=0.0), TEXTS)
    assert metadata["engine"]["batching"] == "padded"
