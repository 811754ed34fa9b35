"""`load`, `create`, and `Model` with its verbs: predict, generate, fill, embed, score, hidden, attentions …"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from weft.api.arrays import Sequences, arrays_of, attention_arrays, hidden_arrays
from weft.api.fill import Filled, fill_masks
from weft.errors import InputError, as_items, as_path, check_encodable
from weft.generate.chat_template import ChatTemplate
from weft.generate.chat_writer import ChatWriter, Messages
from weft.generate.framing import Framing
from weft.generate.prepare import prepared
from weft.generate.prompts import PromptReader
from weft.generate.scorer import Normalize, Scorer
from weft.generate.start_end_tokens import StartEndTokens, read_start_end_tokens
from weft.generate.writer import Writer
from weft.interchange.folder import Description, config_files_of, save_format, why_own_format, write_model
from weft.model.families import design
from weft.model.heads import pooled
from weft.model.network import create_network
from weft.progress import say
from weft.tasks.catalog import side_files
from weft.tasks.judging.predict import is_alone, predict_texts
from weft.tasks.loaded import LoadedModel
from weft.tokenizer.tokenizer import Tokenizer

Prompts = str | Sequence[str] | Sequence[int] | Sequences
_COPIED_FACTS = ("recipe", "task", "results", "compressed")  # keys of weft.json that a saved copy keeps
_LANGUAGE_HEADS = ("masked", "causal", "seq2seq")
_TASK_HEADS = ("sequence", "token", "span", "next-sentence")


def load(
    folder: str | Path,
    device: str | torch.device = "auto",
    *,
    task: str | None = None,
    precision: str | None = None,
) -> "Model":
    """A model from a Hugging Face folder, or one in weft's own format.

    `device`: "auto" is the GPU if there is one, else the CPU. `task`: what to predict (classify, pair, tag …). Default:
    the task the model was tuned for. `precision`: of the computation on a CPU: fp32, bf16, int8, or auto for the faster
    one of fp32 and bf16; default: fp32, or what the model was quantized to. Text is generated in int8 or fp32; bf16
    is for what is read. Raises FolderError if a tensor is missing, misshapen or left over.
    """
    return Model.load(folder, device, task, precision)


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

    `positions` replaces the family's position encoding: learned, sinusoidal, rotary or relative. A number only sets how
    many positions there are. A combination that no Hugging Face family has is saved in weft's own format (see
    `model.format`).
    """
    if tokenizer is not None:
        if not isinstance(tokenizer, Tokenizer):
            raise InputError(f"tokenizer is that of a model (model.tokenizer), not {type(tokenizer).__name__}.")
        knobs.setdefault("vocabulary", tokenizer.vocabulary)
    chosen, architecture = design(family, size, head=head, labels=labels, positions=positions, **knobs)
    network = create_network(architecture, seed).eval()
    return Model(network, Description(chosen, head or chosen.default_head), tokenizer)


class Model(LoadedModel):
    def __repr__(self) -> str:
        return f"<weft.Model {self.family}, {self.parameters_count:,} parameters, {self.description.head} head>"

    @property
    def format(self) -> str:
        """The `model_type` that `save` writes: a Hugging Face family's, or `weft`."""
        return save_format(self.network, self.description)

    @property
    def writes_text(self) -> bool:
        """Whether prompts may be texts. Raises InputError if the model cannot generate at all."""
        self._check_generates()
        return self._tokenizer is not None

    def save(self, folder: str | Path) -> str:
        """Write a folder that `weft.load` and `transformers` open. The write is atomic. Returns the format."""
        files = {
            **(self._tokenizer.saved_files() if self._tokenizer else {}),
            **self.pooling.files,
            **side_files(self.folder),
        }
        kept = {key: self.facts[key] for key in _COPIED_FACTS if key in self.facts}
        saved_as = write_model(self.network, self._described(), as_path(folder, "The folder"), files=files, facts=kept)
        if saved_as == "weft":
            say(f"{folder}: {why_own_format(self.network)}")
        return saved_as

    def config_files(self) -> dict[str, bytes]:
        """config.json and, for a model that writes, generation_config.json, as `save` writes them."""
        return config_files_of(self.network, self._described())

    def _described(self) -> Description:
        """With the tokenizer's ids of the special tokens, where config.json has none."""
        if self._tokenizer is None:
            return self.description
        ids = {f"{role}_token_id": self._tokenizer.id_of(role) for role in self._tokenizer.special}
        if self.network.architecture.is_encoder_decoder and "pad_token_id" in ids:
            ids["decoder_start_token_id"] = ids["pad_token_id"]
        return replace(self.description, config={**ids, **self.description.config})

    def logits(
        self, sequences: Sequences, targets: Sequences | None = None, *, segments: Sequences | None = None
    ) -> list[np.ndarray]:
        """The head's logits, an array per sequence of token ids.

        Language models: (length, vocabulary); row i of a causal model scores token i + 1. Encoder–decoders take sources
        and `targets`, the decoder's input, which begins with its start token. Task heads: (labels,) per sequence,
        (length, labels) per token, (length, 2) for spans.
        """
        kind = next((kind for kind in self.network.heads if kind in (*_LANGUAGE_HEADS, *_TASK_HEADS)), None)
        if kind is None:
            raise InputError(f"This {self.family} has no head, so it has no logits. Try hidden or embed.")
        if targets is None and self.network.architecture.is_encoder_decoder:
            if kind == "seq2seq":
                raise InputError("An encoder–decoder needs targets as well: model.logits(sources, targets).")
            targets = [[self.start_end.start_id or 0, *sequence[:-1]] for sequence in sequences]
        head = self.network.head(kind)
        return arrays_of(self.network, sequences, targets, segments, head, one_row=head.spec.pool != "every")

    def hidden(
        self,
        sequences: Sequences,
        targets: Sequences | None = None,
        *,
        segments: Sequences | None = None,
        layers: Sequence[int] | None = None,
    ) -> list[np.ndarray]:
        """The last hidden states, (length, width) per sequence; the decoder's where `targets` are given.

        With `layers`, (layers, length, width): 0 is the embedding, i the output of layer i, counted from 1.
        """
        if layers is not None:
            return hidden_arrays(self.network, sequences, targets, segments, layers)
        return arrays_of(self.network, sequences, targets, segments, lambda hidden, batch: hidden, one_row=False)

    def attentions(
        self,
        sequences: Sequences,
        targets: Sequences | None = None,
        *,
        segments: Sequences | None = None,
        layers: Sequence[int] | None = None,
    ) -> list[list[np.ndarray]]:
        """Self-attention weights per sequence and layer, (heads, length, length); the decoder's where `targets` are
        given. `layers`: counted from 0. Default: all.
        """
        architecture = self.network.architecture
        stack = architecture.decoder if targets is not None or architecture.encoder is None else architecture.encoder
        layers = range(stack.layers if stack is not None else 1) if layers is None else layers
        return attention_arrays(self.network, sequences, targets, segments, layers)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """A vector per text, (n, width): the mean of its hidden states, or the pooling that the folder names.

        Texts longer than the model reads are truncated.
        """
        texts = [texts] if isinstance(texts, str) else as_items(texts, "What embed takes")
        if wrong := [text for text in texts if not isinstance(text, str)]:
            raise InputError(f"embed takes texts, not {type(wrong[0]).__name__}.")
        for number, text in enumerate(texts):
            check_encodable(text, f"Text {number}")
        limits = [limit for limit in (self.longest, self.pooling.most_tokens) if limit is not None]
        ids = self.tokenizer.encode_many(texts, min(limits, default=None))
        if empty := [i for i, sequence in enumerate(ids) if not sequence]:
            raise InputError(f"Text {empty[0]} has no tokens, so it has no vector.")
        kind = self.pooling.kind
        rows = arrays_of(self.network, ids, None, None, lambda x, batch: pooled(x, batch, kind), one_row=True)
        vectors = np.stack(rows) if rows else np.zeros((0, self.network.width), np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True) if self.pooling.normalize else vectors

    def fill(self, text: str, top: int = 5) -> list[Filled] | list[list[Filled]]:
        """The most probable words for the mask in `text`: `fill("The [MASK] sat.")`. A list per mask if there are
        several. The model's own mask token works as well as `[MASK]`.
        """
        filled = fill_masks(self.network, self.tokenizer, text, top)
        return filled[0] if len(filled) == 1 else filled

    def predict(self, texts: Any, *, task: str | None = None, details: bool = False) -> Any:
        """A fine-tuned model's answers: a dictionary for one text, a list of them for a list.

        A pair, or a question and its context, is a tuple of two texts. For tagging, give a text or a list of words. A
        dictionary names the parts. `task`: default: the one the model was tuned for.
        """
        model = self.for_task(task)
        alone = is_alone(model.required_task, texts)
        answers = predict_texts(model, [texts] if alone else list(texts), details=details)
        return answers[0] if alone else answers

    def generate(
        self, prompts: Prompts, *, details: bool = False, int8: bool = False, progress: bool = False, **settings: Any
    ) -> Any:
        """What the model writes: `generate("Once upon a time", max_new_tokens=64)`.

        `prompts`: one or a list, texts or lists of token ids; for encoder–decoders, sources. Returns new text for
        texts, new ids for ids; a list per prompt if `n` > 1; `Generation`s with `details`. A model tuned to translate,
        summarize or reply reads texts framed as in training (prefix, separator), ids unchanged. `settings`: see
        `weft.generate.settings.Settings`: strategy ("greedy", "sample", "beam"), max_new_tokens, temperature, top_k,
        top_p, min_p, seed, beams, n, length_penalty, stop … `int8` quantizes the weights: nearly the same output,
        faster; so does `weft.load(…, precision="int8")`.
        """
        return self.writer(int8).generate(prompts, details=details, progress=progress, **settings)

    def stream(self, prompt: str | Sequence[int], *, int8: bool = False, **settings: Any) -> Iterator[Any]:
        """As `generate` for one prompt, in pieces as they are written. A decoder that was tuned to reply also takes
        `history`, earlier (prompt, reply) pairs; it reads the last ones that fit.
        """
        return self.writer(int8).stream(prompt, **settings)

    def chat(self, messages: Messages, *, int8: bool = False, **settings: Any) -> str:
        """The next answer in a conversation: `chat([{"role": "user", "content": "Hello."}])`.

        The messages are framed by the model's chat template; those of a model that was tuned to reply and has none, as
        in training. The oldest turns are left out if not all fit. `settings`: as of `generate`; `max_new_tokens` is 512
        by default, or what fits.
        """
        return self.chat_writer(int8).answer(messages, **settings).text or ""

    def score(self, texts: Prompts, sources: Prompts | None = None) -> Any:
        """How probable texts (or token ids) are: a `Score` each, with perplexity, bits per byte and the log-probability
        of every token. An encoder–decoder scores them as answers to `sources`.
        """
        return self._scorer().score(texts, sources)

    def choose(
        self, prompt: str, options: Sequence[str], *, normalize: Normalize = "none", details: bool = False
    ) -> Any:
        """The most probable option to follow the prompt: zero-shot or few-shot classification.

        `choose("Review: I loved it.\\nSentiment:", [" positive", " negative"])`. `normalize`: "tokens" or "bytes"
        divides the log-probability by the length, for options of unequal length. With `details` all `Candidate`s, most
        probable first.
        """
        return self._scorer().choose(prompt, options, normalize=normalize, details=details)

    def _check_generates(self) -> None:
        if not {"causal", "seq2seq"} & set(self.network.heads):
            if "masked" in self.network.heads:
                raise InputError(f"A {self.family} is an encoder, which does not write; try fill.")
            raise InputError(f"This {self.family} has no language-model head, so it does not write.")

    def writer(self, int8: bool = False, draft: "Model | None" = None) -> Writer:
        """What `generate` and `stream` use, and a service: jobs for the engine. `draft`: a smaller model with the same
        tokenizer, for speculative decoding (`speculate`).
        """
        self._check_generates()
        if not isinstance(int8, bool):
            raise InputError(f"int8 is true or false, not {int8!r}.")
        ready = prepared(self.network, int8=int8)
        small = None if draft is None else prepared(draft.network, int8=int8)
        return Writer(ready, self._prompt_reader, self.description.generation, small)

    def chat_writer(self, int8: bool = False) -> ChatWriter:
        """What `chat` uses, and the command. Raises InputError for a model that does not converse."""
        writer = self.writer(int8)
        template = ChatTemplate.of(self.tokenizer)
        return ChatWriter(writer, template, f"This {self.family}" if self.folder is None else str(self.folder))

    def _scorer(self) -> Scorer:
        self._check_generates()
        return Scorer(prepared(self.network), self._prompt_reader)

    @property
    def _prompt_reader(self) -> PromptReader:
        framing = Framing.of(self.facts.get("task"))
        return PromptReader(self.network.architecture, self._tokenizer, self.start_end, framing)

    @property
    def start_end(self) -> StartEndTokens:
        """The tokens that begin and end a text."""
        architecture = self.network.architecture
        return read_start_end_tokens(
            self._described().config,
            self.description.generation,
            self._tokenizer,
            vocabulary=architecture.vocabulary,
            has_source=architecture.is_encoder_decoder,
        )
