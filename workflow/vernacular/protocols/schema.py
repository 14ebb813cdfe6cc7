"""Schema of the requests to the evaluated model, `results/requests/{evaluation}.parquet`."""

import pyarrow as pa

from vernacular.core.artifacts import Kind
from vernacular.core.metadata import RequestsMetadata
from vernacular.types import Request

# Approximate cost of a request: characters per token in the languages of the tasks, and the cost of a generated token
# in read tokens.
CHARACTERS_PER_TOKEN = 3.5
NEW_TOKEN = 20
REASONING_BUDGET = 8192  # tokens, as EuroEval; cards of DeepSeek-R1 and Qwen3 evaluate with 32,768

DECODING = pa.struct(
    [
        ("temperature", pa.float64()),  # 0 = greedy
        ("top_k", pa.int32()),
        ("top_p", pa.float64()),
        ("repetition_penalty", pa.float64()),
        ("seed", pa.int64()),
    ]
)

GEN_KWARGS = pa.struct(
    [
        *((name, pa.float64()) for name in ("temperature", "top_p", "min_p", "repetition_penalty")),
        ("top_k", pa.int32()),
        ("do_sample", pa.bool_()),
        ("max_gen_toks", pa.int32()),  # of the answer
        ("think_max_toks", pa.int32()),  # of reasoning
        ("seed", pa.int64()),
        ("sample", pa.int32()),  # number, from 1; null: the first one
    ]
)

TURN = pa.struct([("role", pa.string()), ("content", pa.string())])

REQUESTS = Kind(
    "requests",
    [
        # hash of all columns below except item_id and role; equal requests run once
        ("request_id", pa.string()),
        ("item_id", pa.string()),
        ("role", pa.string()),  # what the output is for: "choice:2", "good", "letters", "response"
        ("kind", pa.string()),  # "score" or "generate"
        ("prefix", pa.string()),  # the few-shot prefix shared by the evaluation's requests; "" without one
        ("text", pa.string()),  # the rest; the model reads prefix + text as one string
        ("span_start", pa.int32()),  # characters of prefix + text to score; null for generate
        ("span_end", pa.int32()),
        # "entropy", "rank", "word_end_logprobs", "pll:original", "pll:within_word_l2r", "rolling", "overlap:4",
        # "window:512", "score_bos", "truncate_left", "logprob_moments", "top_token", "causal_only"
        ("extras", pa.list_(pa.string())),
        # few-shot prefix and query as chat turns; null if chat is not applicable
        ("messages", pa.list_(TURN)),
        ("few_shot_examples", pa.list_(pa.string())),  # the few-shot prefix, split, so that examples can be dropped
        ("stop", pa.list_(pa.string())),  # generation ends before the first of these
        ("max_new_tokens", pa.int32()),
        ("longest_target", pa.string()),  # if max_new_tokens is null: generate the number of tokens of this text
        ("decoding", DECODING),  # of the protocol; null = greedy
        ("gen_kwargs", GEN_KWARGS),  # of the evaluation, which take precedence; null without any
    ],
    key=("item_id", "role"),
    required=("request_id", "kind", "prefix", "text"),
    metadata=RequestsMetadata,
)


def generated_tokens(max_new_tokens: int | None, longest_target: str | None) -> float:
    """Estimate the number of tokens generated for a request; 0 for a score request, which has neither argument."""
    return max_new_tokens if max_new_tokens is not None else len(longest_target or "") / CHARACTERS_PER_TOKEN


def request_cost(characters: float, new_tokens: float) -> float:
    """Estimate the cost of reading characters and generating tokens, in tokens read."""
    return characters / CHARACTERS_PER_TOKEN + NEW_TOKEN * new_tokens


def reasoning_tokens(metadata: RequestsMetadata, gen_kwargs: dict | str | None) -> int:
    """Return the largest number of tokens of reasoning of a model with these `gen_kwargs`, if it reasons."""
    budget = gen_kwargs.get("think_max_toks", REASONING_BUDGET) if isinstance(gen_kwargs, dict) else REASONING_BUDGET
    return metadata.reasoning_tokens + metadata.default_budgets * budget


def request_size(requests: list[Request]) -> dict[str, float]:
    """Return characters to read and tokens to generate; tokens of reasoning, and requests with default budgets."""
    new, reasoning, n_default = 0.0, 0, 0
    for row in requests:
        kwargs = row.get("gen_kwargs") or {}
        limit, budget = kwargs.get("max_gen_toks") or row["max_new_tokens"], kwargs.get("think_max_toks")
        new += generated_tokens(limit, row["longest_target"])
        reasoning += budget or 0
        n_default += row["kind"] == "generate" and budget is None
    read = sum(len(row["text"]) for row in requests) + sum(map(len, {row["prefix"] for row in requests}))
    return {"characters": read, "new_tokens": round(new), "reasoning_tokens": reasoning, "default_budgets": n_default}
