"""The Transformer, in the order to read it.

    packed        a batch: a flat run of tokens and where each sequence starts
    norm          LayerNorm, RMSNorm
    positions     learned, sinusoidal, rotary, relative bias
    dropout       regularisation by random zeros
    embeddings    token + position + segment
    attention     softmax(QKᵀ/√d)V, multi-head, per sequence
    feedforward   the position-wise network, plain or gated
    block         attention and feedforward, each with residual and norm
    stack         blocks in sequence: an encoder or a decoder
    keep          hidden states and attention weights of chosen layers, on request
    recurrent     the LSTM, as a baseline
    heads         from hidden states to vocabulary, labels or spans
    loss          cross-entropy, fused with the vocabulary layer
    network       embeddings + stacks + heads
    initialize    initial weights, keyed by seed and parameter name
    flops         arithmetic per batch
    fused_layers, fused_attention   C kernels on CPU, with torch as the fallback; layer_passes and attention_kernel
                  wrap them as operators, …_trials test them at load time, kernel_report says which are in use
    families      BERT, GPT-2, T5 … as combinations of these modules, with their published sizes

Every module is a frozen `…Spec` dataclass (its settings) and an `nn.Module` (the computation). Nothing here reads or
writes files. Shape suffixes: T tokens in the batch, S sequences, L length of one sequence, W width, H heads, D
width of one head, V vocabulary.
"""
