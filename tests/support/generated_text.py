"""Texts of models that repeat themselves without end, for parsers whose run time must be linear."""

HUGE = 1_000_000  # characters
REPEATED_FRAGMENTS = ["x", ":", "RESPOST", "RESPOSTA: ", "\n", " ", " \n", "\t\v", "\u2028", "a b ", "e\u0301", "A:", "👩‍👩‍👧",
                      "...", "١"]  # fmt: skip
