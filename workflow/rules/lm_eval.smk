"""Tasks of lm-evaluation-harness, by its own code in an environment of its own (`make lm-eval`). REQUIRED INPUTS: the
environment. OUTPUTS: resources/items/{items}.parquet, results/requests/{evaluation}.parquet,
results/{model}/lm_eval/{evaluation}.parquet.

Both rules run the same package as all others, with the interpreter of that environment, and exchange files with them;
of a conda environment, they use nothing.
"""


# write the documents and prompts of all evaluations with a task of lm-eval; files that are up to date are kept
rule lm_eval_requests:
    input:
        records=lambda wildcards: records(*items_files(settings.TOOL_PROTOCOLS)),
    output:
        data=update(items_files(settings.TOOL_PROTOCOLS)),
        requests=update(expand_evaluations(in_output("requests/{evaluation}.parquet"), settings.TOOL_PROTOCOLS)),
    log:
        "logs/lm_eval_requests/lm_eval_requests.log",
    benchmark:
        f"{BENCHMARKS}/lm_eval_requests/lm_eval_requests.tsv"
    localrule: True
    conda:
        "../../envs/tables.yaml"
    resources:
        try_number=attempt_label,
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
        runtime=240,
    params:
        spec=lambda wildcards: spec("lm_eval_requests", specs.lm_eval_spec(CONFIG), libraries={}),
        python=CONFIG.lm_eval_python,
        files=lambda wildcards, input, output: files(
            input, items_dir=above(output.data[0]), out=above(output.requests[0])
        ),
    message:
        "lm_eval_requests: write the documents and prompts of lm-eval's tasks"
    shell:
        stage("lm-eval-requests", python="{params.python:q}")


# let lm-eval compute the metrics of the outputs of one model
rule lm_eval_metrics:
    input:
        data=items_files(settings.TOOL_PROTOCOLS),
        requests=expand_evaluations(in_output("requests/{evaluation}.parquet"), settings.TOOL_PROTOCOLS),
        scores=expand_evaluations(in_output("{{model}}/scores/{evaluation}.parquet"), settings.TOOL_SCORED),
        generations=expand_evaluations(in_output("{{model}}/generations/{evaluation}.parquet"), settings.TOOL_GENERATED),
    output:
        update(expand_evaluations(in_output("{{model}}/lm_eval/{evaluation}.parquet"), settings.TOOL_PROTOCOLS)),
    log:
        "logs/lm_eval_metrics/{model}.log",
    benchmark:
        f"{BENCHMARKS}/lm_eval_metrics/{{model}}.tsv"
    localrule: True
    conda:
        "../../envs/tables.yaml"
    resources:
        try_number=attempt_label,
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
        runtime=240,
    params:
        spec=lambda wildcards: spec("lm_eval_metrics", specs.lm_eval_spec(CONFIG, wildcards.model), libraries={}),
        python=CONFIG.lm_eval_python,
        files=lambda wildcards, input, output: files(
            input, "items_dir", "requests_dir", results=above(output[0], 2), out=above(output[0])
        ),
    message:
        "lm_eval_metrics: let lm-eval compute the metrics of {wildcards.model}"
    shell:
        stage("lm-eval-metrics", python="{params.python:q}")
