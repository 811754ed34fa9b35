"""Makes the sample of the task intent: commands to a house, in English and Chinese.

    python scripts/smart_home.py [--check]

Reads examples/smart-home/{en,zh}.txt (patterns and sentences; the form is explained there) and {en,zh}-test.txt
(sentences only), and writes examples/tasks/intent{,-test,-zh,-zh-test}.tsv. The same files give the same tables.
`--check` writes nothing and exits with 1 if a table is not what these files give.
"""

import argparse
import random
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"
TABLES = {"en": "intent", "en-test": "intent-test", "zh": "intent-zh", "zh-test": "intent-zh-test"}
MOST_TRIES = 200  # for each command: a pattern without choices soon has no new ones
CHOICE, SLOT, LIST = re.compile(r"[(（]([^()（）]*)[)）]"), re.compile(r"\[(\w+): ([^\]]+)\]"), re.compile(r"<(\w+)>")
WORD = re.compile(r"[\u4e00-\u9fff]|[^\s\u4e00-\u9fff]+")  # a Chinese character, or what stands between spaces


@dataclass
class Source:
    lists: dict[str, list[str]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)  # commands to draw, by intent
    patterns: dict[str, list[str]] = field(default_factory=dict)
    sentences: list[tuple[str, str]] = field(default_factory=list)  # intent, sentence


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = []
    for name, table in TABLES.items():
        source = read((EXAMPLES / f"smart-home/{name}.txt").read_text("utf-8"))
        kept = set() if name.endswith("-test") else words_of_test(name)
        rows = [*drawn(source, kept), *(one for one in source.sentences if not gives_away(one[1], kept))]
        random.Random(1).shuffle(rows)
        text = "words\tslots\tintent\n" + "".join(row_of(intent, sentence) for intent, sentence in rows)
        target = EXAMPLES / f"tasks/{table}.tsv"
        if check and (not target.is_file() or target.read_text("utf-8") != text):
            stale.append(target.name)
        elif not check:
            target.write_text(text, "utf-8")
            print(f"{target.name}: {len(rows)} commands, {len(source.sentences)} of them written by hand")
    if stale:
        sys.exit(f"{', '.join(stale)}: not what examples/smart-home gives. Run python scripts/smart_home.py.")


def read(text: str) -> Source:
    source = Source()
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        head, mark, rest = re.split(r" ?(=|>|:|-) ", line, maxsplit=1)
        match mark:
            case "=":
                source.lists[head] = rest.split(" | ")
            case ">":
                source.counts[head] = int(rest)
            case ":":
                source.patterns.setdefault(head, []).append(rest)
            case "-":
                source.sentences.append((head, rest))
    return source


def words_of_test(language: str) -> set[str]:
    test = read((EXAMPLES / f"smart-home/{language}-test.txt").read_text("utf-8"))
    return {words_of(sentence) for _, sentence in test.sentences}


def drawn(source: Source, kept: set[str]) -> list[tuple[str, str]]:
    """So many different commands of each intent, each pattern in turn; none that holds one `kept` for the test."""
    found = []
    for intent, count in source.counts.items():
        rng, patterns = random.Random(intent), source.patterns[intent]
        commands: dict[str, None] = {}
        for attempt in range(MOST_TRIES * count):
            if len(commands) == count:
                break
            command = filled(patterns[attempt % len(patterns)], source.lists, rng)
            if not gives_away(command, kept):
                commands[command] = None
        found += [(intent, command) for command in commands]
    return found


def gives_away(command: str, kept: set[str]) -> bool:
    """Whether a command of the test stands in it."""
    words = f" {words_of(command)} "
    return any(f" {one} " in words for one in kept)


def filled(pattern: str, lists: dict[str, list[str]], rng: random.Random) -> str:
    """A command of the pattern, with its slots still marked."""
    while CHOICE.search(pattern):
        pattern = CHOICE.sub(lambda found: rng.choice(found[1].split("|")), pattern)
    pattern = SLOT.sub(
        lambda slot: f"[{slot[1]}: {LIST.sub(lambda name: rng.choice(lists[name[1]]), slot[2])}]", pattern
    )
    pattern = LIST.sub(lambda name: f"[{name[1]}: {rng.choice(lists[name[1]])}]", pattern)
    return " ".join(pattern.split())


def words_of(sentence: str) -> str:
    return " ".join(WORD.findall(SLOT.sub(r"\2", sentence)))


def row_of(intent: str, sentence: str) -> str:
    words, tags, at = [], [], 0
    for slot in [*SLOT.finditer(sentence), None]:
        before = WORD.findall(sentence[at : slot.start() if slot else len(sentence)])
        words, tags = words + before, tags + ["O"] * len(before)
        if slot:
            inside = WORD.findall(slot[2])
            words, at = words + inside, slot.end()
            tags += [f"{'I' if number else 'B'}-{slot[1]}" for number in range(len(inside))]
    return f"{' '.join(words)}\t{' '.join(tags)}\t{intent}\n"


if __name__ == "__main__":
    main()
