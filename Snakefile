# Vernacular: evaluation of language models in low-resource languages.
#
#   snakemake -c4                              on this machine
#   snakemake -c4 --configfile mine.yaml       with a config other than config.yaml
#   snakemake -n                               dry run: jobs and reasons
#
# datasets -> items -> requests -> (one job per model) scores and generations -> metrics -> summary


# ----- config: read, validated and expanded ----------------------------------------------------------------------


include: "workflow/rules/common.smk"


# ----- the stages ------------------------------------------------------------------------------------------------


include: "workflow/rules/data.smk"
include: "workflow/rules/requests.smk"
include: "workflow/rules/lm_eval.smk"
include: "workflow/rules/inference.smk"
include: "workflow/rules/metrics.smk"
include: "workflow/rules/summary.smk"


# ----- targets ---------------------------------------------------------------------------------------------------


# the summary, the comparisons, the report, all per-item results, and the exports
rule all:
    default_target: True
    input:
        rules.verify.output,
        rules.summary.output,
        rules.compare.output,
        rules.report.output,
        rules.tokenizers.output,
        expand(expand_evaluations(in_output("{{model}}/tasks/{evaluation}.parquet")), model=CONFIG.models),
        expand(expand_evaluations(in_output("exports/{{model}}/{evaluation}"), settings.EXPORTED), model=CONFIG.models),
    message:
        "all: all configured results are complete"
