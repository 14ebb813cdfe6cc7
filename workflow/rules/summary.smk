"""Results of all models -> comparisons, tables, spreadsheets and the report. REQUIRED INPUTS:
results/{model}/metrics.parquet, results/{model}/tasks/. OUTPUTS: results/summary/, results/comparisons/, results/report/.
"""

# what values and comparisons are without the faults that speakers have confirmed; only with `verdicts:`
WITHOUT_FAULTS = expand(
    in_output("summary/{table}.parquet"),
    table=["without_faults", "comparisons_without_faults"] if CONFIG.verdicts else [],
)

# values by labels of speakers and borrowed values; only with `labels:` or `borrow_from:`
HAS_ESTIMATES = CONFIG.labels or CONFIG.borrow_from
ESTIMATES = [in_output("summary/labels.parquet"), table("labels", "CSV")] if HAS_ESTIMATES else []


# compare models: differences on the same items with intervals and tests, and the items that improved or regressed
rule compare:
    input:
        data=items_files(),
        metrics=expand(in_output("{model}/metrics.parquet"), model=CONFIG.models),
        tasks=expand(expand_evaluations(in_output("{{model}}/tasks/{evaluation}.parquet")), model=CONFIG.models),
    output:
        multiext(in_output("summary/rankings"), ".parquet", ".csv"),
        multiext(in_output("summary/prompts"), ".parquet", ".csv"),
        in_output("summary/comparisons.parquet"),
        in_output("summary/overall.parquet"),
        WITHOUT_FAULTS,
        ESTIMATES,
        table("comparisons", "CSV"),
        table("overall", "CSV"),
        changes=as_output(in_output("comparisons")),
    log:
        "logs/compare/compare.log",
    benchmark:
        f"{BENCHMARKS}/compare/compare.tsv"
    localrule: True
    conda:
        "../../envs/tables.yaml"
    threads: 2
    resources:
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
        runtime=60,
    params:
        spec=spec("compare", specs.comparisons_spec(CONFIG)),
        files=lambda wildcards, input, output: files(
            input,
            "items_dir",
            results=above(input.metrics[0], 2),
            out=above(output[0]),
            changes=written_directory(output.changes),
        ),
    message:
        "compare: compare pairs of models on the same items, and rank all models"
    shell:
        stage("compare", has_attempts=False)


# training curves of the series in the config, and which tasks can be trusted at this size; only with series
rule curves:
    input:
        metrics=expand(in_output("{model}/metrics.parquet"), model=CONFIG.checkpoints),
        tasks=expand(expand_evaluations(in_output("{{model}}/tasks/{evaluation}.parquet")), model=CONFIG.checkpoints),
    output:
        expand(in_output("summary/{table}.parquet"), table=CURVE_TABLES),
        *[table(name, "CSV") for name in CURVE_TABLES],
    log:
        "logs/curves/curves.log",
    benchmark:
        f"{BENCHMARKS}/curves/curves.tsv"
    localrule: True
    conda:
        "../../envs/tables.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
        runtime=60,
    params:
        spec=spec("curves", specs.curves_spec(CONFIG)),
        files=lambda wildcards, input, output: files(input, results=above(output[0], 2), out=above(output[0])),
    message:
        "curves: compute training curves and which tasks can be trusted"
    shell:
        stage("curves", has_attempts=False)


# list the items that a speaker should read, from what all models answered; only with `audit:` in the config
if CONFIG.audit is not None:

    rule reading_lists:
        input:
            data=items_files(),
            tasks=expand(expand_evaluations(in_output("{{model}}/tasks/{evaluation}.parquet")), model=CONFIG.models),
        output:
            in_output("summary/audit.parquet"),
            table("audit", "CSV"),
            table("audit", "Excel"),
            table("audit_lists", "CSV"),
        log:
            "logs/reading_lists/reading_lists.log",
        benchmark:
            f"{BENCHMARKS}/reading_lists/reading_lists.tsv"
        localrule: True
        conda:
            "../../envs/tables.yaml"
        resources:
            mem_mb=lambda wildcards, attempt: 3000 * attempt,
            runtime=30,
        params:
            spec=spec("reading_lists", specs.audit_spec(CONFIG)),
            files=lambda wildcards, input, output: files(
                input, "items_dir", results=above(output[0], 2), out=above(output[0])
            ),
        message:
            "reading-lists: list the items that a speaker should read first"
        shell:
            stage("reading-lists", has_attempts=False)


# write the tables for publication: long and wide CSV, Parquet, and the Excel workbooks; and what the tokenizers of all
# models make of each language
rule summary:
    input:
        metrics=expand(in_output("{model}/metrics.parquet"), model=CONFIG.models),
        tokens=expand(in_output("{model}/tokens.parquet"), model=CONFIG.models),
        compared=expand(in_output("summary/{table}.parquet"), table=["comparisons", "rankings", "overall", "prompts"]),
        curves=curve_files(),
        without_faults=WITHOUT_FAULTS,
        estimates=ESTIMATES[:1],
    output:
        in_output("summary/results.parquet"),
        table("results", "CSV"),
        table("wide", "CSV"),
        table("similarity_summary", "Excel"),
        table("surprisal_summary", "Excel"),
        table("leaderboard", "Excel"),
        in_output("summary/tokenizers.parquet"),
        table("tokenizers", "CSV"),
        table("tokenizers", "Excel"),
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
        files=lambda wildcards, input, output: files(input, "metrics", config=CONFIG_FILES, out=above(output[0])),
    message:
        "summary: write the tables and spreadsheets of all models"
    shell:
        stage("summary", has_attempts=False)


# write the HTML report: leaderboard, tasks, items, comparisons, provenance; opens from disk in any browser
rule report:
    input:
        values=in_output("summary/results.parquet"),
        compared=expand(in_output("summary/{table}.parquet"), table=["comparisons", "rankings", "overall", "prompts"]),
        curves=curve_files(),
        tokenizers=in_output("summary/tokenizers.parquet"),
        tasks=expand(expand_evaluations(in_output("{{model}}/tasks/{evaluation}.parquet")), model=CONFIG.models),
        # read in the directories of these and of `tasks`
        requests=expand_evaluations(in_output("requests/{evaluation}.parquet")),
        answers=expand(OUTPUTS, model=CONFIG.models),
        changes=written(in_output("comparisons")),
        audit=[] if CONFIG.audit is None else in_output("summary/audit.parquet"),
        estimates=ESTIMATES[:1],
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
rule verify:
    input:
        notes=in_output("summary/notes.csv"),
    output:
        in_output("summary/complete.txt"),
    log:
        "logs/verify/verify.log",
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
        "verify: check that no results are missing from the summary"
    shell:
        stage("verify", has_spec=False, has_attempts=False)
