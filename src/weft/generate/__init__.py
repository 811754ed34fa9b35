"""Text generation, in the order to read it.

    settings           strategy, filters, lengths, stop strings, constraints
    start_end_tokens   the model's start, end and banned tokens
    framing            prefix and separator of a model tuned to answer
    chat_template      messages of a conversation as one prompt
    prompts            texts or ids in, the decoder's and encoder's token ids out
    pages              keys and values in fixed pages that rows share
    decoder            rows of text: tokens in, the next token's logits out
    next_token         penalties, filters, sampling
    constraint         output that fits a schema, a regular expression or a list (grammars, token_bytes)
    text               tokens to text, while they are generated
    job                one prompt with its answers as they grow
    choose             the next token of each answer, by its own settings
    beam               beam search, also diverse
    speculate          guesses that are checked several at a time
    admission          which jobs run
    engine             many jobs at once, each at its own step
    writer             generate, stream, and jobs for a service
    chat_writer        answers in a conversation
    log_probs, scorer  log-probabilities of given tokens: score, choose

and what computes a step:

    kernels            in C: a few rows times a matrix, norms, attention over pages, whole layers
    layer_kernel       a decoder's layers described to the C kernels
    layouts            how a matrix is stored: for the kernels, transposed, int8
    paged_attention    attention over pages in torch, on GPUs and without a compiler
    recurrent_rows     an LSTM's states
    prepare            a network with these in place
"""
