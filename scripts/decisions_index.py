"""Writes the index at the top of docs/decisions.md: every decision by subject, with a link.

    python scripts/decisions_index.py

A paragraph begins with `**YYYY-MM-DD · Title.**`. New ones are given an anchor and the subject whose keywords they hold
most. A paragraph that the index lists already keeps its subject: to correct one, move its line in the index and run
the script again.
"""

import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parents[1] / "docs/decisions.md"
BEGIN, END = "<!-- index -->", "<!-- end of index -->"
DECISION = re.compile(r'(?:^<a id="([\w-]+)"></a>\n)?^\*\*(\d{4}-\d\d-\d\d) · (.+?)\*\*', re.MULTILINE | re.DOTALL)
LINE = re.compile(r"^\* \[.*\]\(#([\w-]+)\)", re.MULTILINE)
TITLE_WEIGHT = 5  # of a keyword in the title; in the text it counts once

# In the order of the index; of subjects with equally many keywords the first wins.
SUBJECTS = {
    "Reading files and pages": "read reader tables csv json parquet format ending page pages fetched encoding",
    "Security and limits": "hostile address redirect limit bomb quarantine control inside request deadline locked dead",
    "Corpus": "corpus copy copies duplicate near-duplicate minhash clean mask language filter contamination",
    "Tokenizer": "tokenizer tokenized vocabulary wordpiece bpe unigram",
    "Recipe and command line": "recipe yaml key keys setting command flag --json schema python api verb help",
    "Model": "architecture brick bricks family families buffer weights rotary embedding attention head network init",
    "Folders and other formats": "folder folders config safetensors transformers loading saved hugging weft.json",
    "Kernels and speed": "kernel kernels matmul c ms gflop product products fused dropout threads compile int8 faster",
    "Compression": "distil distillation teacher student prune pruning quantize quantization quantized gptq 4-bit",
    "Training": "muon adamw optimizer rate steps loss gradient checkpoint resume objective batch training schedule",
    "Planning": "budget law plan planner precision bfloat16 trial measured time sizes",
    "Generation": "generate generation beam beams cache draw writing prompt prompts sampling decoder",
    "Serving": "serve served service http route routes openai tei queue client clients request requests server",
    "Tasks": "task tasks tag tags tagger label labels intent crf answer classify tuned fine-tuned head reply held",
    "Evaluation": "metric metrics interval report baseline f1 accuracy verdict judged untuned bootstrap score test",
    "Theory guide": "theory guide guide's chapter chapters formula formulas mutants notebook",
    "Quickstart, results, examples": "quickstart results example readme",
    "Project: tests, build, layout": "tests test room rooms module modules import imports ruff mypy suite stands",
}


class Decision(NamedTuple):
    anchor: str
    date: str
    title: str
    text: str


def main() -> None:
    PAGE.write_text(with_index(PAGE.read_text("utf-8")), "utf-8")


def with_index(page: str) -> str:
    """The page with an anchor at every decision and a new index. A second time it changes nothing."""
    head, old, body = split(page)
    decisions = read_decisions(body)
    kept = subjects_in(old)
    listed = defaultdict(list)
    for decision in decisions:
        listed[kept.get(decision.anchor) or subject_of(decision)].append(decision)
    lines = [BEGIN, "## By subject", ""]
    for subject in SUBJECTS:
        if listed[subject]:
            lines += [f"### {subject}", ""]
            lines += [f"* [{decision.title}](#{decision.anchor})" for decision in listed[subject]]
            lines += [""]
    lines += [END]
    return head + "\n".join(lines) + "\n\n## By date\n\n" + with_anchors(body, decisions)


def split(page: str) -> tuple[str, str, str]:
    """What stands before the index, the index, and the decisions."""
    if BEGIN in page:
        head, _, rest = page.partition(BEGIN)
        index, _, body = rest.partition(END)
        return head, index, body.lstrip().removeprefix("## By date").lstrip()
    first = DECISION.search(page)
    assert first is not None
    return page[: first.start()], "", page[first.start() :]


def read_decisions(body: str) -> list[Decision]:
    matches = list(DECISION.finditer(body))
    ends = [match.start() for match in matches[1:]] + [len(body)]
    found: list[Decision] = []
    taken: set[str] = {match[1] for match in matches if match[1]}
    for match, end in zip(matches, ends, strict=True):
        title = " ".join(match[3].split()).rstrip(".,")
        anchor = match[1] or new_anchor(title, taken)
        taken.add(anchor)
        found.append(Decision(anchor, match[2], title, body[match.end() : end]))
    return found


def new_anchor(title: str, taken: set[str]) -> str:
    words = "-".join(re.findall(r"[a-z0-9]+", title.lower())[:8])
    return next(name for name in (words, *(f"{words}-{n}" for n in range(2, 100))) if name not in taken)


def with_anchors(body: str, decisions: list[Decision]) -> str:
    anchors = iter(decisions)
    return DECISION.sub(lambda match: f'<a id="{next(anchors).anchor}"></a>\n**{match[2]} · {match[3]}**', body)


def subjects_in(index: str) -> dict[str, str]:
    """The subject of each anchor in an earlier index."""
    parts = re.split(r"^### (.+)$", index, flags=re.MULTILINE)[1:]
    return {
        anchor: subject
        for subject, lines in zip(parts[::2], parts[1::2], strict=True)
        if subject in SUBJECTS
        for anchor in LINE.findall(lines)
    }


def subject_of(decision: Decision) -> str:
    def hits(subject: str) -> int:
        keywords = set(SUBJECTS[subject].split())
        titled, told = (
            len(keywords & set(re.findall(r"[\w.-]+\w", text.lower()))) for text in (decision.title, decision.text)
        )
        return TITLE_WEIGHT * titled + told

    return max(SUBJECTS, key=hits)


if __name__ == "__main__":
    main()
