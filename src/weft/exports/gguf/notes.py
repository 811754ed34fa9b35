"""What a user should know of a file: what it leaves out, and where llama.cpp computes something else."""

from collections.abc import Iterator

from weft.api.model import Model
from weft.exports.gguf.links import architecture_name
from weft.generate.framing import Framing


def gguf_notes(model: Model) -> Iterator[str]:
    architecture = model.network.architecture
    kind = architecture_name(architecture)
    if architecture.head("masked"):
        yield "The masked-LM head is left out: llama.cpp has none. The file gives embeddings."
    elif architecture.head("pooler"):
        yield "BERT's pooler is left out: as weft does, the file gives the pooled hidden states as embeddings."
    if kind == "bert" and architecture.embedding.segments > 1:
        yield "llama.cpp gives every token segment 0."
    stack = architecture.encoder or architecture.decoder
    if kind in ("bert", "gpt2", "t5", "t5encoder") and stack.blocks[0].feedforward.activation == "gelu":
        yield "llama.cpp computes GELU by its tanh approximation, which differs by up to 0.0005."
    if kind == "modern-bert" and (head := architecture.head("sequence")) and head.pool == "first":
        yield "Older versions of llama.cpp pool the mean of the tokens instead of the first."
    if kind == "t5":
        yield "llama-server does not run encoder–decoders; llama-completion and llama-cli do."
    if gives_vectors(model) and not model.pooling.normalize:
        yield "llama-server scales vectors to length 1 unless a request says embd_normalize: -1."
    if model.start_end.banned_ids and architecture.decoder is not None:
        yield "Tokens that the model must not write (bad_words_ids) are not in the file: pass them as logit_bias."
    yield from _task_notes(model)


def gives_vectors(model: Model) -> bool:
    """Whether the file is for embeddings: it neither writes nor classifies."""
    return not any(model.network.architecture.head(kind) for kind in ("causal", "seq2seq", "sequence"))


def _task_notes(model: Model) -> Iterator[str]:
    task = model.facts.get("task")
    name = task.get("name") if isinstance(task, dict) else None
    if name in ("pair", "similarity"):
        yield f"The model was tuned on pairs of texts ({name}): give each as token ids, with the separators between."
    framing = Framing.of(task)
    if framing is not None and not framing.is_reply and (framing.prefix or model.network.architecture.encoder is None):
        end = framing.separator or "the end token"
        after = "" if model.network.architecture.encoder is not None else f", and end with {end!r}"
        yield f"The model was tuned to {name}: prompts begin with {framing.prefix!r}{after}."
