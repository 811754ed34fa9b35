"""Text generation, in the order to read it.

    settings           strategy, filters, lengths, stop strings
    start_end_tokens   the model's start, end and banned tokens
    framing            prefix and separator of a model tuned to answer
    prompts            texts or ids in, the decoder's and encoder's token ids out
    slab               keys and values in memory
    cache              keys and values of the tokens read so far, and of the source
    decoder            one step: tokens in, the next token's logits out
    next_token         penalties, filters, sampling
    write              greedy decoding and sampling
    beam               beam search, also diverse
    text               tokens to text, while they are generated
    log_probs          log-probabilities of given tokens
    writer             generate, stream
    scorer             score, choose

and what makes a step fast on a CPU:

    kernels            in C: a few rows times a matrix, attention of one query, a whole layer
    layouts            how a matrix is stored: blocks, transposed, int8
    layer_kernel       a layer described to the C kernel
    inference_block    a decoder layer in few operations
    prepare            a network with these in place
"""
