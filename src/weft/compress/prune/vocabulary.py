"""A tokenizer with fewer tokens, and the rows of the model that belong to them.

Tokens that a corpus uses stay, with special tokens, single characters and bytes, so that any other text can still be
written, in more tokens. Texts of the corpus are cut as before:

    BPE        a token is made of two others by a merge, so these stay as well, down to single characters. A merge
               that the corpus never needs cannot change how its texts are cut.
    WordPiece  takes the longest piece that fits, and those it took are still there
    Unigram    takes the most probable pieces, and these are still there. The least probable piece stays: it sets the
               score of an unknown character.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import tokenizers
import torch

from weft.folders import to_json
from weft.interchange.folder import Description
from weft.model.heads import HeadSpec
from weft.model.network import Network
from weft.tokenizer.tokenizer import Tokenizer

_TOKENIZER, _SETTINGS = "tokenizer.json", "tokenizer_config.json"
_KEPT_FILES = (_TOKENIZER, _SETTINGS, "special_tokens_map.json", "chat_template.jinja")
_LANGUAGE_HEADS = ("masked", "causal", "seq2seq")
_ID_LISTS = ("suppress_tokens", "begin_suppress_tokens", "bad_words_ids", "forced_decoder_ids")


@dataclass(frozen=True)
class FewerTokens:
    tokenizer: Tokenizer
    ids: list[int]  # the old id of each token
    used: int  # tokens of the corpus
    dropped_files: tuple[str, ...]  # that hold the old vocabulary in another format

    @property
    def new_ids(self) -> dict[int, int]:
        return {old: new for new, old in enumerate(self.ids)}


def prune_tokenizer(
    tokenizer: Tokenizer, counts: Counter[int], most: int | None = None, always: Iterable[int] = ()
) -> FewerTokens:
    """`counts`: how often the corpus uses each token. `most`: at most about this many tokens, the most frequent.
    `always`: ids that stay in any case.
    """
    tree = json.loads(tokenizer.engine.to_str())
    vocabulary = tokenizer.engine.get_vocab(with_added_tokens=True)
    names = {number: token for token, number in vocabulary.items()}
    needed = {number for token, number in vocabulary.items() if _is_basic(token)}
    needed |= {*always, *tokenizer.engine.get_added_tokens_decoder(), *_least_probable(tree)}
    if (unknown := tree["model"].get("unk_token")) in vocabulary:
        needed.add(vocabulary[unknown])
    needed = {number for number in needed if number in names}
    merges = _Merges(tree["model"], vocabulary)
    kept = set(needed)
    for number, _ in counts.most_common():
        made_of = merges.parts(names[number]) - kept
        if most is not None and len(kept) + len(made_of) > most and number not in kept:
            continue
        kept |= made_of
    ids = sorted(kept)
    new_ids = {old: new for new, old in enumerate(ids)}
    engine = tokenizers.Tokenizer.from_str(json.dumps(_renumbered(tree, new_ids, names)))
    files = _files(tokenizer, engine, new_ids)
    dropped = tuple(name for name in tokenizer.files if name not in files)
    return FewerTokens(Tokenizer(engine, tokenizer.special, files), ids, len(counts), dropped)


def count_tokens(tokenizer: Tokenizer, texts: Iterable[str]) -> Counter[int]:
    """Of whole texts and of their lines, whose first words may be cut in another way."""
    counts: Counter[int] = Counter()
    for text in texts:
        for encoding in tokenizer.engine.encode_batch_fast([text, *text.splitlines()], add_special_tokens=False):
            counts.update(encoding.ids)
    return counts


def _is_basic(token: str) -> bool:
    """A single character, also inside a word (##a) or after a space (▁a), or a byte (<0x0A>)."""
    bare = token.removeprefix("##") if len(token) > 2 else token
    bare = bare.removeprefix("▁") if len(bare) > 1 else bare
    return len(bare) == 1 or (len(token) == 6 and token.startswith("<0x") and token.endswith(">"))


def _least_probable(tree: Mapping[str, Any]) -> list[int]:
    if tree["model"]["type"] != "Unigram":
        return []
    scores = [score for _, score in tree["model"]["vocab"]]
    unknown = tree["model"].get("unk_id")
    return [scores.index(min(scores)), *([] if unknown is None else [unknown])]


class _Merges:
    """The merges of a BPE, replayed."""

    def __init__(self, model: Mapping[str, Any], vocabulary: Mapping[str, int]) -> None:
        self.vocabulary, self.prefix = vocabulary, model.get("continuing_subword_prefix") or ""
        self.ranks = {pair: rank for rank, pair in enumerate(_pairs(model))}

    def parts(self, token: str) -> set[int]:
        """The token and everything that it is merged from, as ids."""
        if not self.ranks:
            return {self.vocabulary[token]}
        pieces = [token[0], *(self.prefix + letter for letter in token[1:])] if token else []
        found = {*pieces, token}
        while len(pieces) > 1:
            ranked = [(self.ranks.get(pair, len(self.ranks)), place) for place, pair in enumerate(pairwise(pieces))]
            rank, place = min(ranked)
            if rank == len(self.ranks):
                break
            pieces[place : place + 2] = [joined_pieces(pieces[place], pieces[place + 1], self.prefix)]
            found.add(pieces[place])
        return {self.vocabulary[piece] for piece in found if piece in self.vocabulary}


def _pairs(model: Mapping[str, Any]) -> list[tuple[str, str]]:
    merges = model.get("merges", ())
    return [tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge) for merge in merges]


def joined_pieces(left: str, right: str, prefix: str) -> str:
    return left + right.removeprefix(prefix)


def _renumbered(tree: dict[str, Any], new_ids: Mapping[int, int], names: Mapping[int, str]) -> dict[str, Any]:
    """The tokenizer.json with the kept tokens only."""
    model, kept = dict(tree["model"]), {names[old] for old in new_ids}
    if model["type"] == "Unigram":
        model["vocab"] = [piece for number, piece in enumerate(model["vocab"]) if number in new_ids]
        if model.get("unk_id") is not None:
            model["unk_id"] = new_ids[model["unk_id"]]
    else:
        model["vocab"] = {token: new_ids[old] for token, old in model["vocab"].items() if old in new_ids}
    if "merges" in model:
        prefix = model.get("continuing_subword_prefix") or ""
        model["merges"] = [list(pair) for pair in _pairs(model) if {*pair, joined_pieces(*pair, prefix)} <= kept]
    added = [{**token, "id": new_ids[token["id"]]} for token in tree["added_tokens"]]
    frame = _new_frame(tree["post_processor"], new_ids)
    return {**tree, "model": model, "added_tokens": added, "post_processor": frame}


def _new_frame(processor: Any, new_ids: Mapping[int, int]) -> Any:
    """The post-processor, which names special tokens with their ids."""
    if not isinstance(processor, dict):
        return processor
    found = dict(processor)
    match processor["type"]:
        case "TemplateProcessing":
            found["special_tokens"] = {
                name: {**token, "ids": [new_ids[old] for old in token["ids"]]}
                for name, token in processor["special_tokens"].items()
            }
        case "BertProcessing" | "RobertaProcessing":
            found |= {key: [processor[key][0], new_ids[processor[key][1]]] for key in ("sep", "cls")}
        case "Sequence":
            found["processors"] = [_new_frame(one, new_ids) for one in processor["processors"]]
    return found


def _files(tokenizer: Tokenizer, engine: tokenizers.Tokenizer, new_ids: Mapping[int, int]) -> dict[str, bytes]:
    files = {name: data for name, data in tokenizer.files.items() if name in _KEPT_FILES}
    files[_TOKENIZER] = engine.to_str(pretty=True).encode()
    settings = json.loads(files.get(_SETTINGS, b"{}"))
    if isinstance(added := settings.get("added_tokens_decoder"), dict):
        settings["added_tokens_decoder"] = {
            str(new_ids[int(old)]): token for old, token in added.items() if int(old) in new_ids
        }
    if _SETTINGS in files:
        files[_SETTINGS] = to_json(settings)
    return files


@torch.no_grad()
def with_fewer_tokens(network: Network, ids: list[int]) -> Network:
    """The network with these rows of its token embeddings and of its language head."""
    architecture, rows = network.architecture, torch.tensor(ids)
    heads = tuple(_fewer_outputs(head, len(ids)) for head in architecture.heads)
    embedding = replace(architecture.embedding, vocabulary=len(ids))
    new = Network(replace(architecture, embedding=embedding, heads=heads))
    state = network.state_dict()
    tables = [name for name in state if name.endswith("embed.tokens.weight")]
    tables += [name for kind in _LANGUAGE_HEADS for name in state if name.startswith(f"heads.{kind}.out.")]
    new.load_state_dict({name: value[rows] if name in tables else value.clone() for name, value in state.items()})
    for name, parameter in new.named_parameters():
        parameter.requires_grad_(network.get_parameter(name).requires_grad)
    return new.eval()


def _fewer_outputs(head: HeadSpec, count: int) -> HeadSpec:
    return replace(head, outputs=count) if head.kind in _LANGUAGE_HEADS else head


def describe_fewer_tokens(description: Description, fewer: FewerTokens) -> Description:
    """With the new ids in config.json and generation_config.json."""
    family = description.family
    if family is not None:
        pad: dict[str, Any] = {"pad": fewer.new_ids[family.pad]} if hasattr(family, "pad") else {}
        family = replace(family, vocabulary=len(fewer.ids), **pad)
    config, generation = (_new_config(one, fewer.new_ids) for one in (description.config, description.generation))
    return replace(description, family=family, config=config, generation=generation)


def _new_config(config: Mapping[str, Any], new_ids: Mapping[int, int]) -> dict[str, Any]:
    found = {}
    for key, value in config.items():
        if key.endswith("token_id"):
            if isinstance(value, list):
                value = [new_ids[one] for one in value if one in new_ids]
            elif isinstance(value, int):
                value = new_ids.get(value)
        elif key in _ID_LISTS:
            continue  # lists of tokens that a corpus did not need
        found[key] = value
    return found


def named_ids(description: Description) -> set[int]:
    """Ids that config.json or generation_config.json name, and those below RoBERTa's padding: positions begin there."""
    found: set[int] = set()
    for config in (description.config, description.generation):
        for key, value in config.items():
            if key.endswith("token_id"):
                found |= {one for one in (value if isinstance(value, list) else [value]) if isinstance(one, int)}
    return found | set(range(getattr(description.family, "pad", -1) + 1))
