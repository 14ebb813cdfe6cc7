"""items: one example of a task in one language, in the one normalised schema.

`resources/items/{task}.{lang}.parquet`. Metadata adds: task, language, source (repository, config, split, revision,
sha256, licence), rows (read, kept, and `dropped` as a count per reason), expected_rows, and `unavailable`: the sentence
to show where the set could not be had (the file then has no rows).
"""

import pyarrow as pa

from vernacular.core.artifacts import Kind

ITEMS = Kind(
    "items",
    pa.schema(
        [
            ("item_id", pa.string()),  # stable and unique: survives reordering, limits and other rows
            ("demonstration", pa.bool_()),  # true: drawn from for few-shot prompts, never evaluated
            ("context", pa.string()),  # passage, story or sentence before the question; "" where there is none
            ("question", pa.string()),  # question, stem, or "" where the context alone is continued
            ("choices", pa.list_(pa.string())),  # options; good and bad sentence; word forms
            ("gold", pa.list_(pa.int32())),  # indices of all right choices; empty = unknown
            ("target", pa.string()),  # the text sought: best answer, last word, summary; null where choices say it
            ("cluster_id", pa.string()),  # passage, pair or sentence shared by several items (clustered errors)
            ("category", pa.string()),  # phenomenon, subject, type; null where the set has none
            ("source_row", pa.int64()),  # row number upstream, from 0
            ("extra", pa.map_(pa.string(), pa.string())),  # what a protocol or a source tool's file needs beside
        ]
    ),
    key=("item_id",),
    required=("demonstration", "context", "question", "choices", "gold", "source_row"),
)
