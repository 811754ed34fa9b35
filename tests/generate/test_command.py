"""`weft generate` as people call it."""

import json
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def folder(letters, tmp_path_factory):
    letters.save(place := tmp_path_factory.mktemp("command") / "model")
    return place


def weft(*arguments, given: str | None = None) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "weft", "generate", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, input=given, encoding="utf-8", timeout=120)


def test_texts_go_to_standard_output(folder, letters):
    done = weft(folder, "Alice was ", "--max-new-tokens", 20)
    assert done.stdout == letters.generate("Alice was ", max_new_tokens=20) + "\n"
    done = weft(folder, "Alice was ", "--max-new-tokens", 20, "--stream")
    assert done.stdout == letters.generate("Alice was ", max_new_tokens=20) + "\n"


def test_json_says_everything_and_the_seed_to_repeat_it(folder, letters):
    done = weft(folder, "Alice", "The", "--temperature", 0.9, "-n", 2, "--max-new-tokens", 12, "--json")
    (line,) = done.stdout.splitlines()
    facts = json.loads(line)
    how = {"temperature": 0.9, "n": 2, "max_new_tokens": 12, "seed": facts["settings"]["seed"]}
    texts = [[answer["text"] for answer in row["answers"]] for row in facts["generations"]]
    assert texts == letters.generate(["Alice", "The"], **how)
    answer = facts["generations"][0]["answers"][0]
    assert answer["finish"] in ("end", "length")
    assert len(answer["log_probs"]) == answer["tokens"]


def test_a_file_of_prompts_gives_a_line_each(folder, letters, tmp_path):
    prompts = ["Alice", "The Queen", "", "Alice"]
    (tmp_path / "prompts.txt").write_text("\r\n".join(prompts) + "\n")
    done = weft(folder, "--file", tmp_path / "prompts.txt", "--max-new-tokens", 30)
    expected = [text.replace("\n", "\\n") for text in letters.generate(prompts, max_new_tokens=30)]
    assert done.stdout.splitlines() == expected


def test_every_line_that_comes_in_is_answered(folder, letters):
    done = weft(folder, "--max-new-tokens", 10, given="Alice\nThe Queen\n")
    expected = letters.generate(["Alice", "The Queen"], max_new_tokens=10)
    assert done.stdout == "".join(text + "\n" for text in expected)
    assert done.returncode == 0


def test_it_chooses(folder, letters):
    done = weft(folder, "Alice was not ", "--choose", "the", "--choose", "zqx", "--json")
    (row,) = json.loads(done.stdout)["choices"]
    assert row["options"][0]["option"] == letters.choose("Alice was not ", ["the", "zqx"]) == "the"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("猫",), "never seen: '猫'"),
        (("x", "--temperature", "-1"), "temperature"),
        (("x", "--top-p", "0"), "top_p"),
        (("x", "--beams", "2", "-n", "3"), "2 beams"),
        (("x", "--strategy", "bim"), "strategy"),
        (("x", "--max-new-tokens", "100000"), "slide"),
        (("x", "--stream", "--json"), "one of them"),
        (("x", "y", "--stream"), "one prompt"),
        (("--json",), "need a prompt"),
        (("x", "--file", "y"), "not both"),
        (("--file", "nowhere.txt"), "not a file"),
        (("x", "--choose", "a", "--choose", "a"), "different"),
        (("x", "--choose", "a", "--top-k", "2"), "none of the options for generating"),
        (("x", "--ban", "the cat"), "not a single token"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_one_sentence_and_exit_2(folder, arguments, words):
    done = weft(folder, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_interrupted_stream_ends_at_once_and_leaves_nobody(folder):
    import os
    import signal

    import psutil

    command = [sys.executable, "-m", "weft", "generate", str(folder), "Alice", "--stream", "--slide"]
    with subprocess.Popen(
        [*command, "--max-new-tokens", "1000000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
    ) as process:
        process.stdout.read(200)
        children = psutil.Process(process.pid).children(recursive=True)
        os.kill(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said.decode().strip() == "weft: interrupted."
    assert not any(child.is_running() for child in children)
