"""Task files of lm-evaluation-harness (read against its version 0.4.13; lm_eval itself is not needed).

`translate` makes a source of ours and a set of settings out of one of their files; `lay_out` makes items out of rows.
"""

from vernacular.data.lm_eval.items import lay_out
from vernacular.data.lm_eval.settings import PROTOCOLS, translate

__all__ = ["PROTOCOLS", "lay_out", "translate"]
