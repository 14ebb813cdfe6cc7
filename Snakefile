# Vernacular: evaluation of language models in low-resource languages.
#
#   snakemake -c4                              on this machine
#   snakemake -c4 --configfile mine.yaml       with a config other than config.yaml
#   snakemake -n                               dry run: jobs and reasons
#   snakemake --profile slurm                  on a SLURM cluster (docs/cluster.md)


include: "workflow/Snakefile"


# a file that is included does not set the target of a plain `snakemake`
workflow.default_target = "all"
