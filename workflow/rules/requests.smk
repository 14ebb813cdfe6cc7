"""Items -> requests. REQUIRED INPUTS: resources/items/. OUTPUTS: results/requests/{evaluation}.parquet."""


# the prompts of one evaluation, few-shot block and scored spans included; the same for every model
rule requests:
    input:
        lambda wildcards: f"resources/items/{CONFIG.evaluations[wildcards.evaluation].items}.parquet",
    output:
        "results/requests/{evaluation}.parquet",
    log:
        "logs/requests/{evaluation}.log",
    benchmark:
        "benchmarks/requests/{evaluation}.tsv"
    localrule: True
    conda:
        "../../envs/tables.yaml"
    resources:
        try_number=attempt_of,
        mem_mb=lambda wildcards, attempt: 2500 * attempt,
        runtime=30,
    params:
        spec=lambda wildcards: spec("requests", **specs.of_requests(CONFIG, CONFIG.evaluations[wildcards.evaluation])),
    message:
        "requests: write the prompts of {wildcards.evaluation}"
    shell:
        "python -m vernacular requests --spec - --items {input:q} --out {output:q} --log {log:q} --attempt {resources.try_number} <<< {params.spec:q}"
