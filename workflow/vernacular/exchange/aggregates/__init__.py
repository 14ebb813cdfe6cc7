"""Values that other tools state without results per item: a reader for each format, and the rows that they return.

A value keeps what identifies its items (dataset, configuration, split, revision, shots): a name alone identifies none.
Files are those of strangers: what is missing or of another type is None, and a value that is not possible is left out.
"""
