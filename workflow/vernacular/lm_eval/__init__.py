"""Tasks of lm-evaluation-harness (lm-eval), run by its own code.

`catalog`, `expansion` and `own_files` are part of the workflow and do not import `lm_eval`. All other modules run in
the environment of lm-eval (`make lm-eval`): its task manager builds documents, contexts and instances, which become
requests; its filters, `process_results` and aggregations turn the outputs into metrics. Both sides exchange files.
"""
