"""text: probability of plain texts, in windows of the model's context."""

from vernacular.protocols.declaration import MIN_K_PLUS_PLUS, PLL, Protocol

PROTOCOL = Protocol(
    styles=("default", "lm_eval"),  # lm_eval: a BOS that the tokenizer adds is itself scored
    options={
        "overlap": int,  # tokens of a window that the windows before it have scored; 0 as in lm-eval
        "window": int,  # maximum number of tokens to read at a time; by default as many as the model can
        "order_permutations": int,  # canonical-order test: shuffled orders of each shard, scored in addition
        "order_shards": int,  # shards of consecutive texts
        **MIN_K_PLUS_PLUS,
        **PLL,
    },
    options_of_all_items=("order_permutations",),
    dependent_options={"order_shards": "order_permutations"},
    signature_options={"overlap": 0, "window": "model"},
    displayed_roles=("text",),
)
