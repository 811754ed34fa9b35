"""MiniLM from token ids to hidden states: weft in fp32, bf16 and int8 against engines people pick, two threads each.

    python benchmarks/infer_vs_engines.py [--data ../shared/data] [--rounds 5] [--quick]

1. SST-2 sentences.   2. 20 Newsgroups messages cut at 256 tokens.   3. One sentence of 16 tokens.

Peers at their best practice: texts sorted by length, batches of 32 padded to the longest. ONNX Runtime runs the graph
that its own optimizer has fused (attention, embeddings, GELU with bias, norms), in int8 after its dynamic quantization
per channel. OpenVINO runs in fp32, in bf16 by its hint, and in int8 after NNCF's quantization for transformers,
calibrated on sentences. weft takes flat batches of at most 8,192 tokens. `share_of_peak`: of the machine's fastest
products, for the multiply-adds of the layers' matrices. `cosine`: mean of hidden states with transformers' in fp32.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from contest import race, report
from forward_vs_transformers import MINILM, messages, sentences
from weft.inference.compiled_forward import compile_forward
from weft.interchange.folder import read_model
from weft.model.packed import group_by_tokens, order_by_length, pack

THREADS = 2
BATCH = 32
WEFT_TOKENS = 8192  # of a flat batch, as weft.Model takes them
LAYER_WEIGHTS = 6 * 12 * 384 * 384
LEAST_COSINE = 0.995
Forward = Callable[[np.ndarray, np.ndarray], np.ndarray]  # ids and mask (rows, length) -> hidden states
Engine = tuple[str, str]  # name, precision

# Ratios that weft must reach on many texts, by precision and peer. One sentence: 1.
WANTED: dict[Engine, float] = {
    ("ONNX Runtime", "fp32"): 1.0,
    ("OpenVINO", "fp32"): 1.0,
    ("OpenVINO", "bf16"): 1.0,
    ("ONNX Runtime", "int8"): 1.3,
    ("OpenVINO", "int8"): 1.0,
    ("transformers", "fp32"): 1.0,
}


def weft_runs(sequences: list[list[int]]) -> dict[str, Callable[[], list[np.ndarray]]]:
    """By precision: hidden states of each sequence, in the order given."""
    order = order_by_length(sequences)
    groups = group_by_tokens([len(sequences[index]) for index in order], WEFT_TOKENS)

    def run(network: Any) -> list[np.ndarray]:
        results: list[np.ndarray] = [np.empty(0)] * len(sequences)
        with torch.inference_mode():
            for group in groups:
                picked = [order[place] for place in group]
                batch = pack([sequences[index] for index in picked])
                for index, part in zip(picked, batch.split(network(batch)), strict=True):
                    results[index] = part.numpy()
        return results

    found = {}
    for precision in ("fp32", "bf16", "int8"):
        network, _ = read_model(MINILM)
        compile_forward(network.eval(), precision)
        found[precision] = lambda network=network: run(network)
    return found


def padded_run(forward: Forward, sequences: list[list[int]]) -> Callable[[], list[np.ndarray]]:
    """Sorted, in batches of 32, padded to the longest."""
    order = order_by_length(sequences)

    def run() -> list[np.ndarray]:
        results: list[np.ndarray] = [np.empty(0)] * len(sequences)
        for start in range(0, len(order), BATCH):
            picked = order[start : start + BATCH]
            longest = max(len(sequences[index]) for index in picked)
            ids, mask = (np.zeros((len(picked), longest), np.int64) for _ in range(2))
            for row, index in enumerate(picked):
                ids[row, : len(sequences[index])], mask[row, : len(sequences[index])] = sequences[index], 1
            hidden = forward(ids, mask)
            for row, index in enumerate(picked):
                results[index] = hidden[row, : len(sequences[index])]
        return results

    return run


class Hidden(torch.nn.Module):
    """Without the pooler, which nobody asks for here."""

    def __init__(self) -> None:
        super().__init__()
        self.model = transformers.AutoModel.from_pretrained(MINILM, attn_implementation="eager").eval()

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


def exported(folder: Path) -> Path:
    names, sizes = ["input_ids", "attention_mask"], {0: "rows", 1: "length"}
    example = torch.ones(2, 8, dtype=torch.long)
    path = folder / "model.onnx"
    torch.onnx.export(
        Hidden(), (example, example), str(path), input_names=names, output_names=["hidden"], opset_version=17,
        dynamic_axes=dict.fromkeys([*names, "hidden"], sizes), dynamo=False,
    )  # fmt: skip
    return path


def onnx_runtime(path: Path) -> dict[str, Forward]:
    import onnx
    import onnxruntime
    from onnxruntime.quantization import quantize_dynamic
    from onnxruntime.transformers import optimizer

    fused = optimizer.optimize_model(str(path), model_type="bert", num_heads=12, hidden_size=384)
    assert fused.get_fused_operator_statistics()["Attention"] == 6
    files = {precision: str(path.with_name(f"fused-{precision}.onnx")) for precision in ("fp32", "int8")}
    fused.save_model_to_file(files["fp32"])
    unknown = {"DefaultTensorType": onnx.TensorProto.FLOAT}  # of what the fused operators return
    quantize_dynamic(files["fp32"], files["int8"], per_channel=True, extra_options=unknown)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = THREADS, 3

    def session(file: str) -> Forward:
        graph = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        return lambda ids, mask: graph.run(None, {"input_ids": ids, "attention_mask": mask})[0]

    return {precision: session(file) for precision, file in files.items()}


def openvino(path: Path, calibration: list[list[int]]) -> dict[str, Forward]:
    import nncf
    import openvino as engine

    core, plain = engine.Core(), engine.convert_model(str(path))
    feeds = [{"input_ids": np.array([row]), "attention_mask": np.ones((1, len(row)), np.int64)} for row in calibration]
    small = nncf.quantize(
        plain, nncf.Dataset(feeds), model_type=nncf.ModelType.TRANSFORMER, subset_size=len(calibration)
    )

    def compiled(model: Any, precision: str) -> Forward:
        settings = {"INFERENCE_NUM_THREADS": THREADS, "PERFORMANCE_HINT": "LATENCY"}
        run = core.compile_model(
            model, "CPU", {**settings, "INFERENCE_PRECISION_HINT": precision}
        ).create_infer_request()
        return lambda ids, mask: run.infer({"input_ids": ids, "attention_mask": mask})[0]

    return {"fp32": compiled(plain, "f32"), "bf16": compiled(plain, "bf16"), "int8": compiled(small, "f32")}


def peers(folder: Path, calibration: list[list[int]]) -> dict[Engine, Forward]:
    hidden = Hidden()

    def torch_forward(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return hidden(torch.from_numpy(ids), torch.from_numpy(mask)).numpy()

    hidden.model.set_attn_implementation("sdpa")
    found: dict[Engine, Forward] = {("transformers", "fp32"): torch_forward}
    path = exported(folder)
    found |= {("ONNX Runtime", precision): one for precision, one in onnx_runtime(path).items()}
    return found | {("OpenVINO", precision): one for precision, one in openvino(path, calibration).items()}


def register_peak() -> dict[str, float]:
    """Multiply-adds per second of the fastest fp32 product; in bf16 an instruction makes two of each, in int8 four."""
    n = 1024
    a, b = torch.randn(n, n), torch.randn(n, n)
    best = min(_seconds(lambda: a @ b) for _ in range(30))
    return {"fp32": n**3 / best, "bf16": 2 * n**3 / best, "int8": 4 * n**3 / best}


def bandwidth() -> float:
    """Bytes per second that a sum over 256 MB reads."""
    numbers = torch.zeros(2**26)
    return 4 * 2**26 / min(_seconds(numbers.sum) for _ in range(5))


def _seconds(run: Callable[[], Any]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def mean_cosine(found: list[np.ndarray], expected: list[np.ndarray]) -> float:
    a, b = (torch.from_numpy(np.concatenate(rows)) for rows in (found, expected))
    return torch.nn.functional.cosine_similarity(a, b).mean().item()


def contest(what: str, sequences: list[list[int]], engines: dict[Engine, Forward], rounds: int, repeat: int) -> None:
    """Everybody takes turns, `repeat` times the texts at a turn. weft's numbers must be near those of transformers."""
    ours = weft_runs(sequences)
    runs = {("weft", precision): run for precision, run in ours.items()}
    runs |= {engine: padded_run(forward, sequences) for engine, forward in engines.items()}
    expected = runs["transformers", "fp32"]()
    cosines = {name: mean_cosine(run(), expected) for name, run in runs.items()}
    tokens = sum(map(len, sequences))
    turns = {name: lambda run=run: [run() for _ in range(repeat)] for name, run in runs.items()}
    rates = race(turns, rounds=rounds, work=tokens * repeat)
    peak, bytes_read = register_peak(), bandwidth()
    for (name, precision), wanted in WANTED.items():
        mine = statistics.median(rates["weft", precision])
        weights = LAYER_WEIGHTS * {"fp32": 4, "bf16": 2, "int8": 1}[precision]
        assert cosines["weft", precision] >= LEAST_COSINE, cosines
        report(
            f"{what}, {precision}", {"weft": rates["weft", precision], name: rates[name, precision]}, name,
            wanted if len(sequences) > 1 else 1.0,
            milliseconds=[round(1e3 * tokens / statistics.median(rates[who, precision]), 2) for who in ("weft", name)],
            share_of_peak=round(mine * LAYER_WEIGHTS / peak[precision], 2),
            share_of_bandwidth=round(weights * mine / tokens / bytes_read, 2) if len(sequences) == 1 else None,
            cosine=[round(cosines[who, precision], 4) for who in ("weft", name)],
        )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared/data")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="little data, one round: whether it runs")
    arguments = parser.parse_args()
    rounds, part = (1, 20) if arguments.quick else (arguments.rounds, 2)
    torch.set_num_threads(THREADS)
    short, long = sentences(arguments.data, part), messages(arguments.data, 2 * part)
    single = [next(row for row in short if len(row) >= 16)[:15] + short[0][-1:]]
    with tempfile.TemporaryDirectory() as folder:
        engines = peers(Path(folder), short[:: max(1, len(short) // 100)])
        contest("MiniLM on SST-2", short, engines, rounds, 1)
        contest("MiniLM on newsgroups", long, engines, rounds, 1)
        contest("MiniLM on one sentence", single, engines, rounds, 2 if arguments.quick else 30)


if __name__ == "__main__":
    main()
