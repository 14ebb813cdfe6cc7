"""Results of all models -> comparisons: differences, rankings, changed items, training curves and lists for speakers.
REQUIRED INPUTS: results/{model}/metrics.parquet, results/{model}/tasks/. OUTPUTS: results/compared/, results/comparisons/,
tables of results/summary/.
"""

# differences of pairs: of models, and with external results; the latter matched to items
COMPARED = [
    in_output("compared/pairs.parquet"),
    *[in_output("compared/external.parquet")] * bool(CONFIG.external_results),
]
MATCHED = expand(in_output("compared/external/{name}.parquet"), name=CONFIG.external_results)
# values from outside without items, which are unpaired
UNPAIRED = [in_output("compared/unpaired.parquet")] if CONFIG.external_results else []


# what values and comparisons are without the faults that speakers have confirmed; only with `verdicts:`
WITHOUT_FAULTS = expand(
    in_output("summary/{table}.parquet"),
    table=["without_faults", "comparisons_without_faults"] if CONFIG.verdicts else [],
)

# values by labels of speakers and borrowed values; only with `labels:` or `borrow_from:`
HAS_ESTIMATES = CONFIG.labels or CONFIG.borrow_from
ESTIMATES = [in_output("summary/labels.parquet"), table("labels", "CSV")] if HAS_ESTIMATES else []


# consistency of models between languages; only with a parallel task in several languages
BETWEEN_LANGUAGES = expand(
    in_output("summary/{table}.parquet"),
    table=["between_languages", "language_items"] if specs.languages_spec(CONFIG).evaluations else [],
)


# compare models: differences on the same items with intervals and tests, and rankings
rule compare:
    input:
        metrics=expand(in_output("{model}/metrics.parquet"), model=CONFIG.models),
        tasks=expand(expand_evaluations(in_output("{{model}}/tasks/{evaluation}.parquet")), model=CONFIG.models),
    output:
        multiext(in_output("summary/rankings"), ".parquet", ".csv"),
        multiext(in_output("summary/prompts"), ".parquet", ".csv"),
        multiext(in_output("summary/deciding_models"), ".parquet", ".csv"),
        in_output("summary/overall.parquet"),
        table("overall", "CSV"),
        pairs=COMPARED[0],
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
            results=above(input.metrics[0], 2),
            out=above(output[0]),
            pairs=output.pairs,
        ),
    message:
        "compare: compare pairs of models on the same items, and rank all models"
    shell:
        stage("compare", has_attempts=False)


# list the items that improved or regressed between the sides of each pair
rule changes:
    input:
        data=items_files(),
        metrics=expand(in_output("{model}/metrics.parquet"), model=CONFIG.models),
        tasks=expand(expand_evaluations(in_output("{{model}}/tasks/{evaluation}.parquet")), model=CONFIG.models),
        matched=MATCHED,
    output:
        as_output(in_output("comparisons")),
    log:
        "logs/changes/changes.log",
    benchmark:
        f"{BENCHMARKS}/changes/changes.tsv"
    localrule: True
    conda:
        "../../envs/tables.yaml"
    threads: 2
    resources:
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
        runtime=60,
    params:
        spec=spec("changes", specs.changes_spec(CONFIG)),
        files=lambda wildcards, input, output: files(
            input,
            "items_dir",
            results=above(input.metrics[0], 2),
            out=written_directory(output[0]),
            **matched_field(input),
        ),
    message:
        "changes: list the items that improved or regressed"
    shell:
        stage("changes", has_attempts=False)


if CONFIG.external_results:

    # match external results to the items, and compare them with models; only with `external_results:`
    rule external:
        input:
            data=items_files(),
            metrics=expand(in_output("{model}/metrics.parquet"), model=CONFIG.models),
            tasks=expand(expand_evaluations(in_output("{{model}}/tasks/{evaluation}.parquet")), model=CONFIG.models),
        output:
            COMPARED[-1],
            MATCHED,
            UNPAIRED,
        log:
            "logs/external/external.log",
        benchmark:
            f"{BENCHMARKS}/external/external.tsv"
        localrule: True
        conda:
            "../../envs/tables.yaml"
        threads: 2
        resources:
            mem_mb=lambda wildcards, attempt: 4000 * attempt,
            runtime=60,
        params:
            spec=spec("external", specs.external_results_spec(CONFIG)),
            files=lambda wildcards, input, output: files(
                input,
                "items_dir",
                results=above(input.metrics[0], 2),
                out=output[0],
            ),
        message:
            "external: match external results to the items, and compare them with models"
        shell:
            stage("external", has_attempts=False)


if CONFIG.verdicts:

    # compute values and differences without the faults that speakers have confirmed; only with `verdicts:`
    rule faults:
        input:
            data=items_files(),
            metrics=expand(in_output("{model}/metrics.parquet"), model=CONFIG.models),
            tasks=expand(expand_evaluations(in_output("{{model}}/tasks/{evaluation}.parquet")), model=CONFIG.models),
            matched=MATCHED,
        output:
            WITHOUT_FAULTS,
        log:
            "logs/faults/faults.log",
        benchmark:
            f"{BENCHMARKS}/faults/faults.tsv"
        localrule: True
        conda:
            "../../envs/tables.yaml"
        threads: 2
        resources:
            mem_mb=lambda wildcards, attempt: 4000 * attempt,
            runtime=60,
        params:
            spec=spec("faults", specs.faults_spec(CONFIG)),
            files=lambda wildcards, input, output: files(
                input,
                "items_dir",
                results=above(input.metrics[0], 2),
                out=above(output[0]),
                **matched_field(input),
            ),
        message:
            "faults: compute values and differences without confirmed faults"
        shell:
            stage("faults", has_attempts=False)


if HAS_ESTIMATES:

    # estimate values from labels and from other runs; only with `labels:` or `borrow_from:`
    rule estimates:
        input:
            metrics=expand(in_output("{model}/metrics.parquet"), model=CONFIG.models),
            tasks=expand(expand_evaluations(in_output("{{model}}/tasks/{evaluation}.parquet")), model=CONFIG.models),
        output:
            ESTIMATES,
        log:
            "logs/estimates/estimates.log",
        benchmark:
            f"{BENCHMARKS}/estimates/estimates.tsv"
        localrule: True
        conda:
            "../../envs/tables.yaml"
        resources:
            mem_mb=lambda wildcards, attempt: 4000 * attempt,
            runtime=60,
        params:
            spec=spec("estimates", specs.estimates_spec(CONFIG)),
            files=lambda wildcards, input, output: files(
                input,
                results=above(input.metrics[0], 2),
                out=output[0],
            ),
        message:
            "estimates: estimate values from labels of speakers, and from other runs"
        shell:
            stage("estimates", has_attempts=False)


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


if BETWEEN_LANGUAGES:

    # compare what each model answers to the same items in several languages; only with a parallel task in several
    rule between_languages:
        input:
            metrics=expand(in_output("{model}/metrics.parquet"), model=CONFIG.models),
            tasks=expand(expand_evaluations(in_output("{{model}}/tasks/{evaluation}.parquet")), model=CONFIG.models),
        output:
            BETWEEN_LANGUAGES,
            table("between_languages", "CSV"),
            table("language_items", "CSV"),
        log:
            "logs/between_languages/between_languages.log",
        benchmark:
            f"{BENCHMARKS}/between_languages/between_languages.tsv"
        localrule: True
        conda:
            "../../envs/tables.yaml"
        resources:
            mem_mb=lambda wildcards, attempt: 4000 * attempt,
            runtime=60,
        params:
            spec=spec("between_languages", specs.languages_spec(CONFIG)),
            files=lambda wildcards, input, output: files(
                input, results=above(input.metrics[0], 2), out=above(output[0])
            ),
        message:
            "between-languages: compare what each model answers to the same items in several languages"
        shell:
            stage("between-languages", has_attempts=False)


# list the items that a speaker should read, from what all models answered; only with `audit:` in the config
if CONFIG.audit is not None:

    rule audit_lists:
        input:
            data=items_files(),
            tasks=expand(expand_evaluations(in_output("{{model}}/tasks/{evaluation}.parquet")), model=CONFIG.models),
        output:
            in_output("summary/audit.parquet"),
            table("audit", "CSV"),
            table("audit", "Excel"),
            table("audit_lists", "CSV"),
        log:
            "logs/audit_lists/audit_lists.log",
        benchmark:
            f"{BENCHMARKS}/audit_lists/audit_lists.tsv"
        localrule: True
        conda:
            "../../envs/tables.yaml"
        resources:
            mem_mb=lambda wildcards, attempt: 3000 * attempt,
            runtime=30,
        params:
            spec=spec("audit", specs.audit_spec(CONFIG)),
            files=lambda wildcards, input, output: files(
                input, "items_dir", results=above(output[0], 2), out=above(output[0])
            ),
        message:
            "audit-lists: list the items that a speaker should read first"
        shell:
            stage("audit-lists", has_attempts=False)
