"""Items -> requests. REQUIRED INPUTS: resources/items/. OUTPUTS: results/requests/{evaluation}.parquet."""


# write the prompts of all evaluations, with few-shot examples and scored spans; the same for every model. Files that
# are up to date are kept
rule requests:
    input:
        data=items_files(settings.OWN),
    output:
        update(expand_evaluations(in_output("requests/{evaluation}.parquet"), settings.OWN)),
    log:
        "logs/requests/requests.log",
    benchmark:
        f"{BENCHMARKS}/requests/requests.tsv"
    localrule: True
    conda:
        "../../envs/tables.yaml"
    resources:
        try_number=attempt_label,
        mem_mb=lambda wildcards, attempt: 2500 * attempt,
        runtime=60,
    params:
        spec=lambda wildcards: spec("requests", specs.requests_spec(CONFIG)),
        files=lambda wildcards, input, output: files(input, "items_dir", out=above(output[0])),
    message:
        "requests: write the prompts of all evaluations"
    shell:
        stage("requests")
