"""Decoding, in the order to read it.

    settings      how to write: strategy, filters, lengths, stops
    ends          the model's own words on beginning and ending
    prompts       texts or ids in, what the decoder reads out
    cache         keys and values of what has been read
    decoder       one more token: prompts in, the next token's scores out
    next_token    rules, filters, the draw
    write         greedy and sampling
    beam          beam search, also in groups
    text          tokens become text as they are written
    score         how likely tokens are
    writer        generate, stream
    judge         score, choose
    command       `weft generate`

and what makes a step fast:

    kernels       few rows times a whole matrix, attention of one query, a whole layer: in C
    layouts       how a matrix lies in memory: blocks, columns, whole bytes
    whole         a layer described to the kernels
    lean          a decoder's layer in as few operations as it takes
    prepare       a network with these in their places
"""
