"""Text to token ids and back. No torch in here.

tokenizer   `Tokenizer`: encode, decode, the ids of special tokens
read        a tokenizer out of a folder: tokenizer.json, or BERT's and GPT-2's own vocabulary files
special     the special tokens each family needs
train       WordPiece, byte-level BPE, Unigram and character vocabularies out of a corpus
report      bytes per token, unknown rate, rare and long tokens
build       all of it: text in, folder and report out
"""
