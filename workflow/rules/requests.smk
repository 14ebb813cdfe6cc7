"""Items -> requests. REQUIRED INPUTS: resources/items/. OUTPUTS: results/requests/{evaluation}.parquet."""


# write the prompts of all evaluations, with few-shot examples and scored spans; the same for every model. Files that
# are up to date are kept
rule requests:
    input:
        items_of(),
    output:
        update(of_each("results/requests/{evaluation}.parquet")),
    log:
        "logs/requests/requests.log",
    benchmark:
        "benchmarks/requests/requests.tsv"
    localrule: True
    conda:
        "../../envs/tables.yaml"
    resources:
        try_number=attempt_of,
        mem_mb=lambda wildcards, attempt: 2500 * attempt,
        runtime=60,
    params:
        spec=lambda wildcards: spec("requests", **specs.of_requests(CONFIG)),
        folder=above_output(1),
    message:
        "requests: write the prompts of all evaluations"
    shell:
        "python -m vernacular requests --spec - --items-dir resources/items --out {params.folder:q} --log {log:q} --attempt {resources.try_number} <<< {params.spec:q}"
