"""Documents on disk as token ids, and the order in which training sees them.

keyed_shuffle   position -> sample, as a pure function of seed and epoch
shards          documents -> memory-mapped shards of token ids, built piece by piece
order           step -> the samples of a batch, with sources mixed by weight
"""
