"""File formats: a reader for each, and the table of all of them (`catalog`)."""
