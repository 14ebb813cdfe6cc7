# Vernacular: evaluate language models in the languages they are weakest in.
#
#   snakemake -c4                              on this machine
#   snakemake -c4 --configfile mine.yaml       with another config than config.yaml
#   snakemake -n                               what would be done, and why
#
# data sets -> items -> requests -> (one job per model) scores and generations -> metrics -> summary


# ----- config: read, checked and spelt out -----------------------------------------------------------------------


include: "workflow/rules/common.smk"


# ----- the stages ------------------------------------------------------------------------------------------------


include: "workflow/rules/data.smk"
include: "workflow/rules/requests.smk"
include: "workflow/rules/inference.smk"
include: "workflow/rules/metrics.smk"
include: "workflow/rules/summary.smk"


# ----- what a run is to leave behind -----------------------------------------------------------------------------


# everything: the spreadsheets, and every per-item result they are made of
rule all:
    default_target: True
    input:
        rules.complete.output,
        rules.summary.output,
        rules.compare.output,
        rules.report.output,
        expand(of_each("results/{{model}}/tasks/{evaluation}.parquet"), model=CONFIG.models),
        expand(of_each("results/compat/{{model}}/{evaluation}", settings.COMPAT), model=CONFIG.models),
    message:
        "all: everything that config.yaml asks for is there"
