"""Protocols and summaries that are also written in the formats of other tools."""

# protocol -> the module of this package that writes its per-item results
EXPORTS = {"letters": "palmx", "cloze": "serbian_cloze", "target_word": "grew_tse"}
SUMMARY_EXPORTS = ("lm_eval", "every_eval_ever")  # directories next to the tables of all models
