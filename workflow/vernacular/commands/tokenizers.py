"""Command `tokenizers`: token counts of all models -> a table and a spreadsheet on tokenizers and languages."""

import pyarrow as pa

from vernacular.core import artifacts
from vernacular.core.errors import format_count
from vernacular.core.tables import rows_of, write_csv
from vernacular.metrics.schema import TOKENS
from vernacular.summary.tokenizer_sheet import write_tokenizers
from vernacular.summary.tokenizers import TOKENIZERS, ModelTokens, tokenizer_rows


def tokenizers(args) -> str:
    """Write tokens per byte, character and word, split words and premiums of each model and language."""
    models = [_read(path) for path in args.tokens]
    rows = tokenizer_rows(models, args.spec["parallel"])
    fingerprint = artifacts.input_fingerprint(args.spec, *args.tokens)
    table = pa.Table.from_pylist(rows, schema=TOKENIZERS.schema)
    artifacts.write(args.out / "tokenizers.parquet", TOKENIZERS, table, {"fingerprint": fingerprint})
    write_csv(args.out / "tokenizers.csv", table.to_pandas())
    write_tokenizers(args.out / "tokenizers.xlsx", rows)
    return f"tokenizers: {format_count(len(rows), 'row')} on {format_count(len(models), 'model')} in {args.out}"


def _read(path) -> ModelTokens:
    metadata = artifacts.metadata(path)
    rows: dict[str, list[dict]] = {}
    for row in rows_of(artifacts.read(path, TOKENS)):
        rows.setdefault(row["evaluation"], []).append(row)
    return ModelTokens(metadata["model"], metadata["tokenizer"], rows, metadata["evaluations"])
