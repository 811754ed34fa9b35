"""The Transformer, in the order to read it.

    packed        a batch: a flat run of tokens and where each sequence starts
    norm          LayerNorm, RMSNorm
    positions     learned, sinusoidal, rotary, relative bias
    dropout       noise against over-fitting
    embeddings    token + position + segment
    attention     softmax(QKᵀ/√d)V, multi-head, per sequence
    feedforward   the position-wise network, plain or gated
    block         attention and feedforward, each with residual and norm
    stack         blocks on top of each other: an encoder or a decoder
    recurrent     the LSTM that came before
    heads         from hidden states to vocabulary, labels or spans
    loss          −log p of the right token, together with the vocabulary layer
    network       embeddings + stacks + heads
    initialize    the weights before training
    fused_layers, fused_attention   where C takes over from torch's operations; layer_passes and attention_kernel are
                  the operators, …_trials hold them to their formulas, kernel_report says which serve
    families      BERT, GPT-2, T5 … as choices among the bricks, with their published sizes

Every brick is a frozen `…Spec` dataclass (what it is) beside an `nn.Module` (what it computes). Nothing here reads
or writes files. Shape suffixes: T tokens in the batch, S sequences, L length of one sequence, W width, H heads, D
width of one head, V vocabulary.
"""
