"""Command `snakefile`: the path of the workflow, which an installed package contains."""

from vernacular.core.paths import WORKFLOW


def snakefile(args) -> None:
    """Print the path of the Snakefile, for `snakemake --snakefile` and for `snakefile:` of a module."""
    print(WORKFLOW / "Snakefile")
