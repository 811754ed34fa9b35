"""Read and write model folders in Hugging Face's format.

config_values   checked values of a config.json, activation names
weight_map      which stored tensors make up each parameter
tensor_files    safetensors files, single or sharded; never pickle
dialect         what is specific to a family: config keys, class names, weight names
bert, gpt2, t5, marian, llama, modernbert    the families' dialects
native          weft's own format, for architectures that no Hugging Face family has
pooling         how a sentence-embedding folder pools hidden states
folder          the whole folder: strict reading, atomic writing
"""
