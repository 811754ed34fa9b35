"""weft in Python, in the order to read it.

model      `load`, `create`, and `Model` with its verbs
arrays     token ids in batches through the network: an array per sequence
fill       the best words for a mask
training   `pretrain`, `finetune`, `evaluate`: the commands as functions
"""
