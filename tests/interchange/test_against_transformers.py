"""The same numbers as transformers: every family, every head, random shapes, unequal lengths, both directions."""

import numpy as np
import pytest
import torch
import transformers

import oracle
import weft
from weft.interchange.folder import DIALECTS
from weft.interchange.weight_map import plan
from weft.model.packed import pack


def answers(output, kind: str, lengths: list[int]) -> list[np.ndarray]:
    """transformers' output in the shape of weft's `logits`."""
    match kind:
        case "next-sentence":
            scores = output.get("seq_relationship_logits")
            return list((output.logits if scores is None else scores).detach().numpy())
        case "masked" if "prediction_logits" in output:
            return oracle.rows(output.prediction_logits, lengths)
        case "sequence":
            return list(output.logits.detach().numpy())
        case "span":
            return oracle.rows(torch.stack([output.start_logits, output.end_logits], -1), lengths)
    return oracle.rows(output.logits, lengths)


def inputs(model, seed: int):
    """Sources, targets and segments for this model."""
    end = 1 if type(model).__name__.startswith("T5") else 9  # where T5 reads a sequence's label
    sources = oracle.sequences(model.config.vocab_size, seed, end=end)
    is_seq2seq = type(model).__name__ in ("T5ForConditionalGeneration", "T5Model", "MarianMTModel", "MarianModel")
    targets = oracle.sequences(model.config.vocab_size, seed + 100) if is_seq2seq else None
    segments = None
    if "Bert" in type(model).__name__ and getattr(model.config, "type_vocab_size", 0) > 1:
        segments = [[int(i > len(row) // 2) for i in range(len(row))] for row in sources]
    return sources, targets, segments


def close(ours: list[np.ndarray], theirs: list[np.ndarray], within: float = 1e-4) -> None:
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, atol=within, rtol=0)


@pytest.mark.parametrize("case", oracle.CASES, ids=str)
def test_a_folder_of_transformers_gives_the_same_numbers_and_gradients(case, tmp_path):
    theirs = oracle.build(case)
    ours = weft.load(oracle.save(theirs, tmp_path / "model"))
    sources, targets, segments = inputs(theirs, case.seed)
    output = oracle.run(theirs, sources, targets, segments)
    lengths = [len(row) for row in targets or sources]

    for kind in ours.network.heads:
        if kind != "pooler":
            expected = answers(output, kind, lengths)
            assert max(np.abs(row).max() for row in expected) > 0.1  # the comparison is not of zeros
            if kind == "next-sentence":
                hidden = ours.network(batch := pack(sources, segments))
                close(list(ours.network.heads[kind](hidden, batch).detach().numpy()), expected)
            else:
                close(ours.logits(sources, targets, segments=segments), expected)
    if "last_hidden_state" in output:
        close(ours.hidden(sources, targets, segments=segments), oracle.rows(output.last_hidden_state, lengths))
    if output.get("pooler_output") is not None:
        hidden = ours.network(batch := pack(sources, segments))
        close(
            list(ours.network.heads["pooler"](hidden, batch).detach().numpy()),
            list(output.pooler_output.detach().numpy()),
        )
    compare_gradients(ours, theirs, output, sources, targets, segments)


def compare_gradients(ours, theirs, output, sources, targets, segments):
    """A random weighting of every output is the loss; its gradient must be the same in every parameter."""
    batch, target = pack(sources, segments), None if targets is None else pack(targets)
    if targets is None and ours.network.architecture.is_encoder_decoder:
        target = pack([[0, *row[:-1]] for row in sources])
    hidden = ours.network(batch, target)
    lengths = [len(row) for row in targets or sources]
    pairs = []
    for kind, head in ours.network.heads.items():
        mine = head(hidden, target or batch)
        their = {
            "next-sentence": output.get("seq_relationship_logits", output.get("logits")),
            "masked": output.get("prediction_logits", output.get("logits")),
            "pooler": output.get("pooler_output"),
            "span": torch.stack([output.start_logits, output.end_logits], -1) if "start_logits" in output else None,
        }.get(kind, output.get("logits"))
        flat = their if head.spec.pool != "every" else torch.cat([their[i, :n] for i, n in enumerate(lengths)])
        pairs.append((mine, flat))
    if not pairs:
        flat = torch.cat([output.last_hidden_state[i, :n] for i, n in enumerate(lengths)])
        pairs.append((hidden, flat))
    weights = [torch.randn(mine.shape, generator=torch.Generator().manual_seed(7)) for mine, _ in pairs]
    sum((mine * w).sum() for (mine, _), w in zip(pairs, weights, strict=True)).backward()
    sum((their * w).sum() for (_, their), w in zip(pairs, weights, strict=True)).backward()

    expected = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    dialect = DIALECTS[theirs.config.model_type]
    head = ours.description.head
    links = dialect.links(ours.network.architecture, dialect.prefix(head))
    for entry in plan(ours.network, links).entries:
        parameter = ours.network.get_parameter(entry.ours)
        if not parameter.requires_grad:
            continue
        grads = [expected[name] for name in entry.theirs]
        if parameter.grad is None or any(grad is None for grad in grads):  # not reached, in either
            assert parameter.grad is None or parameter.grad.abs().max() == 0
            assert all(grad is None or grad.abs().max() == 0 for grad in grads)
            continue
        wanted = entry.join(grads, parameter.shape)
        if entry.ours == "embed.tokens.weight" and theirs.config.pad_token_id is not None:
            wanted[theirs.config.pad_token_id] = parameter.grad[theirs.config.pad_token_id]  # transformers freezes it
        error = (parameter.grad - wanted).norm() / wanted.norm().clamp(min=1e-6)
        assert error < 1e-3, (entry.ours, float(error))


@pytest.mark.parametrize("case", oracle.CASES, ids=str)
def test_a_folder_of_weft_opens_in_transformers_without_a_missing_or_unexpected_key(case, tmp_path):
    first = oracle.build(case)
    ours = weft.load(oracle.save(first, tmp_path / "theirs"))
    ours.save(tmp_path / "ours")
    cls = getattr(transformers, case.class_name)
    theirs, report = cls.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    sources, targets, segments = inputs(first, case.seed)
    with torch.no_grad():
        before = oracle.run(first, sources, targets, segments)
        after = oracle.run(theirs.eval(), sources, targets, segments)
    for name, value in before.items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(after[name], value, atol=1e-6, rtol=1e-5)


FRESH = [
    ("bert", {}), ("bert", {"tied": False}), ("roberta", {"pad": 3}), ("distilbert", {}), ("gpt2", {"tied": False}),
    ("t5", {}), ("t5", {"gated": True, "activation": "gelu-tanh", "tied": False, "output_scaled": False}),
    ("transformer", {}), ("transformer", {"decoder_layers": 1, "activation": "silu"}),
    ("llama", {"key_value_heads": 2}), ("llama", {"tied": True, "attention_bias": True, "feedforward_bias": True}),
    ("qwen3", {"head_width": 6, "key_value_heads": 1}), ("modernbert", {"window": 4, "layers": 3}),
]  # fmt: skip


@pytest.mark.parametrize(("family", "knobs"), FRESH, ids=str)
def test_a_fresh_model_of_weft_opens_in_transformers_with_the_same_numbers(family, knobs, tmp_path):
    shape = {"vocabulary": 60, "layers": 2, "width": 32, "heads": 4, **knobs}
    ours = weft.create(family, seed=3, **shape)
    assert ours.save(tmp_path) == {"transformer": "marian"}.get(family, family)
    name = weft.interchange.folder.read_model_config(tmp_path)["architectures"][0]
    theirs, report = getattr(transformers, name).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    sources, targets, _ = inputs(theirs, 1)
    with torch.no_grad():
        output = oracle.run(theirs.eval(), sources, targets)
    close(ours.logits(sources, targets), oracle.rows(output.logits, [len(row) for row in targets or sources]))
    again = weft.load(tmp_path)
    for name, parameter in ours.network.named_parameters():
        assert torch.equal(parameter, again.network.get_parameter(name)), name
