"""What pre-training learns: how a stretch of tokens becomes a question and its answer.

objective        the protocol: samples -> batch -> loss and scores
causal           guess the next token
masking          which tokens are hidden, and what stands in their place
masked           masked language modelling on stretches of text
sentence_pairs   two segments of a document, or of two, or swapped
masked_pairs     masked language modelling and a question about the pair, jointly
spans            cut spans out, ask for them behind sentinels
corrupted        span corruption on stretches of text
catalog          all of them by the names a recipe uses

Everything random is a function of (seed, epoch, sample).
"""
