"""Token for token what `transformers.generate` writes: every family that writes, prompts of unequal length."""

import pytest
import torch

import oracle
import weft

WRITERS = ("GPT2LMHeadModel", "LlamaForCausalLM", "Qwen3ForCausalLM", "T5ForConditionalGeneration", "MarianMTModel")
CASES = [case for case in oracle.CASES if case.class_name in WRITERS]
END, PAD = 1, 0


def both(case, tmp_path, sharpness: float = 6.0):
    """The same model on both sides, its scores spread so that texts differ, end and are not decided by rounding."""
    theirs = oracle.build(case).eval()
    with torch.no_grad():
        head = theirs.get_output_embeddings()
        if not theirs.config.tie_word_embeddings:
            head.weight.mul_(sharpness)
    config = theirs.generation_config
    config.eos_token_id, config.pad_token_id, config.bos_token_id = END, PAD, 2
    config.forced_eos_token_id = END if case.class_name.startswith("Marian") else None
    if theirs.config.is_encoder_decoder:
        config.decoder_start_token_id = theirs.config.decoder_start_token_id = PAD
    return theirs, weft.load(oracle.save(theirs, tmp_path / "model"))


def prompts_for(theirs, seed: int) -> list[list[int]]:
    return oracle.sequences(theirs.config.vocab_size, seed, end=9)


def written_by(theirs, prompts: list[list[int]], **settings) -> list[list[int]]:
    """New tokens only, without the padding."""
    longest = max(map(len, prompts))
    is_seq2seq = theirs.config.is_encoder_decoder
    rows = [row + [PAD] * (longest - len(row)) if is_seq2seq else [PAD] * (longest - len(row)) + row for row in prompts]
    mask = [
        [1] * len(row) + [0] * (longest - len(row)) if is_seq2seq else [0] * (longest - len(row)) + [1] * len(row)
        for row in prompts
    ]
    with torch.no_grad():
        out = theirs.generate(
            torch.tensor(rows), attention_mask=torch.tensor(mask), do_sample=False, pad_token_id=PAD, **settings
        )
    start = 1 if is_seq2seq else longest
    return [until_end(row[start:]) for row in out.tolist()]


def until_end(row: list[int]) -> list[int]:
    return row[: row.index(END) + 1] if END in row else row


@pytest.mark.parametrize("case", CASES, ids=str)
def test_greedy(case, tmp_path):
    theirs, ours = both(case, tmp_path)
    prompts = prompts_for(theirs, case.seed)
    expected = written_by(theirs, prompts, max_new_tokens=12, num_beams=1)
    assert ours.generate(prompts, max_new_tokens=12) == expected
    assert [ours.generate(prompt, max_new_tokens=12) for prompt in prompts] == expected


@pytest.mark.parametrize("early", [False, True, "never"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_beam_search(case, early, tmp_path):
    theirs, ours = both(case, tmp_path)
    prompts = prompts_for(theirs, case.seed)
    for beams in (2, 3, 4, 5):
        for penalty in (-0.5, 0.0, 1.0, 2.0):
            expected = written_by(
                theirs,
                prompts,
                max_new_tokens=10,
                num_beams=beams,
                num_return_sequences=beams,
                length_penalty=penalty,
                early_stopping=early,
            )
            written = ours.generate(
                prompts, max_new_tokens=10, beams=beams, n=beams, length_penalty=penalty, early_stopping=early
            )
            assert [answer for answers in written for answer in answers] == expected, (beams, penalty)
