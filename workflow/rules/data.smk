"""Data sets -> items. REQUIRED INPUTS: the task files. OUTPUTS: resources/items/{task}.{lang}.parquet, and with a limit
resources/items/{task}.{lang}.limit{n}.parquet.

A set that cannot be had (gated, gone, no network) leaves a file that says so, and the other evaluations go on; rule
`complete` fails at the end, and the next run tries again.
"""


# the items of one task in one language, in the one schema every stage reads
rule items:
    output:
        "resources/items/{itemset}.parquet",
    log:
        "logs/items/{itemset}.log",
    benchmark:
        "benchmarks/items/{itemset}.tsv"
    localrule: True
    conda:
        "../../envs/tables.yaml"
    resources:
        try_number=attempt_of,
        mem_mb=lambda wildcards, attempt: 2500 * attempt,
        runtime=60,
    params:
        spec=lambda wildcards: spec("items", **specs.of_items(CONFIG, evaluation_of(wildcards))),
    message:
        "items: read and normalise {wildcards.itemset}"
    shell:
        "python -m vernacular items --spec - --out {output:q} --log {log:q} --attempt {resources.try_number} <<< {params.spec:q}"
