"""From documents to a clean, deduplicated, split corpus. Imports no torch.

build         prepares a build; passes runs its steps
plan          the sources, cut into pieces of work; engine and quarantine hand the pieces to processes
first_pass    read and filter a piece: clean, masking, language, quality, contamination
deduplicate   which duplicates stay (ngrams, near_duplicates), and the split of each document
second_pass   write a piece: Parquet shards (tables)
split         what is held out for validation and test
manifest      weft.json and the lists of files
report        figures of a build; report_page shows them; drift compares two reports
"""
