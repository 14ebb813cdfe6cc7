from support.table_rows import comparison_row, metrics_row, metrics_table, overall_row, standing_row  # noqa: F401
