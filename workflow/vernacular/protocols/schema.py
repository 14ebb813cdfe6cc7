"""requests: what the evaluated model is asked; `results/requests/{evaluation}.parquet`.

Metadata adds: evaluation, task, language, protocol, shots, seed, style, demonstrations (item ids), items_fingerprint.
"""

import pyarrow as pa

from vernacular.core.artifacts import Kind
from vernacular.types import Request

# What a request costs, roughly: characters to a token in the languages of the tasks, and how many read tokens a
# generated one costs.
CHARACTERS_PER_TOKEN = 3.5
NEW_TOKEN = 20

DECODING = pa.struct(
    [
        ("temperature", pa.float64()),  # 0 = greedy
        ("top_k", pa.int32()),
        ("top_p", pa.float64()),
        ("repetition_penalty", pa.float64()),
        ("seed", pa.int64()),
    ]
)

TURN = pa.struct([("role", pa.string()), ("content", pa.string())])

REQUESTS = Kind(
    "requests",
    pa.schema(
        [
            (
                "request_id",
                pa.string(),
            ),  # hash of all below but item_id and role: a question is asked once
            ("item_id", pa.string()),
            ("role", pa.string()),  # what the answer is for: "choice:2", "good", "letters", "answer"
            ("kind", pa.string()),  # "score" or "generate"
            ("prefix", pa.string()),  # the few-shot block shared by the evaluation's requests; "" where there is none
            ("text", pa.string()),  # the rest; the model reads prefix + text as one string
            ("span_start", pa.int32()),  # characters of prefix + text to score; null for generate
            ("span_end", pa.int32()),
            ("extras", pa.list_(pa.string())),  # "entropy", "rank", "word_end", "pll:original", "pll:within_word_l2r"
            (
                "turns",
                pa.list_(TURN),
            ),  # few-shot block and question as chat turns; null where chat makes no sense
            ("demonstrations", pa.list_(pa.string())),  # the few-shot block cut up, so that a long item can shed some
            ("stop", pa.list_(pa.string())),  # generation ends before the first of these
            ("max_new_tokens", pa.int32()),
            ("longest_answer", pa.string()),  # generate as many tokens as this text needs, where max_new_tokens is null
            ("decoding", DECODING),  # null = greedy
        ]
    ),
    key=("item_id", "role"),
    required=("request_id", "kind", "prefix", "text"),
)


def generated_tokens(max_new_tokens: int | None, longest_answer: str | None) -> float:
    """Estimate how many tokens are generated for a request; 0 for one that is scored, which has neither."""
    return max_new_tokens if max_new_tokens is not None else len(longest_answer or "") / CHARACTERS_PER_TOKEN


def request_cost(characters: float, new_tokens: float) -> float:
    """Estimate what it costs to read so many characters and generate so many tokens, in tokens read."""
    return characters / CHARACTERS_PER_TOKEN + NEW_TOKEN * new_tokens


def request_size(requests: list[Request]) -> dict[str, float]:
    """Return the characters to read and tokens to generate, from which `config.resources` estimates a job's time."""
    new = sum(generated_tokens(row["max_new_tokens"], row["longest_answer"]) for row in requests)
    read = sum(len(row["text"]) for row in requests) + sum(map(len, {row["prefix"] for row in requests}))
    return {"characters": read, "new_tokens": round(new)}
