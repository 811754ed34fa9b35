"""Generation with the same weights: weft, `transformers.generate` and `ctranslate2`, taking turns.

    python benchmarks/generate.py [--rounds 7] [--quick]

A GPT-2 of 6 layers, 384 wide, 16,000 tokens, random weights; prompts of 16 to 64 tokens, 128 new ones, no end token.
Batch 1, batch 16 with prompts of different lengths, beam search with 4 beams; fp32 and int8. Beside each is the
limit set by memory bandwidth, in tokens per second: each step reads every weight once (keys and values not counted).
"""

import argparse
import json
import random
import statistics
import tempfile
import time
import warnings
from pathlib import Path

import ctranslate2
import tokenizers
import torch
import transformers
from ctranslate2.converters import TransformersConverter

import weft
from contest import race, report

LAYERS, WIDTH, VOCABULARY, NEW = 6, 384, 16_000, 128


def write_folder(folder: Path) -> Path:
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=LAYERS, n_head=WIDTH // 64, n_positions=256,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(3.0)  # so that the text is not one repeated token
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    model.save_pretrained(folder)
    words = {f"t{number}": number for number in range(VOCABULARY)}
    engine = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="t0"))
    engine.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=engine, unk_token="t0", bos_token="t0", eos_token="t0"
    ).save_pretrained(folder)
    return folder


def bandwidth(seconds: float = 1.0) -> float:
    """Memory bandwidth in bytes per second, from the sum of an array larger than any cache."""
    numbers = torch.ones(2**26)
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        numbers.sum()
        best = min(best, time.perf_counter() - began)
    return numbers.numel() * 4 / best


def prompts_of(count: int) -> list[list[int]]:
    chance = random.Random(count)
    return [[chance.randrange(1, VOCABULARY) for _ in range(chance.randint(16, 64))] for _ in range(count)]


def with_transformers(model, prompts: list[list[int]], beams: int) -> list[list[int]]:
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(row)) + row for row in prompts])
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in prompts])
    out = model.generate(ids, attention_mask=mask, max_new_tokens=NEW, do_sample=False, num_beams=beams)
    return out[:, longest:].tolist()


def with_ctranslate2(model: ctranslate2.Generator, prompts: list[list[int]], beams: int) -> list[list[int]]:
    results = model.generate_batch(
        [[f"t{token}" for token in row] for row in prompts],
        max_length=NEW, min_length=NEW, beam_size=beams, sampling_topk=1, include_prompt_in_result=False,
    )  # fmt: skip
    return [row.sequences_ids[0] for row in results]


def with_weft(model: weft.Model, prompts: list[list[int]], beams: int, int8: bool) -> list[list[int]]:
    how = {"beams": beams} if beams > 1 else {}
    return model.generate(prompts, max_new_tokens=NEW, int8=int8, **how)


def weights_per_step(model: weft.Model, int8: bool) -> int:
    """Bytes of all matrices that a step reads."""
    matrices = [m.weight.numel() for m in model.network.modules() if isinstance(m, torch.nn.Linear)]
    return sum(matrices) * (1 if int8 else 4)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--data", help="ignored; all benchmarks accept it")
    options = parser.parse_args()
    rounds = 1 if options.quick else options.rounds
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as place:
        folder = write_folder(Path(place) / "model")
        theirs = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
        ours = weft.load(folder)
        engines = {}
        for kind in ("float32", "int8"):
            TransformersConverter(str(folder)).convert(f"{place}/{kind}", quantization=kind)
            engines[kind] = ctranslate2.Generator(
                f"{place}/{kind}",
                device="cpu",
                compute_type=kind,
                inter_threads=1,
                intra_threads=torch.get_num_threads(),
            )
        speed = bandwidth()
        print(json.dumps({"memory bandwidth, GB/s": round(speed / 1e9, 1)}).replace("{", "#"), flush=True)

        def contest(name: str, peer: str, least: float, count: int, beams: int = 1, int8: bool = False) -> None:
            prompts = prompts_of(count)
            others = {
                "transformers": lambda: with_transformers(theirs, prompts, beams),
                "ctranslate2": lambda: with_ctranslate2(engines["int8" if int8 else "float32"], prompts, beams),
            }
            same = statistics.mean(
                a == b for a, b in zip(with_weft(ours, prompts, beams, int8), others[peer](), strict=True)
            )
            runs = {"weft": lambda: with_weft(ours, prompts, beams, int8), peer: others[peer]}
            rates = race(runs, rounds=rounds, work=count * NEW)
            limit = speed / weights_per_step(ours, int8) * count
            report(name, rates, peer, least, memory_limit=round(limit), same_texts=round(same, 2))

        with torch.inference_mode():
            contest("writing, batch 1", "transformers", 2.0, 1)
            contest("writing, batch 16, unequal prompts", "transformers", 2.0, 16)
            contest("writing, 4 beams", "transformers", 3.0, 1, beams=4)
            contest("writing, batch 1", "ctranslate2", 1.0, 1)
            contest("writing, batch 16, unequal prompts", "ctranslate2", 1.0, 16)
            contest("writing, 4 beams", "ctranslate2", 1.0, 1, beams=4)
            contest("writing, batch 1, int8", "ctranslate2", 1.0, 1, int8=True)
            contest("writing, batch 16, int8, unequal prompts", "ctranslate2", 1.0, 16, int8=True)


if __name__ == "__main__":
    main()
