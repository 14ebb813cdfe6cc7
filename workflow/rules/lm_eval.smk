"""Tasks of lm-evaluation-harness, by its own code in an environment of its own (`make lm-eval`). REQUIRED INPUTS: the
environment. OUTPUTS: resources/items/{items}.parquet, results/requests/{evaluation}.parquet,
results/{model}/lm_eval/{evaluation}.parquet.

Both rules run the same package as all others, with the interpreter of that environment, and exchange files with them.
"""


# write the documents and prompts of all evaluations with a task of lm-eval; files that are up to date are kept
rule lm_eval_requests:
    output:
        update(items_files(settings.TOOL_PROTOCOLS)),
        update(expand_evaluations("results/requests/{evaluation}.parquet", settings.TOOL_PROTOCOLS)),
    log:
        "logs/lm_eval_requests/lm_eval_requests.log",
    benchmark:
        "benchmarks/lm_eval_requests/lm_eval_requests.tsv"
    localrule: True
    resources:
        try_number=attempt_label,
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
        runtime=240,
    params:
        spec=lambda wildcards: spec("lm_eval_requests", libraries={}, **specs.lm_eval_spec(CONFIG)),
        python=CONFIG.lm_eval_python,
    message:
        "lm_eval_requests: write the documents and prompts of lm-eval's tasks"
    shell:
        "{params.python:q} -m vernacular lm-eval-requests --spec - --items-dir resources/items --out results/requests --log {log:q} --attempt {resources.try_number} <<< {params.spec:q}"


# let lm-eval compute the metrics of the outputs of one model
rule lm_eval_metrics:
    input:
        data=items_files(settings.TOOL_PROTOCOLS),
        requests=expand_evaluations("results/requests/{evaluation}.parquet", settings.TOOL_PROTOCOLS),
        scores=expand_evaluations("results/{{model}}/scores/{evaluation}.parquet", settings.TOOL_SCORED),
        generations=expand_evaluations("results/{{model}}/generations/{evaluation}.parquet", settings.TOOL_GENERATED),
    output:
        update(expand_evaluations("results/{{model}}/lm_eval/{evaluation}.parquet", settings.TOOL_PROTOCOLS)),
    log:
        "logs/lm_eval_metrics/{model}.log",
    benchmark:
        "benchmarks/lm_eval_metrics/{model}.tsv"
    localrule: True
    resources:
        try_number=attempt_label,
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
        runtime=240,
    params:
        spec=lambda wildcards: spec(
            "lm_eval_metrics", libraries={}, model=wildcards.model, **specs.lm_eval_spec(CONFIG)
        ),
        python=CONFIG.lm_eval_python,
        out_dir=output_parent(1),
    message:
        "lm_eval_metrics: let lm-eval compute the metrics of {wildcards.model}"
    shell:
        "{params.python:q} -m vernacular lm-eval-metrics --spec - --items-dir resources/items"
        " --requests-dir results/requests --results results/{wildcards.model:q} --out {params.out_dir:q}"
        " --log {log:q} --attempt {resources.try_number} <<< {params.spec:q}"
