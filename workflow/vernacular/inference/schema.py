"""scores and generations: what the evaluated model returned, raw.

`results/{model}/scores/{evaluation}.parquet` and `results/{model}/generations/{evaluation}.parquet`.

Metadata adds: model (name, source, revision, fingerprint, dtype, architecture), engine (versions, strategy asked and
used, fallback and why, self-check), tokenizer policy (bos, truncation), counters (forwards, tokens computed, tokens the
trie needs, model loads, seconds).
"""

import itertools
from collections.abc import Iterator

import pyarrow as pa

from vernacular.core.artifacts import Kind

SCORES = Kind(
    "scores",
    pa.schema(
        [
            ("request_id", pa.string()),
            ("item_id", pa.string()),
            ("role", pa.string()),
            ("tokens", pa.list_(pa.string())),  # the span's tokens as the tokenizer writes them
            (
                "offsets",
                pa.list_(pa.list_(pa.int32(), 2)),
            ),  # [start, end) in prefix + text, or in `rendered` if not null
            ("logprobs", pa.list_(pa.float32())),  # nats, per token of the span; null in it: nothing stood before
            ("greedy", pa.list_(pa.bool_())),  # was this token the most likely one?
            ("entropy", pa.list_(pa.float32())),  # nats, of the next-token distribution; null unless asked
            ("topk_entropy", pa.list_(pa.float32())),  # nats, of the 100 likeliest renormalised; null unless asked
            ("rank", pa.list_(pa.int32())),  # 1 = most likely; null unless asked
            ("word_end", pa.list_(pa.float32())),  # ln P(a word ends here), before each token and after the last
            ("n_prompt_tokens", pa.int32()),  # tokens before the span, special tokens included
            ("rendered", pa.string()),  # the text as sent, where a chat template changed it; null otherwise
            # null, "boundary", "truncated: …", "unknown token: …", "empty", "error: …"; several joined by "; "
            ("flag", pa.string()),
        ]
    ),
    key=("item_id", "role"),
    required=("request_id",),
    place=3,
)

GENERATIONS = Kind(
    "generations",
    pa.schema(
        [
            ("request_id", pa.string()),
            ("item_id", pa.string()),
            ("role", pa.string()),
            ("raw", pa.string()),  # everything generated, stop string included, special tokens left out
            ("answer", pa.string()),  # raw up to the stop string, outer blanks removed
            ("finish_reason", pa.string()),  # "stop", "eos", "length"
            ("n_tokens", pa.int32()),
            ("n_prompt_tokens", pa.int32()),
            ("rendered", pa.string()),
            ("flag", pa.string()),  # null, "truncated: k demonstrations left out", "error: …"
        ]
    ),
    key=("item_id", "role"),
    required=("request_id",),
    place=3,
)


def outputs_of(requests: dict) -> Kind:
    """The schema of the outputs to requests of which this is the metadata."""
    return GENERATIONS if requests["request_kind"] == "generate" else SCORES


_ROWS_AT_A_TIME = 500


def iter_rows(table: pa.Table) -> Iterator[dict]:
    """Yield the rows of `table` as dicts; few exist at a time."""
    for start in range(0, table.num_rows, _ROWS_AT_A_TIME):
        yield from table.slice(start, _ROWS_AT_A_TIME).to_pylist()


def rows_to_table(rows: Iterator[dict], schema: pa.Schema) -> pa.Table:
    """Return `rows` as a table of that schema; few exist as Python objects at a time."""
    parts = [schema.empty_table()]
    while some := list(itertools.islice(rows, _ROWS_AT_A_TIME)):
        parts.append(pa.Table.from_pylist(some, schema=schema))
    return pa.concat_tables(parts)
