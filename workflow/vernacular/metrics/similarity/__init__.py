"""How similar an answer is to each option, by a fixed encoder: `compute.similarities`."""
