"""Replication: our values per item, compared with those of the tools whose methods we implement, on the same rows.

    make replicate

runs the workflow with `config.yaml`, then each tool on the same rows, and writes `docs/replication.md`. Modules:

    rows        what a tool is given: raw rows of the samples, and texts of our requests
    minicons_values, lm_eval_values   run the packages, in the environment .bench
    restated    runs the references of tests/oracles
    compare     joins values by item
    bos         both settings of `bos`, on our own values
    page, plot  write the page and its plot
    published   values that others have published (`make replicate HUB=1`)
"""
