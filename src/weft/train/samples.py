"""A short text that shows what the model can do so far: a GPT's continuation, a BERT's masked words, a T5's spans."""

import torch

from weft.generate.engine import GenerationEngine
from weft.generate.job import Job
from weft.generate.next_token import random_keys
from weft.generate.prepare import prepared
from weft.generate.settings import settings_of
from weft.generate.start_end_tokens import StartEndTokens
from weft.model.network import Network
from weft.model.positions import longest
from weft.objectives.objective import Batch
from weft.tokenizer.tokenizer import Tokenizer

_TEMPERATURE, _TOP_K = 0.8, 40
_GUESSES_SHOWN = 8  # in a line


def show_sample(network: Network, tokenizer: Tokenizer, batch: Batch, seed: int, tokens: int = 100) -> str:
    """`batch` is a validation batch. A causal model continues its first sequence; others predict its targets."""
    was_training = network.training
    network.eval()
    # Compiled, each new length would be compiled again.
    with torch.inference_mode(), torch.compiler.set_stance("force_eager"):
        if "causal" in network.heads:
            prompt = batch.packed.tokens[: min(16, batch.packed.lengths[0] // 2 or 1)].tolist()
            shown = _continuation(network, tokenizer, prompt, seed, tokens)
        else:
            shown = _predictions(network, tokenizer, batch)
    network.train(was_training)
    return shown


def _continuation(network: Network, tokenizer: Tokenizer, prompt: list[int], seed: int, tokens: int) -> str:
    settings = settings_of({"temperature": _TEMPERATURE, "top_k": _TOP_K, "slide": True})
    ends = StartEndTokens(banned_ids=tuple(tokenizer.special_ids))  # the sample should be text
    limit = longest(network.architecture.embedding.positions)
    job = Job(prompt, None, settings, ends, most=tokens, limit=limit, keys=random_keys(seed, [prompt]))
    engine = GenerationEngine(prepared(network))
    engine.submit(job)
    while engine.has_work:
        engine.step()
    written = job.found[0]
    assert written is not None
    return tokenizer.decode(prompt + written.tokens).strip("\n")


def _predictions(network: Network, tokenizer: Tokenizer, batch: Batch) -> str:
    """The first few targets of a batch, each with the model's prediction."""
    batch = batch.to(next(network.parameters()).device)
    assert batch.targets is not None
    kind = next(kind for kind in ("masked", "seq2seq") if kind in network.heads)
    reader = batch.decoder or batch.packed
    rows = torch.arange(len(batch.targets), device=batch.targets.device) if batch.rows is None else batch.rows
    hidden = network(batch.packed, batch.decoder)
    guesses = network.head(kind)(hidden, reader, rows[:_GUESSES_SHOWN]).argmax(-1).tolist()
    wanted = batch.targets[:_GUESSES_SHOWN].tolist()
    pairs = [
        f"{_piece(tokenizer, right)}→{_piece(tokenizer, guess)}" for right, guess in zip(wanted, guesses, strict=True)
    ]
    return "hidden→guessed  " + "  ".join(pairs)


def _piece(tokenizer: Tokenizer, token: int) -> str:
    return tokenizer.engine.decode([token], skip_special_tokens=False).strip() or repr(
        tokenizer.engine.id_to_token(token)
    )
