from support.table_rows import comparison_row, metrics_row, metrics_table, overall_row, ranking_row  # noqa: F401
