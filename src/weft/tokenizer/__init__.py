"""Text to token ids and back. Imports no torch.

tokenizer   `Tokenizer`: encode, decode, the ids of special tokens
read        loads a tokenizer from a folder: tokenizer.json, or the vocabulary files of BERT and GPT-2
special     the special tokens of each family
train       trains WordPiece, byte-level BPE, Unigram and character vocabularies on a corpus
report      bytes per token, unknown rate, rare and long tokens
build       trains, reports and writes a tokenizer folder
"""
