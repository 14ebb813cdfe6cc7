"""target_word (Grew-TSE): log-probabilities of word forms that replace a masked word."""

from vernacular.protocols.declaration import PLL, Protocol

PROTOCOL = Protocol(
    options={
        "mask_token": str,  # representation of the masked word in the file
        "scored_span": ("token", "sentence", "both"),
        "task_type": ("mlm", "ntp", "both"),
        **PLL,
    },
    external="options",
    displayed_roles=("token", "sentence"),
)
