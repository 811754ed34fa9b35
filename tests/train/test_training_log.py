"""What a run reports, and that it reports the same after a kill."""

import json
import re
from html.parser import HTMLParser

from weft.folders import to_json
from weft.train.report import write_run_report
from weft.train.training_log import TrainingLog, read_metrics


def write_steps(folder, first, last):
    record = TrainingLog(folder, first, last)
    for step in range(first + 1, last + 1):
        record.count(tokens=64, flops=1e6, seconds=0.01)
        facts = {"step": step, "tokens": 64 * step, "loss": 3 / step, "lr": 0.1}
        if step % 2 == 0:
            facts |= {"validation_loss": 4 / step, "bits_per_character": 5 / step, "sample": f"<b>step</b> {step} 诗"}
        record.write(facts)
    record.close()


def test_lines_after_the_step_of_the_checkpoint_are_dropped(tmp_path):
    write_steps(tmp_path, 0, 6)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 7, "lo')  # cut off by a kill
    write_steps(tmp_path, 4, 8)
    assert [line["step"] for line in read_metrics(tmp_path)] == [1, 2, 3, 4, 5, 6, 7, 8]
    seconds = [line["seconds"] for line in read_metrics(tmp_path)]
    assert seconds == sorted(seconds)  # the clock continues, too


def test_tensorboard_shows_the_same_curve_after_resuming(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    write_steps(tmp_path, 0, 6)
    write_steps(tmp_path, 4, 8)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    shown = {event.step: event.value for event in events.Scalars("loss")}
    assert sorted(shown) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert abs(shown[8] - 3 / 8) < 1e-6


class Tags(HTMLParser):
    """Every tag that is opened is closed, in order."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_report_is_one_whole_page_that_needs_nothing_else(tmp_path):
    write_steps(tmp_path, 0, 8)
    (tmp_path / "weft.json").write_bytes(
        to_json({"asked": {"name": "<script>"}, "results": {"parameters": 12, "validation": {"validation_loss": 0.5}}})
    )
    page = write_run_report(tmp_path).read_text("utf-8")
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert tags.seen.count("svg") == 2
    assert "&lt;b&gt;step&lt;/b&gt; 8 诗" in page
    assert "<h1>&lt;script&gt;</h1>" in page
    assert not re.search(r"(src|href)=|https?://", page.replace("http://www.w3.org", ""))
    points = re.search(r"lines=(\[\[.*?\]\]\]\])", page)[1]
    assert json.loads(points)[1][1] == [[2, 2.0], [4, 1.0], [6, 0.66667], [8, 0.5]]


def test_a_run_that_has_not_begun_has_a_report(tmp_path):
    (tmp_path / "weft.json").write_bytes(to_json({"asked": {"name": "early"}}))
    assert "Nothing has been trained yet" in write_run_report(tmp_path).read_text()
