"""requests: what the evaluated model is asked; `results/requests/{evaluation}.parquet`.

Metadata adds: evaluation, task, language, protocol, shots, seed, style, demonstrations (item ids), items_fingerprint.
"""

import pyarrow as pa

from vernacular.artifacts import Kind

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
