# ruff: noqa: F401 - these names are the interface
"""Results of a run as pandas DataFrames, for notebooks and scripts.

    >>> from vernacular import results
    >>> results.values("results").query("language == 'gl' and headline")                       # doctest: +SKIP
    >>> results.items("results", "llama-2-gl", "openbookqa.gl.options.0shot")                   # doctest: +SKIP
    >>> results.comparisons("results").query("significant")                                     # doctest: +SKIP
    >>> results.tokens("results", "llama-2-gl", "cola.gl.acceptability.0shot")                  # doctest: +SKIP

The argument `directory` is the directory that the workflow writes, `results`. Files are verified when they are read: a
damaged or moved file raises ArtifactError, which names it.
"""

from vernacular.results.plots import (
    plot_categories,
    plot_categories_by_language,
    plot_confusion,
    plot_curves,
    plot_differences,
    plot_distribution,
    plot_items,
    plot_labels,
    plot_languages,
    plot_means,
    plot_outcomes,
    plot_overall,
    plot_prompts,
    plot_reliability,
    plot_surprisal,
    plot_values,
)
from vernacular.results.tables import (
    FLAG_TEXT,
    between_languages,
    changes,
    comparisons,
    deciding_metrics,
    evidence,
    item_frame,
    items,
    language_items,
    prompts,
    token_frame,
    tokens,
    values,
)
