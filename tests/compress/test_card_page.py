"""What people see of a card: the verdict, the table, the page."""

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from made_up_cards import made_up_against, made_up_card, made_up_chain, made_up_model
from weft.compress.card.card_page import card_page
from weft.compress.card.contest import Changed
from weft.compress.card.machine import describe_cpu
from weft.compress.card.picture import picture
from weft.compress.card.table import size_text
from weft.metrics.difference import PairedDifference

EVIL = "<script>alert('x')</script>\"&<b>"


def after(gap: float, low: float, high: float, smaller: float = 3.9, speed: float = 2.1, **more):
    against = made_up_against(gap, low, high, smaller, speed)
    return made_up_model("after", 0.899 + gap, 23.5, speed, against=against, **more)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (
            after(-0.003, -0.010, 0.004),
            "3.9× smaller, 2.1× faster, accuracy 89.9 → 89.6 % (difference −0.3 points, −1.0 to 0.4: no loss shown)",
        ),
        (
            after(-0.02, -0.03, -0.01, 12.3, 0.5),
            "12× smaller, 2.0× slower, accuracy 89.9 → 87.9 % (difference −2.0 points, −3.0 to −1.0: a loss)",
        ),
        (
            after(0.01, 0.004, 0.02, 1.01, 1.03),
            "of the same size, as fast, accuracy 89.9 → 90.9 % (difference 1.0 points, 0.4 to 2.0: a gain)",
        ),
        (after(0, 0, 0, figures={}), "3.9× smaller, 2.1× faster, quality not comparable"),
    ],
)
def test_the_verdict_is_one_sentence(model, sentence: str):
    card = made_up_card(model)
    assert card.verdict == sentence and card.lines()[0] == sentence


def test_a_higher_perplexity_is_a_loss():
    gap = PairedDifference("perplexity", 0.3, 0.1, 0.5)
    against = made_up_against(0, 0, 0, 4.0, 2.0)
    against.differences["perplexity"] = gap
    figures = {"perplexity": 23.7}
    model = made_up_model("int4", 0, 10, 2.0, figures=figures, against=against)
    before = made_up_model("gpt", 0, 40, 1.0, figures={"perplexity": 23.4})
    card = made_up_card(models=[before, model], metric="perplexity", kind="text", task="")
    assert card.verdict.endswith("perplexity 23.40 → 23.70 (difference 0.30, 0.10 to 0.50: a loss)")
    better, worse = (float(y) for y in re.findall(r'cy="([\d.]+)"', picture(card))[:2])
    assert better < worse  # up is better, though lower is better


def test_the_verdict_of_a_chain_names_its_steps():
    card = made_up_chain()
    assert card.verdict.startswith("sst2 → student → pruned → int8: 8.6× smaller, 7.4× faster")
    stepped = made_up_card(after(0, 0, 0, steps=["distil"]), after(0, 0, 0, steps=["distil", "prune", "int8"]))
    assert stepped.verdict.startswith("sst2 → distil → prune → int8: 3.9× smaller")


def test_every_model_is_a_column_of_the_terminal_table():
    lines = made_up_chain().lines()
    heads = lines[2].split()
    assert heads == ["sst2", "student", "pruned", "int8"]
    row = next(line for line in lines if line.startswith("on disk"))
    assert re.split(r"\s{2,}", row) == ["on disk", "91.6 MB", "70.3 MB (÷ 1.3)", "41.0 MB (÷ 2.2)", "10.7 MB (÷ 8.6)"]
    assert any(line.startswith("machine: AMD EPYC, avx2 avx512-vnni, 2 threads") for line in lines)


class Tags(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.text: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attributes) -> None:
        self.found.append(tag)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_names_texts_labels_and_paths_are_escaped():
    shown = (Changed(EVIL, EVIL, EVIL, EVIL, EVIL, "right → wrong"),)
    against = made_up_against(0, -0.1, 0.1, 2, 2, shown)
    card = made_up_card(
        made_up_model(EVIL, 0.9, 10, 2, against=against, folder=EVIL, model=EVIL, precision=EVIL, steps=[EVIL]),
        where=EVIL, task=EVIL, unit=EVIL, notes=[EVIL],
    )  # fmt: skip
    html = card_page(card).decode()
    tags = Tags(html)
    assert "script" not in tags.found and tags.found.count("b") == 4  # the large figures
    assert "<script" not in html and sum("alert('x')" in text for text in tags.text) > 10
    for svg in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        ElementTree.fromstring(svg)


def test_the_page_loads_nothing_and_has_both_drawings(tmp_path: Path):
    page = made_up_chain().write(tmp_path / "new/card").read_text("utf-8")
    assert not re.search(r"https?://|<script|<link|<img|@import|url\(", page)
    assert page.count("<svg") == 2 and "prefers-color-scheme: dark" in page and "@media print" in page
    assert page.count("<circle") == 2 * 4
    assert (tmp_path / "new/card/card.json").is_file()


def test_circles_have_the_areas_of_the_sizes():
    drawing = picture(made_up_chain()).partition("</svg>")[0]
    radii = [float(radius) for radius in re.findall(r' r="([\d.]+)"', drawing)]
    sizes = [91.6, 70.3, 41.0, 10.7]
    assert [(radius / radii[0]) ** 2 for radius in radii] == pytest.approx([size / 91.6 for size in sizes], abs=0.02)


def test_there_is_no_picture_without_quality():
    assert picture(made_up_card(after(0, 0, 0, figures={}))) == ""


def test_a_model_that_cannot_be_compared_is_left_out_of_the_picture():
    whole, unknown = made_up_chain(), after(0, 0, 0, figures={})
    with_one_more = made_up_card(models=[*whole.models, unknown])
    assert picture(with_one_more).count("<circle") == picture(whole).count("<circle")


def test_the_processor_is_read_as_linux_tells_it(tmp_path: Path):
    listed = tmp_path / "cpuinfo"
    listed.write_text("model name\t: AMD EPYC\nflags\t\t: fpu avx2 fma avx512f avx512_vnni avx512_bf16\n")
    assert describe_cpu(listed) == ("AMD EPYC", ["avx2", "fma", "avx512", "avx512-vnni", "avx512-bf16"])
    assert describe_cpu(tmp_path / "none")[1] == []


def test_sizes_are_told_with_three_digits():
    assert [size_text(count) for count in (7, 999, 2_340, 91_600_000, 123_400_000, 4_200_000_000)] == [
        "7 bytes", "999 bytes", "2.3 kB", "91.6 MB", "123 MB", "4.2 GB",
    ]  # fmt: skip
