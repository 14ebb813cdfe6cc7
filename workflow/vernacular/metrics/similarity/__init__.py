"""Similarity of responses and options, by a fixed encoder: `compute.similarities`."""
