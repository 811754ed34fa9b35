"""What a model learns in pre-training: how token sequences become inputs and targets, and the loss.

objective         the protocol: samples -> batch -> loss and scores
answers           targets of heads other than the language head
transfer          a batch to a GPU in one copy
causal            predict the next token
masking           which tokens are masked, and what replaces them
masked            masked language modelling
sentence_pairs    two segments: consecutive, from two documents, or swapped
masked_pairs      masked language modelling and a label of the pair, jointly
spans             cut spans out of a sequence; sentinels mark them
span_corruption   span corruption for encoder–decoders
permutation       the sentences of a document in random order
infilling         one mask in the place of each span
denoising         both, for encoder–decoders that write the whole text (BART)
catalog           all of them by the names a recipe uses

Everything random is a function of (seed, epoch, sample).
"""
