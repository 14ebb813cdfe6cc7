"""What the summary stage leaves: every model's values in one long table."""

from vernacular.core.artifacts import Kind
from vernacular.metrics.schema import METRICS

# results/summary/results.parquet: the rows of all models' metrics.parquet
RESULTS = Kind("results", METRICS.schema, key=(), required=METRICS.required)  # `tables.collect` checks identity
