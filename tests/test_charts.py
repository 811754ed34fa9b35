import json
import re
from html.parser import HTMLParser

import pytest

from weft.charts import Curve, chart, standalone

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "LOW HIGH DATA ID",
    'a"b\\',
    "\u2028', WIDE",
    "</svg>&",
]


class Scripts(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.tags, self.scripts, self.texts = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)

    def handle_data(self, data):
        (self.scripts if self.tags and self.tags[-1] == "script" else self.texts).append(data)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_shown_as_it_is_and_runs_nothing(name):
    points = [(0.0, 1.0), (1.0, 2.0)]
    drawn = Scripts(chart([Curve(name, "#123456", points)], axis=name))
    assert drawn.tags.count("script") == 1 and drawn.tags[-1] == "script"
    script = "".join(drawn.scripts)
    assert "<" not in script.replace("x<x0", "").replace(")<Math.abs(", "")
    data = json.loads(re.search(r"lines=(\[\[.*\]\]\]\]),cursor", script)[1])
    assert data == [[name, [list(point) for point in points]]]
    assert json.loads(re.search(r'say\.textContent=(.*?)\+" "\+Math', script)[1]) == name
    assert "x0=52,x1=764,low=0.0,high=1.0;" in script
    assert name in drawn.texts
    assert "script" not in Scripts(standalone([Curve(name, "#123456", points)], axis=name)).tags
