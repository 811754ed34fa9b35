"""What pre-training learns: how a stretch of tokens becomes a question and its answer.

masking          masked language modelling: which tokens, and what stands in their place
spans            span corruption: cut spans out, ask for them behind sentinels
sentence_pairs   two segments of a document, or of two, or swapped

Everything random comes from a generator that the caller seeds with the sample's number.
"""
