"""The verbs of a model in Python: load, create, save; logits, hidden, embed, fill, predict; generate, stream, score,
choose.

What reads goes through one path: texts or ids -> batches of at most `BATCH_TOKENS` tokens, sorted by length so that
attention finds long runs of equal lengths -> network -> one array per sequence, in the order given.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from weft.errors import FolderError, InputError
from weft.folders import known_facts
from weft.generate.framing import Framing
from weft.generate.prepare import for_reading, prepared
from weft.generate.prompts import PromptReader
from weft.generate.scorer import Normalize, Scorer
from weft.generate.start_end_tokens import StartEndTokens, read_start_end_tokens
from weft.generate.writer import Writer
from weft.interchange.folder import OWN_FORMAT, Description, read_model, save_format, write_model
from weft.interchange.pooling import Pooling, read_pooling
from weft.model.families import design
from weft.model.heads import mean_of_each
from weft.model.network import Network, count_parameters
from weft.model.network import create as create_network
from weft.model.packed import Packed, group_by_tokens, order_by_length, pack
from weft.model.positions import longest
from weft.progress import say
from weft.tokenizer.read import read_tokenizer
from weft.tokenizer.tokenizer import Tokenizer

BATCH_TOKENS = 8192
KEPT = ("recipe", "task", "results")  # of weft.json, in a copy
LANGUAGE_HEADS = ("masked", "causal", "seq2seq")
TASK_HEADS = ("sequence", "token", "span", "next-sentence")

Sequences = Sequence[Sequence[int]]
Prompts = str | Sequence[str] | Sequence[int] | Sequences


class Filled(NamedTuple):
    """One suggestion for a masked word."""

    word: str
    probability: float
    text: str


def load(folder: str | Path) -> "Model":
    """A model from a Hugging Face folder (or weft's own format). Strict: every tensor must have its place."""
    folder = Path(folder)
    network, description = read_model(folder)
    facts = known_facts(folder)
    return Model(network, description, read_tokenizer(folder), read_pooling(folder), facts, folder)


def create(
    family: str,
    size: str | None = None,
    *,
    head: str | None = None,
    labels: int = 2,
    positions: str | int | None = None,
    seed: int = 0,
    tokenizer: Tokenizer | None = None,
    **knobs: Any,
) -> "Model":
    """A model with fresh weights: `create("bert", "mini", vocabulary=8000)`.

    `positions` swaps the family's own way of telling positions for another: learned, sinusoidal, rotary or relative
    (a number only sets how many there are). What no Hugging Face family has is saved in weft's own format
    (`model.format` says which).
    """
    if tokenizer is not None:
        knobs.setdefault("vocabulary", tokenizer.vocabulary)
    chosen, architecture = design(family, size, head=head, labels=labels, positions=positions, **knobs)
    network = create_network(architecture, seed).eval()
    return Model(network, Description(chosen, head or chosen.default_head), tokenizer)


class Model:
    def __init__(
        self,
        network: Network,
        description: Description,
        tokenizer: Tokenizer | None = None,
        pooling: Pooling | None = None,
        facts: dict[str, Any] | None = None,
        folder: Path | None = None,
    ) -> None:
        """`facts`: what its weft.json says; `folder`: where it was read."""
        self.network, self.description, self._tokenizer = network, description, tokenizer
        self.pooling, self.facts, self.folder = pooling or Pooling(), facts or {}, folder

    def __repr__(self) -> str:
        return f"<weft.Model {self.family}, {self.parameters_count:,} parameters, {self.description.head} head>"

    @property
    def family(self) -> str:
        return self.network.architecture.family

    @property
    def parameters_count(self) -> int:
        return count_parameters(self.network)

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    @property
    def labels(self) -> tuple[str, ...]:
        return self.description.labels

    @property
    def format(self) -> str:
        """The `model_type` that `save` writes: a Hugging Face family's, or `weft`."""
        return save_format(self.network, self.description)

    @property
    def longest(self) -> int | None:
        """The longest sequence the model can read; none if there is no limit."""
        return longest(self.network.architecture.embedding.positions)

    @property
    def tokenizer(self) -> Tokenizer:
        if self._tokenizer is None:
            raise FolderError(
                "This model has no tokenizer, so it takes token ids only. Add a tokenizer.json to its folder."
            )
        return self._tokenizer

    @property
    def writes_text(self) -> bool:
        """Whether prompts may be texts; an error if it does not write at all."""
        self._check_writes()
        return self._tokenizer is not None

    def save(self, folder: str | Path) -> str:
        """Write a folder that `weft.load` and `transformers` open; atomic. Returns the format, as `format`."""
        files = {**(self._tokenizer.saved_files() if self._tokenizer else {}), **self.pooling.files, **self._crf()}
        kept = {key: self.facts[key] for key in KEPT if key in self.facts}
        saved_as = write_model(self.network, self._described(), Path(folder), files=files, facts=kept)
        if saved_as == "weft":
            say(f"{folder}: {OWN_FORMAT}")
        return saved_as

    def _crf(self) -> dict[str, bytes]:
        from weft.tasks.crf import CRF_FILE

        file = None if self.folder is None else self.folder / CRF_FILE
        return {CRF_FILE: file.read_bytes()} if file is not None and file.is_file() else {}

    def _described(self) -> Description:
        """With the tokenizer's own ids for the special tokens, where no config said any."""
        if self._tokenizer is None:
            return self.description
        ids = {f"{role}_token_id": self._tokenizer.id_of(role) for role in self._tokenizer.special}
        if self.network.architecture.is_encoder_decoder and "pad_token_id" in ids:
            ids["decoder_start_token_id"] = ids["pad_token_id"]
        return replace(self.description, config={**ids, **self.description.config})

    def logits(
        self, sequences: Sequences, targets: Sequences | None = None, *, segments: Sequences | None = None
    ) -> list[np.ndarray]:
        """The head's raw numbers, an array per sequence.

        Language models: (length, vocabulary), where row i of a causal model scores token i + 1. Encoder–decoders take
        sources and `targets`, the tokens given to the decoder (which begin with its start token). Task heads: (labels,)
        per sequence, (length, labels) per token, (length, 2) for spans.
        """
        kind = self._head_kind((*LANGUAGE_HEADS, *TASK_HEADS))
        if targets is None and self.network.architecture.is_encoder_decoder:
            if kind == "seq2seq":
                raise InputError("An encoder–decoder needs targets as well: model.logits(sources, targets).")
            targets = [[self._start_end.start_id or 0, *sequence[:-1]] for sequence in sequences]
        head = self.network.head(kind)
        return self._run(sequences, targets, segments, head, one_row=head.spec.pool != "every")

    def hidden(
        self, sequences: Sequences, targets: Sequences | None = None, *, segments: Sequences | None = None
    ) -> list[np.ndarray]:
        """The last hidden states, (length, width) per sequence; of the decoder where `targets` are given."""
        return self._run(sequences, targets, segments, lambda hidden, batch: hidden, one_row=False)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """A vector per text, (n, width): the mean of its hidden states, or as the folder's own pooling says.

        Texts longer than the model can read are cut.
        """
        texts = [texts] if isinstance(texts, str) else list(texts)
        if wrong := [text for text in texts if not isinstance(text, str)]:
            raise InputError(f"embed takes texts, not {type(wrong[0]).__name__}.")
        limits = [limit for limit in (self.longest, self.pooling.most_tokens) if limit is not None]
        ids = self.tokenizer.encode_many(texts, min(limits, default=None))
        if empty := [i for i, sequence in enumerate(ids) if not sequence]:
            raise InputError(f"Text {empty[0]} has no tokens, so it has no vector.")
        pick = {"mean": mean_of_each, "first": lambda hidden, batch: hidden[batch.first]}
        pick["last"] = lambda hidden, batch: hidden[batch.last]
        rows = self._run(ids, None, None, pick[self.pooling.kind], one_row=True)
        vectors = np.stack(rows) if rows else np.zeros((0, self.network.width), np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True) if self.pooling.normalize else vectors

    def fill(self, text: str, top: int = 5) -> list[Filled] | list[list[Filled]]:
        """The best words for the mask in `text`, best first; a list per mask if there are several.

        The model's own mask token or `[MASK]` marks the place.
        """
        if not isinstance(text, str):
            raise InputError("fill takes one text at a time.")
        if not isinstance(top, int) or top < 1:
            raise InputError(f"top must be at least 1, not {top}.")
        self._head_kind(("masked",), "fill needs a masked language model")
        mask = self.tokenizer.special.get("mask")
        if mask is None:
            raise InputError("This model's tokenizer has no mask token, so there is nothing to fill.")
        ids = self.tokenizer.encode(text.replace("[MASK]", mask))
        self._check(ids, 0)
        places = [place for place, token in enumerate(ids) if token == self.tokenizer.id_of("mask")]
        if not places:
            raise InputError(f"The text has no {mask} to fill.")
        batch = pack([ids]).to(self.device)
        with torch.inference_mode():
            hidden = self.network(batch)
            scores = self.network.head("masked")(hidden, batch, torch.tensor(places, device=self.device)).softmax(-1)
            best = scores.topk(min(top, scores.shape[-1]))
        filled = [
            [self._filled(ids, place, token, probability) for probability, token in zip(*row, strict=True)]
            for place, *row in zip(places, best.values.tolist(), best.indices.tolist(), strict=True)
        ]
        return filled[0] if len(filled) == 1 else filled

    def _filled(self, ids: list[int], place: int, token: int, probability: float) -> Filled:
        words = [*ids[:place], token, *ids[place + 1 :]]
        word = self.tokenizer.engine.decode([token], skip_special_tokens=False).strip()
        return Filled(word, probability, self.tokenizer.decode(words))

    def predict(self, texts: Any, *, task: str | None = None, details: bool = False) -> Any:
        """What a fine-tuned model says: a dictionary for a text, a list of them for a list.

        A pair, or a question and its context, is a tuple of two texts; words to be tagged are a text or a list of
        words; a dictionary names the parts. `task` says what to do where the model does not know.
        """
        from weft.tasks.judging.evaluation import Subject
        from weft.tasks.judging.predict import is_alone, predict_texts

        subject = Subject.of(self.network, self.description, self.tokenizer, self.facts, task, self.folder)
        alone = is_alone(subject.task, texts)
        answers = predict_texts(subject, [texts] if alone else list(texts), details=details)
        return answers[0] if alone else answers

    def generate(
        self, prompts: Prompts, *, details: bool = False, int8: bool = False, progress: bool = False, **settings: Any
    ) -> Any:
        """What the model writes: `generate("Once upon a time", max_new_tokens=64)`.

        One prompt or a list, texts or lists of token ids; encoder–decoders take sources. Texts come back for texts
        (what is new), ids for ids; a model that was tuned to translate, summarize or reply reads texts framed as in
        training (prefix, separator), ids as they are. With `n` > 1 a list for each prompt, with `details` a
        `Generation` each. `settings` are those of `weft.generate.settings.Settings`: strategy ("greedy", "sample",
        "beam"), max_new_tokens, temperature, top_k, top_p, min_p, seed, beams, n, length_penalty, stop, ... `int8`
        rounds the weights to whole bytes: nearly the same, faster in batches or without a C compiler.
        """
        return self._writer(int8).generate(prompts, details=details, progress=progress, **settings)

    def stream(self, prompt: str | Sequence[int], *, int8: bool = False, **settings: Any) -> Iterator[Any]:
        """As `generate` for one prompt, piece by piece as it is written. A decoder that was tuned to reply also takes
        `history`, pairs of what was said before and its answers, of which it reads the last that fit.
        """
        return self._writer(int8).stream(prompt, **settings)

    def score(self, texts: Prompts, sources: Prompts | None = None) -> Any:
        """How likely texts (or token ids) are: a `Score` each, with perplexity, bits per byte and the log-probability
        of every token. An encoder–decoder scores them as answers to `sources`.
        """
        return self._judge().score(texts, sources)

    def choose(
        self, prompt: str, options: Sequence[str], *, normalize: Normalize = "none", details: bool = False
    ) -> Any:
        """The likeliest of the options to follow the prompt: classification by examples, without training.

        `choose("Review: I loved it.\\nSentiment:", [" positive", " negative"])`. Options of unequal length compare
        better by log-probability per token or byte (`normalize`). With `details` all `Candidate`s, likeliest first.
        """
        return self._judge().choose(prompt, options, normalize=normalize, details=details)

    def _check_writes(self) -> None:
        if not {"causal", "seq2seq"} & set(self.network.heads):
            if "masked" in self.network.heads:
                raise InputError(f"A {self.family} is an encoder, which does not write; try fill.")
            raise InputError(f"This {self.family} has no language-model head, so it does not write.")

    def _writer(self, int8: bool = False) -> Writer:
        self._check_writes()
        if not isinstance(int8, bool):
            raise InputError(f"int8 is true or false, not {int8!r}.")
        return Writer(prepared(self.network, int8=int8), self._reader, self.description.generation)

    def _judge(self) -> Scorer:
        self._check_writes()
        return Scorer(for_reading(self.network), self._reader)

    @property
    def _reader(self) -> PromptReader:
        framing = Framing.of(self.facts.get("task"))
        return PromptReader(self.network.architecture, self._tokenizer, self._start_end, framing)

    def _head_kind(self, wanted: Sequence[str], why: str = "logits need a head") -> str:
        kinds = [kind for kind in self.network.heads if kind in wanted]
        if not kinds:
            has = ", ".join(self.network.heads) or "none"
            raise InputError(f"This {self.family} has no such head ({why}; it has: {has}). Try hidden or embed.")
        return kinds[0]

    @property
    def _start_end(self) -> StartEndTokens:
        architecture = self.network.architecture
        return read_start_end_tokens(
            self._described().config,
            self.description.generation,
            self._tokenizer,
            vocabulary=architecture.vocabulary,
            has_source=architecture.is_encoder_decoder,
        )

    def _run(
        self,
        sequences: Sequences,
        targets: Sequences | None,
        segments: Sequences | None,
        compute: Callable[[Tensor, Packed], Tensor],
        *,
        one_row: bool,
    ) -> list[np.ndarray]:
        if isinstance(sequences, str) or any(isinstance(sequence, str) for sequence in sequences):
            raise InputError("These are texts, not token ids. For text, use embed or fill.")
        for rows in (sequences, () if targets is None else targets):
            for index, sequence in enumerate(rows):
                self._check(sequence, index)
        self._check_beside(sequences, targets, segments)
        results: list[np.ndarray] = [np.empty(0)] * len(sequences)
        with torch.inference_mode():
            for picked in _batches(sequences, targets):
                beside = None if segments is None else [segments[i] for i in picked]
                batch = pack([sequences[i] for i in picked], beside).to(self.device)
                target = None if targets is None else pack([targets[i] for i in picked]).to(self.device)
                answer = compute(self.network(batch, target), target or batch)
                parts = answer.unbind() if one_row else (target or batch).split(answer)
                for index, part in zip(picked, parts, strict=True):
                    results[index] = part.float().cpu().numpy()
        return results

    def _check_beside(self, sequences: Sequences, targets: Sequences | None, segments: Sequences | None) -> None:
        """Targets and segments must fit the model and the sequences."""
        architecture = self.network.architecture
        if targets is not None and not architecture.is_encoder_decoder:
            raise InputError(f"Targets go with an encoder–decoder; this is a {self.family}.")
        if targets is not None and len(targets) != len(sequences):
            raise InputError(f"There are {len(sequences)} sources but {len(targets)} targets.")
        if segments is None:
            return
        if [len(row) for row in segments] != [len(row) for row in sequences]:
            raise InputError("Segments must have a number for each token of each sequence.")
        most = architecture.embedding.segments
        if any(not 0 <= number < max(most, 1) for row in segments for number in row):
            raise InputError(f"This {self.family} knows segments from 0 to {max(most, 1) - 1}.")

    def _check(self, sequence: Sequence[int], index: int) -> None:
        ids = np.asarray(sequence)
        if ids.ndim != 1:
            raise InputError(f"Sequence {index} is not a row of token ids; give a list of lists of whole numbers.")
        if ids.size == 0:
            raise InputError(f"Sequence {index} is empty; each needs at least one token id.")
        if not np.issubdtype(ids.dtype, np.integer):
            raise InputError(f"Sequence {index} does not hold token ids (whole numbers).")
        vocabulary = self.network.architecture.vocabulary
        if ids.min() < 0 or ids.max() >= vocabulary:
            wrong = int(ids.min() if ids.min() < 0 else ids.max())
            raise InputError(f"Sequence {index} holds the token id {wrong}; ids are from 0 to {vocabulary - 1}.")
        if self.longest is not None and ids.size > self.longest:
            raise InputError(f"Sequence {index} has {ids.size} tokens; this model reads at most {self.longest}.")


def _batches(sequences: Sequences, targets: Sequences | None) -> Iterator[list[int]]:
    order = order_by_length(sequences)
    lengths = [len(sequences[i]) + (0 if targets is None else len(targets[i])) for i in order]
    for part in group_by_tokens(lengths, BATCH_TOKENS):
        yield [order[i] for i in part]
