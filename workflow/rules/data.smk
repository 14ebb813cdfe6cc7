"""Datasets -> items. REQUIRED INPUTS: the task files. OUTPUTS: resources/items/{task}.{lang}.parquet, and with a limit
resources/items/{task}.{lang}.limit{n}.parquet.

An unavailable dataset (gated, deleted, no network) results in a file that states the reason, and the other evaluations
continue. Rule `finish` fails at the end, and the next run tries the dataset again.
"""


# read the items of all tasks in all languages, in the common schema; files that are up to date are kept, so that adding
# a language reads only that language
rule items:
    input:
        records=lambda wildcards: records(*items_files(settings.OWN)),
    output:
        update(items_files(settings.OWN)),
    log:
        "logs/items/items.log",
    benchmark:
        f"{BENCHMARKS}/items/items.tsv"
    localrule: True
    conda:
        "../../envs/tables.yaml"
    resources:
        try_number=attempt_label,
        mem_mb=lambda wildcards, attempt: 2500 * attempt,
        runtime=240,
    params:
        spec=lambda wildcards: spec("items", specs.items_spec(CONFIG)),
        files=lambda wildcards, input, output: files(input, out=above(output[0])),
    message:
        "items: read the datasets"
    shell:
        stage("items")
