"""Text to token ids and back. No torch in here.

tokenizer   `Tokenizer`: encode, decode, the ids of special tokens
read        a tokenizer out of a folder: tokenizer.json, or BERT's and GPT-2's own vocabulary files
"""
