"""Metrics of all models -> tables and spreadsheets. REQUIRED INPUTS: results/{model}/metrics.parquet.
OUTPUTS: results/summary/.
"""


# the tables people publish and send: long and wide CSV, Parquet, and the Excel workbooks
rule summary:
    input:
        expand("results/{model}/metrics.parquet", model=CONFIG.models),
    output:
        multiext("results/summary/results", ".parquet", ".csv"),
        "results/summary/wide.csv",
        "results/summary/similarity_summary.xlsx",
        "results/summary/surprisal_summary.xlsx",
        "results/summary/leaderboard.xlsx",
        directory("results/summary/harness"),
        notes="results/summary/notes.csv",
    log:
        "logs/summary/summary.log",
    benchmark:
        "benchmarks/summary/summary.tsv"
    localrule: True
    conda:
        "../../envs/tables.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 3000 * attempt,
        runtime=30,
    params:
        spec=spec("summary", **specs.of_summary(CONFIG)),
    message:
        "summary: gather the values of all models into tables and spreadsheets"
    shell:
        "python -m vernacular summary --spec {params.spec:q} --metrics {input:q} --out results/summary --log {log:q}"


# fails, after all the rest is made, if a data set could not be had or an evaluation could not be run, and says why
rule complete:
    input:
        notes="results/summary/notes.csv",
    output:
        "results/summary/complete.txt",
    log:
        "logs/complete/complete.log",
    localrule: True
    conda:
        "../../envs/tables.yaml"
    resources:
        mem_mb=500,
        runtime=5,
    message:
        "complete: check that nothing is missing from the summary"
    shell:
        "python -m vernacular complete --notes {input.notes:q} --out {output:q} --log {log:q}"
