"""Model folders in Hugging Face's format, in and out.

config_values   typed look-ups in a config.json, activation names
weight_map      how one of our parameters corresponds to their tensors
tensor_files    safetensors on disk: one file or shards, never pickle
dialect         what a family must say: config keys, class names, weight names
bert, gpt2, t5, marian, llama, modernbert    the families' dialects
native          weft's own format, for what no Hugging Face family has
pooling         how a sentence-embedding folder makes one vector of many
folder          the whole folder: read it strictly, write it atomically
"""
