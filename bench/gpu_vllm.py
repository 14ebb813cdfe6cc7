"""Time vLLM with random weights on the requests of a set of `gpu.py`; prints seconds.

python bench/gpu_vllm.py SET SHARE SHAPE [DIRECTORY_OF_TOKENIZER]
"""

import sys
import tempfile
import time
from pathlib import Path

from gpu_sets import SETS, SHAPES, make_tokenizer, write_requests
from transformers import LlamaConfig
from vernacular.core import artifacts
from vernacular.protocols.schema import REQUESTS
from vllm import LLM, SamplingParams


def run(name: str, share: float, shape: str, directory_of_tokenizer: str | None) -> float:
    """Return the seconds of vLLM for the requests of a set."""
    tokenizer = make_tokenizer(directory_of_tokenizer)
    with tempfile.TemporaryDirectory() as directory:
        LlamaConfig(**SHAPES[shape], architectures=["LlamaForCausalLM"]).save_pretrained(directory)
        engine = LLM(
            directory, load_format="dummy", skip_tokenizer_init=True, dtype="bfloat16", enable_prefix_caching=True
        )
        paths = write_requests(name, share, Path(directory))
        prompts = {}
        for path in paths.values():
            for row in artifacts.read(path, REQUESTS).to_pylist():
                text = row["prefix"] + row["text"]
                is_letter = SETS[name][1] == "letters"
                prompts[text[: row["span_start"]] if is_letter else text] = row
        is_sentence = SETS[name][1] == "acceptability"
        parameters = SamplingParams(
            temperature=0.0,
            max_tokens=next(iter(prompts.values()))["max_new_tokens"] or 1,
            logprobs=None if is_sentence else 20,
            prompt_logprobs=0 if is_sentence else None,
            detokenize=False,
        )
        started = time.perf_counter()
        token_ids = [{"prompt_token_ids": tokenizer(text)["input_ids"]} for text in prompts]
        engine.generate(token_ids, parameters, use_tqdm=False)
        return time.perf_counter() - started


if __name__ == "__main__":
    set_name, set_share, model_shape, *tokenizer_directory = sys.argv[1:]
    print(run(set_name, float(set_share), model_shape, next(iter(tokenizer_directory), None)))
