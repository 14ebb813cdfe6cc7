"""Schema of items, `resources/items/{task}.{lang}.parquet`: one example of a task in one language per row."""

import pyarrow as pa

from vernacular.core.artifacts import Kind
from vernacular.core.metadata import ItemsMetadata

ITEMS = Kind(
    "items",
    [
        ("item_id", pa.string()),  # stable and unique: independent of row order, limits and other rows
        ("few_shot", pa.bool_()),  # true: few-shot example, never evaluated
        ("context", pa.string()),  # passage, story or sentence before the question; "" if there is none
        ("question", pa.string()),  # question or stem; "" if the context alone is continued
        ("choices", pa.list_(pa.string())),  # options, good and bad sentences, or word forms
        ("gold", pa.list_(pa.int32())),  # 0-based indices of all correct choices; empty: unknown
        ("target", pa.string()),  # expected text: best answer, last word, summary; null if in `choices`
        ("cluster_id", pa.string()),  # passage, pair or sentence shared by several items (clustered errors)
        ("category", pa.string()),  # phenomenon, subject, type; null if the dataset has none
        ("source_row", pa.int64()),  # 0-based row number in the dataset
        ("repeats", pa.string()),  # item_id of the first evaluated item with the same content; null if unique
        ("extra", pa.map_(pa.string(), pa.string())),  # further fields of a protocol or an exported file
    ],
    key=("item_id",),
    metadata=ItemsMetadata,
    required=("few_shot", "context", "question", "choices", "gold", "source_row"),
)
