"""Token for token what `transformers.generate` writes: every family that writes, prompts of unequal length."""

import pytest
import torch

import oracle
import weft

WRITERS = ("GPT2LMHeadModel", "LlamaForCausalLM", "Qwen3ForCausalLM", "T5ForConditionalGeneration", "MarianMTModel")
CASES = [case for case in oracle.CASES if case.class_name in WRITERS]
ENDS, PAD = [1, 10, 15, 18], 0


def both(case, tmp_path, sharpness: float = 6.0):
    """The same model on both sides, its scores spread so that texts differ, end and are not decided by rounding."""
    theirs = oracle.build(case).eval()
    with torch.no_grad():
        head = theirs.get_output_embeddings()
        if not theirs.config.tie_word_embeddings:
            head.weight.mul_(sharpness)
    config = theirs.generation_config
    config.eos_token_id, config.pad_token_id, config.bos_token_id = ENDS, PAD, 2
    config.forced_eos_token_id = ENDS[0] if case.class_name.startswith("Marian") else None
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
            torch.tensor(rows),
            attention_mask=torch.tensor(mask),
            do_sample=False,
            pad_token_id=PAD,
            suppress_tokens=[PAD],  # to its penalty the padding is a token that was written before
            **settings,
        )
    start = 1 if is_seq2seq else longest
    return [until_end(row[start:]) for row in out.tolist()]


def until_end(row: list[int]) -> list[int]:
    place = next((place for place, token in enumerate(row) if token in ENDS), len(row))
    return row[: place + 1]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_greedy(case, tmp_path):
    theirs, ours = both(case, tmp_path)
    prompts = prompts_for(theirs, case.seed)
    for penalty in (1.0, 3.0):  # the penalty makes texts that do not repeat themselves
        expected = written_by(theirs, prompts, max_new_tokens=12, num_beams=1, repetition_penalty=penalty)
        how = {"max_new_tokens": 12, "banned": [PAD], "repetition_penalty": penalty}
        assert ours.generate(prompts, **how) == expected
        assert [ours.generate(row, **how) for row in prompts] == expected
    assert len({token for row in expected for token in row}) > 3


@pytest.mark.parametrize("early", [False, True, "never"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_beam_search(case, early, tmp_path):
    theirs, ours = both(case, tmp_path)
    prompts = prompts_for(theirs, case.seed)
    for beams, penalty, repetition in ((2, 1.0, 1.0), (3, -0.5, 3.0), (4, 0.0, 2.0), (5, 2.0, 1.0)):
        length = {"length_penalty": penalty, "repetition_penalty": repetition, "early_stopping": early}
        expected = written_by(theirs, prompts, max_new_tokens=10, num_beams=beams, num_return_sequences=beams, **length)
        written = ours.generate(prompts, max_new_tokens=10, beams=beams, n=beams, banned=[PAD], **length)
        assert [answer for answers in written for answer in answers] == expected, (beams, penalty)


def test_the_comparison_is_of_texts_that_end_and_of_some_that_do_not(tmp_path):
    lengths = set()
    for number, case in enumerate(CASES[::4]):
        theirs, ours = both(case, tmp_path / str(number))
        answers = ours.generate(prompts_for(theirs, case.seed), max_new_tokens=10, beams=4, n=4, repetition_penalty=2.0)
        lengths |= {len(answer) for row in answers for answer in row}
    assert 10 in lengths
    assert len(lengths) > 3
