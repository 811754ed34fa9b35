"""A short program that uses an export: the code block of its README. It needs ctranslate2 and tokenizers, and numpy and
safetensors for encoders.

The parts of a program are texts with $names to fill in. Which parts there are depends on the kind of model, its head
and its task.
"""

import inspect
import json
from collections.abc import Callable, Mapping
from string import Template
from typing import Any

from weft.api.model import Model
from weft.exports.ctranslate2.head_recipe import head_logits
from weft.exports.ctranslate2.vocabulary import TokenStrings
from weft.generate.framing import Framing
from weft.generate.settings import DEFAULT_NEW_TOKENS
from weft.metrics.thresholds import PLAIN_THRESHOLD
from weft.tasks.crf import viterbi
from weft.tasks.tag import INTENT_PREFIX

_PROMPTS = ("Once upon a time", "Once", "从前", "a")  # the first that the tokenizer knows
_LONGEST = 512  # tokens of an input

_TOKENIZER = """
folder = Path(".")  # with this README
tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
tokenizer.no_padding()
$truncation
"""
_DECODER = """
generator = ctranslate2.Generator(str(folder))
vocabulary = json.loads((folder / "vocabulary.json").read_text("utf-8"))

$ids
result = generator.generate_batch(
    [[vocabulary[number] for number in ids]],
    max_length=$new,
    include_prompt_in_result=False,
    end_token=$ends,
)[0]
print($answer)
"""
_ENCODER_DECODER = """
translator = ctranslate2.Translator(str(folder))
vocabulary = json.loads((folder / "shared_vocabulary.json").read_text("utf-8"))
numbers = {token: number for number, token in enumerate(vocabulary)}

$ids
result = translator.translate_batch(
    [[vocabulary[number] for number in ids]],
    beam_size=1,
    max_decoding_length=$new,
    min_decoding_length=0,
    end_token=$ends,
)[0]
found = [numbers[token] for token in result.hypotheses[0]]
print($answer)
"""
_ENCODER = """
encoder = ctranslate2.Encoder(str(folder))
"""
_HEADS = """heads = {head["name"]: head for head in json.loads((folder / "heads.json").read_text("utf-8"))}
arrays = safetensors.numpy.load_file(folder / "heads.safetensors")
weights = {name: array.astype(np.float32) for name, array in arrays.items()}
"""
_INPUT = """encoding = tokenizer.encode($text)
output = encoder.forward_batch([encoding.ids]$segments)
"""
_HEAD_INPUT = """head = heads["$head"]
x = np.array(getattr(output, head["input"]))[0]
"""
_NUMBERS = """
output = encoder.forward_batch([$numbers])  # this model has no tokenizer
for head in heads.values():
    print(head["name"], head_logits(np.array(getattr(output, head["input"]))[0], head, weights))
"""
_VECTOR = """
$input
hidden = np.array(output.last_hidden_state)[0]
vector = $pool
$normalize
print(vector.tolist())
"""
_MASKED = """
text = $text
$input
$head_input
rows = [row for row, token in enumerate(encoding.tokens) if token == $mask]
for logits in head_logits(x[rows], head, weights):
    print([tokenizer.id_to_token(number) for number in np.argsort(-logits)[:5].tolist()])
"""
_LABEL = """
$input
$head_input
logits = head_logits(x, head, weights)
probabilities = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
best = int(probabilities.argmax())
print($labels, float(probabilities[best]))
"""
_LABELS = """
$input
$head_input
probabilities = 1 / (1 + np.exp(-head_logits(x, head, weights)))
thresholds = $thresholds
print([label for label, share, threshold in zip(head["labels"], probabilities, thresholds) if share > threshold])
"""
_NUMBER = """
$input
$head_input
print(float(head_logits(x, head, weights)[0]))
"""
_TAGS = """
words = "Alice lives in New York".split()
encoding = tokenizer.encode($words, is_pretokenized=True)
output = encoder.forward_batch([encoding.ids])
$head_input
first = {}  # word -> its first token
for row, word in enumerate(encoding.word_ids):
    if word is not None:
        first.setdefault(word, row)
logits = head_logits(x, head, weights)
$tags
print([(words[word], head["labels"][tag]) for word, tag in zip(first, tags)])
"""
_INTENT = """slots = [not label.startswith("$prefix") for label in head["labels"]]
tags = np.where(slots, logits, -np.inf)[list(first.values())].argmax(-1).tolist()
print(head["labels"][int(np.where(slots, -np.inf, logits)[0].argmax())])"""
_SPAN = """
question, context = "Who sat on the mat?", "The cat sat on the mat while the dog slept."
$input
$head_input
begins, ends = head_logits(x, head, weights).T
inside = [row for row, side in enumerate(encoding.sequence_ids) if side == 1]
spans = [(begins[a] + ends[b], a, b) for a in inside for b in inside if a <= b < a + 30]
score, begin, end = max(spans)
$nothing
print(context[encoding.offsets[begin][0] : encoding.offsets[end][1]].strip())
"""
_NO_ANSWER = "if begins[0] + ends[0] > score:\n    raise SystemExit  # the context has no answer"


def usage_code(model: Model, strings: TokenStrings) -> str:
    """The program. Its last lines print an answer."""
    architecture = model.network.architecture
    if architecture.decoder is None:
        return _encoder_code(model)
    template = _DECODER if architecture.encoder is None else _ENCODER_DECODER
    ids, count = _prompt_code(model)
    written = "result.sequences_ids[0]" if architecture.encoder is None else "found"
    limit = model.longest
    # The last token is written without being read.
    room = DEFAULT_NEW_TOKENS if limit is None else limit - (count if architecture.encoder is None else 1) + 1
    values = {
        "ids": ids,
        "new": max(1, min(DEFAULT_NEW_TOKENS, room)),
        "ends": json.dumps(list(strings.ends), ensure_ascii=False),
        "answer": written if model.own_tokenizer is None else f"tokenizer.decode({written})",
    }
    imports = ["json", "ctranslate2", "tokenizers"]
    return _program(model, imports, _filled(template, values), "tokenizer.no_truncation()")


def _prompt_code(model: Model) -> tuple[str, int]:
    """Code for the token ids of a prompt, framed as in training, and how many there are."""
    if model.own_tokenizer is None:
        ids = _some_ids(model)
        return f"ids = {ids}  # this model has no tokenizer", len(ids)
    engine, ends = model.own_tokenizer.engine, model.start_end.end_ids
    framing, has_source = Framing.of(model.facts.get("task")), model.network.architecture.is_encoder_decoder
    unknown = model.own_tokenizer.id_of("unk")
    known = (text for text in _PROMPTS if unknown not in engine.encode(text, add_special_tokens=False).ids)
    text = next(known, _PROMPTS[0])
    source = json.dumps(text, ensure_ascii=False)
    if framing is not None and framing.prefix:
        source = f"{json.dumps(framing.prefix, ensure_ascii=False)} + {source}"
        text = framing.source(text)
    ids = engine.encode(text).ids
    code = f"ids = tokenizer.encode({source}).ids"
    if not has_source:
        closing = _closing(ids, ends) if ends else 0
        code += f"[:-{closing}]" if closing else ""
        ids = ids[: len(ids) - closing]
        if framing is not None and ends:
            separator = framing.separator_ids(engine, ends[0])
            code += f" + {separator}  # the separator before the answer"
            ids = ids + separator
    return code, len(ids)


def _some_ids(model: Model) -> list[int]:
    return [number for number in (1, 2, 3) if number < model.network.architecture.vocabulary] or [0]


def _closing(ids: list[int], ends: tuple[int, ...]) -> int:
    """How many end tokens the tokenizer puts after a text. A prompt that is continued must not have them."""
    count = 0
    while count < len(ids) - 1 and ids[-1 - count] in ends:
        count += 1
    return count


def _encoder_code(model: Model) -> str:
    heads = [kind for kind in model.network.heads if model.network.head(kind).out is not None]
    imports = ["json", "math", "ctranslate2", "numpy as np", "safetensors.numpy", "tokenizers"]
    if not heads:
        imports = ["ctranslate2", "numpy as np", "tokenizers"]
        return _program(model, imports, _ENCODER + _filled(_VECTOR, _vector_values(model)), _truncation(model))
    functions: list[Callable[..., Any]] = [head_logits, *([viterbi] if getattr(model.task, "crf", False) else [])]
    recipe = "".join(f"\n\n{inspect.getsource(function)}" for function in functions)
    if model.own_tokenizer is None:
        body = _filled(_NUMBERS, {"numbers": _some_ids(model)})
    else:
        body = _filled(*_head_part(model, heads[0]))
    return _program(model, imports, _ENCODER + _HEADS + recipe + "\n" + body, _truncation(model))


def _head_part(model: Model, kind: str) -> tuple[str, dict[str, Any]]:
    """The template for the head, and its values."""
    assert model.own_tokenizer is not None
    task, outputs = model.task, model.network.head(kind).spec.outputs
    reads_pairs = kind == "next-sentence" or (task is not None and "second" in task.roles)
    text = '"A cat sat.", "It slept on the mat."' if reads_pairs else '"This is a good film."'
    values = _input_values(model, text) | {"head_input": _filled(_HEAD_INPUT, {"head": kind})}
    match kind:
        case "masked":
            mask = json.dumps(model.own_tokenizer.special.get("mask", "[MASK]"), ensure_ascii=False)
            text = f'"The cat " + {mask} + " on the mat."'
            return _MASKED, values | _input_values(model, "text") | {"text": text, "mask": mask}
        case "token":
            return _TAGS, values | _tag_values(model)
        case "span":
            nothing = _NO_ANSWER if getattr(task, "with_none", False) else ""
            return _SPAN, values | _input_values(model, "question, context") | {"nothing": nothing}
    if outputs == 1:
        return _NUMBER, values
    if task is not None and task.several:
        threshold = getattr(task, "threshold", PLAIN_THRESHOLD)
        each = list(threshold) if isinstance(threshold, tuple) else [threshold] * outputs
        return _LABELS, values | {"thresholds": each}
    has_labels = kind == "sequence" and len(model.labels) == outputs
    return _LABEL, values | {"labels": 'head["labels"][best]' if has_labels else "best"}


def _tag_values(model: Model) -> dict[str, Any]:
    assert model.own_tokenizer is not None
    spaced = '[words[0], *(" " + word for word in words[1:])]' if model.own_tokenizer.joins_spaces else "words"
    if any(label.startswith(INTENT_PREFIX) for label in model.labels):
        tags = _filled(_INTENT, {"prefix": INTENT_PREFIX})
    elif getattr(model.task, "crf", False):
        scores = ", ".join(f'weights["crf.{name}"]' for name in ("transitions", "start", "end"))
        tags = f"tags = viterbi(logits[list(first.values())], {scores})"
    else:
        tags = "tags = logits[list(first.values())].argmax(-1).tolist()"
    return {"words": spaced, "tags": tags}


def _vector_values(model: Model) -> dict[str, Any]:
    pools = {"mean": "hidden.mean(0)", "first": "hidden[0]", "last": "hidden[-1]"}
    normalize = "vector = vector / np.linalg.norm(vector)" if model.pooling.normalize else ""
    return {
        **_input_values(model, '"This is a good film."'),
        "pool": pools[model.pooling.kind],
        "normalize": normalize,
    }


def _input_values(model: Model, text: str) -> dict[str, str]:
    if model.own_tokenizer is None:
        return {"input": f"output = encoder.forward_batch([{_some_ids(model)}])  # this model has no tokenizer"}
    segmented = model.network.architecture.embedding.segments > 1
    segments = ", token_type_ids=[encoding.type_ids]" if segmented else ""
    return {"input": _filled(_INPUT, {"text": text, "segments": segments})}


def _truncation(model: Model) -> str:
    task = model.facts.get("task")
    wanted = task.get("sequence_length") if isinstance(task, Mapping) else None
    limits = [limit for limit in (wanted, model.longest, model.pooling.most_tokens, _LONGEST) if limit]
    return f"tokenizer.enable_truncation({min(limits)})"


def _program(model: Model, imports: list[str], body: str, truncation: str) -> str:
    if model.own_tokenizer is None:
        imports = [name for name in imports if name != "tokenizers"]
        opening = '\nfolder = Path(".")  # with this README\n'
    else:
        opening = _filled(_TOKENIZER, {"truncation": truncation})
    own = [f"import {name}" for name in imports if name in ("json", "math")]
    own += ["from pathlib import Path", *(["from typing import Any"] if "math" in imports else [])]
    others = [f"import {name}" for name in imports if name not in ("json", "math")]
    lines = [*own, "", *others]
    whole = "\n".join(lines) + "\n" + opening.rstrip("\n") + "\n" + body.lstrip("\n")
    return _tidy(whole)


def _filled(template: str, values: Mapping[str, Any]) -> str:
    """A line with nothing but an empty value is left out."""
    for key in (key for key, value in values.items() if value == ""):
        template = template.replace(f"\n${key}\n", "\n")
    return Template(template).substitute({key: str(value).strip("\n") for key, value in values.items()})


def _tidy(code: str) -> str:
    """At most two empty lines in a row."""
    lines: list[str] = []
    for line in code.splitlines():
        if line or (lines and lines[-2:] != ["", ""]):
            lines.append(line)
    return "\n".join(lines).rstrip("\n") + "\n"
