"""Comparisons and values of all models -> tables, spreadsheets and the report. REQUIRED INPUTS: results/{model}/metrics.parquet,
results/{model}/tasks/, results/compared/. OUTPUTS: results/summary/, results/report/.
"""


# write the tables for publication: long and wide CSV, Parquet, and the Excel workbooks; and what the tokenizers of all
# models make of each language
rule summary:
    input:
        metrics=expand(in_output("{model}/metrics.parquet"), model=CONFIG.models),
        tokens=expand(in_output("{model}/tokens.parquet"), model=CONFIG.models),
        compared=COMPARED,
        ranked=expand(in_output("summary/{table}.parquet"), table=["rankings", "overall", "prompts", "deciding_models"]),
        curves=curve_files(),
        without_faults=WITHOUT_FAULTS,
        estimates=ESTIMATES[:1],
        unpaired=UNPAIRED,
        languages=BETWEEN_LANGUAGES,
    output:
        in_output("summary/results.parquet"),
        in_output("summary/comparisons.parquet"),
        table("comparisons", "CSV"),
        table("results", "CSV"),
        table("wide", "CSV"),
        table("similarity_summary", "Excel"),
        table("surprisal_summary", "Excel"),
        table("leaderboard", "Excel"),
        in_output("summary/tokenizers.parquet"),
        table("tokenizers", "CSV"),
        table("tokenizers", "Excel"),
        *[in_output("summary/unpaired.parquet"), table("unpaired", "CSV")] * bool(UNPAIRED),
        *map(as_output, expand(in_output("summary/{tool}"), tool=settings.SUMMARY_EXPORTS)),
        notes=table("notes", "CSV"),
    log:
        "logs/summary/summary.log",
    benchmark:
        f"{BENCHMARKS}/summary/summary.tsv"
    localrule: True
    conda:
        "../../envs/tables.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 3000 * attempt,
        runtime=30,
    params:
        spec=spec("summary", specs.summary_spec(CONFIG)),
        files=lambda wildcards, input, output: files(
            input, "metrics", "compared", config=CONFIG_FILES, out=above(output[0])
        ),
    message:
        "summary: write the tables and spreadsheets of all models"
    shell:
        stage("summary", has_attempts=False)


# write the HTML report: leaderboard, tasks, items, comparisons, provenance; opens from disk in any browser
rule report:
    input:
        values=in_output("summary/results.parquet"),
        compared=expand(
            in_output("summary/{table}.parquet"),
            table=["comparisons", "rankings", "overall", "prompts", "deciding_models"],
        ),
        curves=curve_files(),
        unpaired=[in_output("summary/unpaired.parquet")] * bool(UNPAIRED),
        tokenizers=in_output("summary/tokenizers.parquet"),
        tasks=expand(expand_evaluations(in_output("{{model}}/tasks/{evaluation}.parquet")), model=CONFIG.models),
        # read in the directories of these and of `tasks`
        requests=expand_evaluations(in_output("requests/{evaluation}.parquet")),
        answers=expand(OUTPUTS, model=CONFIG.models),
        changes=written(in_output("comparisons")),
        audit=[] if CONFIG.audit is None else in_output("summary/audit.parquet"),
        estimates=ESTIMATES[:1],
        languages=BETWEEN_LANGUAGES,
        models=expand("resources/models/{model}.json", model=CONFIG.models),
    output:
        directory(page("../report/page.rst")) if IN_STORAGE else written(in_output("report")),
    log:
        "logs/report/report.log",
    benchmark:
        f"{BENCHMARKS}/report/report.tsv"
    localrule: True
    conda:
        "../../envs/tables.yaml"
    threads: 2
    resources:
        mem_mb=lambda wildcards, attempt: 3000 * attempt,
        runtime=60,
    params:
        spec=spec("report", specs.report_spec(CONFIG)),
        files=lambda wildcards, input, output: files(
            input,
            "models",
            results=above(input.values, 2),
            changes=written_directory(input.changes),
            benchmarks=CONFIG.benchmarks,
            out=written_directory(output[0]),
        ),
    message:
        "report: write the HTML report"
    shell:
        stage("report", has_attempts=False)


# fail after all other results are written if a dataset is unavailable or an evaluation failed, and print the reasons
rule finish:
    input:
        notes=in_output("summary/notes.csv"),
    output:
        in_output("summary/complete.txt"),
    log:
        "logs/finish/finish.log",
    retries: 0
    localrule: True
    conda:
        "../../envs/tables.yaml"
    resources:
        mem_mb=500,
        runtime=5,
    params:
        files=lambda wildcards, input, output: files(input, "notes", out=output[0]),
    message:
        "finish: check that no results are missing from the summary"
    shell:
        stage("finish", has_spec=False, has_attempts=False)
