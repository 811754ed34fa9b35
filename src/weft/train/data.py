"""From a recipe's corpus to a tokenizer, and token shards for each source and split.

Both are kept in the run folder, so that a resumed run does not read the corpus again.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from weft.corpus.plan import reading_of
from weft.corpus.split import SPLITS, Shares, SplitName, texts_of
from weft.errors import FolderError, InputError, RecipeError
from weft.folders import MANIFEST, read_json
from weft.objectives.catalog import ObjectiveKind, end_of_document
from weft.progress import say
from weft.recipe.corpus import CorpusSection, Unit
from weft.recipe.model import TokenizerSection
from weft.sources.documents import Document, read_documents
from weft.sources.files import find_files, is_corpus, list_files
from weft.sources.reading import Reading
from weft.tokenizer.build import build_tokenizer
from weft.tokenizer.read import load_tokenizer
from weft.tokenizer.tokenizer import Tokenizer
from weft.tokens.shards import TokenShards, build_shards, open_shards


@dataclass(frozen=True)
class TrainingSource:
    """A source of documents, by split."""

    files: tuple[Path, ...]  # the tokenizer is trained on these, held-out text included
    weight: float
    texts: Callable[[SplitName], Iterator[str]] = field(repr=False)
    reading: Reading = field(default_factory=Reading)


@dataclass(frozen=True)
class TokenizedCorpus:
    splits: dict[SplitName, list[TokenShards]]  # one per source; held-out splits lack sources without text
    weights: tuple[float, ...]


def find_training_sources(section: CorpusSection, base: Path, unit: Unit) -> list[TrainingSource]:
    if section.path is not None:
        return corpus_folder_sources(base / section.path, unit)
    shares = Shares(section.splits.validation, section.splits.test)
    assert section.sources is not None
    seen: dict[Path, str] = {}
    sources = []
    for entry in section.sources:
        path = (base / entry.path).resolve()
        if path in seen:
            raise RecipeError(f"corpus.sources: {entry.path} is the same as {seen[path]}. Raise its weight instead.")
        seen[path] = entry.path
        listing = list_files([base / entry.path], entry.format)
        listing.say_passed_over()
        files, reading = tuple(listing.files), Reading(**reading_of(entry, unit))
        sources.append(TrainingSource(files, entry.weight, _splitter(files, reading, shares), reading))
    return sources


def _splitter(files: tuple[Path, ...], reading: Reading, shares: Shares) -> Callable[[SplitName], Iterator[str]]:
    def documents() -> Iterator[Document]:
        return read_documents(files, reading)

    return lambda split: texts_of(split, documents, shares)


def corpus_folder_sources(folder: Path, unit: Unit) -> list[TrainingSource]:
    """Sources of a folder that `weft corpus` wrote, or of one with a train folder or file."""
    if not folder.is_dir():
        raise FolderError(f"{folder} is not a corpus folder.")
    if is_corpus(folder):
        sources = [_built_source(folder, facts) for facts in read_json(folder / MANIFEST)["sources"]]
        return [source for source in sources if source.files]  # cleaning may have dropped all of a source
    return [_divided_folder(folder, unit)]


def _built_source(folder: Path, facts: dict[str, Any]) -> TrainingSource:
    parts = {split: folder / split / facts["name"] for split in SPLITS}
    files = {split: tuple(find_files([part])) if part.is_dir() else () for split, part in parts.items()}
    return TrainingSource(files["train"], facts["weight"], lambda split: (d.text for d in read_documents(files[split])))


def _divided_folder(folder: Path, unit: Unit) -> TrainingSource:
    parts: dict[SplitName, list[Path]] = {
        split: [item for item in sorted(folder.iterdir()) if item.stem == split] for split in SPLITS
    }
    if not parts["train"]:
        raise FolderError(f"{folder} is not a corpus folder: it has neither a train folder nor a train.txt.")
    files = {split: tuple(find_files(paths)) for split, paths in parts.items()}
    reading = Reading(unit)
    return TrainingSource(
        files["train"], 1.0, lambda split: (d.text for d in read_documents(files[split], reading)), reading
    )


def pretraining_tokenizer(
    section: TokenizerSection | None, sources: list[TrainingSource], base: Path, folder: Path, family: str
) -> Tokenizer:
    """Load the recipe's tokenizer, or train one on the sources and keep it in `folder`."""
    if section is not None and section.path is not None:
        return load_tokenizer(base / section.path)
    if not (folder / "tokenizer.json").is_file():
        if section is None or section.kind is None:
            raise RecipeError("tokenizer is missing: set its kind (bpe, wordpiece, unigram or char) or its path.")
        files = [file for source in sources for file in source.files]
        options = {"vocabulary": section.vocab_size, "family": family, "lowercase": not section.cased}
        readings = {file: source.reading for source in sources for file in source.files}
        report = build_tokenizer(files, folder, section.kind, readings, **options)
        say(f"{report['vocabulary']:,} tokens in the vocabulary, {report['bytes_per_token']:.2f} bytes each.")
    return load_tokenizer(folder)


def prepare_tokens(
    sources: list[TrainingSource], tokenizer: Tokenizer, kind: ObjectiveKind, folder: Path
) -> TokenizedCorpus:
    """Token shards for every source and split. Finished ones are not written again."""
    splits: dict[SplitName, list[TokenShards]] = {split: [] for split in SPLITS}
    for split in SPLITS:
        for number, source in enumerate(sources):
            shards = prepare_shards(source, split, tokenizer, kind, folder / split / str(number))
            if shards is not None:
                splits[split].append(shards)
            elif split == "train":
                named = source.files[0] if len(source.files) == 1 else source.files[0].parent
                raise InputError(f"{named} holds no text to train on.")
    for split, found in splits.items():
        if found:
            tokens, size = sum(map(len, found)), sum(shards.bytes for shards in found)
            say(f"{split}: {tokens:,} tokens of {size / 1e6:,.1f} MB of text.")
    return TokenizedCorpus(splits, tuple(source.weight for source in sources))


def prepare_shards(
    source: TrainingSource, split: SplitName, tokenizer: Tokenizer, kind: ObjectiveKind, folder: Path
) -> TokenShards | None:
    """None if the split has no text."""
    try:
        return open_shards(folder)
    except FolderError:  # missing or unfinished
        pass
    texts = source.texts(split)
    first = next(texts, None)
    if first is None:
        return None
    return build_shards(
        chain([first], texts),
        tokenizer,
        folder,
        separator=end_of_document(tokenizer, kind),
        opening=_opening(tokenizer) if kind.head == "causal" else None,
        sentences=kind.pairs,
    )


def _opening(tokenizer: Tokenizer) -> int | None:
    """The token that the tokenizer puts before a text (Llama's <s>). The model must see it in training."""
    ids = tokenizer.encode("")
    return ids[0] if ids and ids[0] == tokenizer.id_of("bos") else None
