"""target_word (Grew-TSE): word forms in the place of a masked word."""

from vernacular.protocols.declaration import PLL, Protocol

PROTOCOL = Protocol(
    options={
        "mask_token": str,  # how the file writes the masked word
        "evaluation_type": ("token-level", "sentence-level", "both"),
        "task_type": ("mlm", "ntp", "both"),
        **PLL,
    },
    external="options",
    drawn=("token", "sentence"),
)
