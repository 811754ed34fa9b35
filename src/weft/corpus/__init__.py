"""Text on its way in. No torch in here.

read      documents out of files: formats, archives, charset, article (of a page), fetch (from the web)
judge     clean, masking, language, quality, contamination
copies    ngrams, near_duplicates
build     a corpus: plan the pieces, sift each, choose among copies, write each; engine hands them out;
          manifest, report, drift
split     what is held out for validation and test
command   `weft corpus`
"""
