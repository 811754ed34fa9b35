"""Documents as token ids on disk, and the order in which training reads them.

keyed_shuffle   position -> sample, as a pure function of seed and epoch
shards          documents -> memory-mapped shards of token ids, built one by one
order           step -> the samples of a batch, with sources mixed by weight
"""
