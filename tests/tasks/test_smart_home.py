"""The smart-home sample: tables are what the patterns give, the test set is apart, answers become actions."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOUSE = runpy.run_path(str(ROOT / "examples/smart-home/house.py"))


def rows(name):
    lines = (ROOT / f"examples/tasks/{name}.tsv").read_text("utf-8").splitlines()[1:]
    return [line.split("\t") for line in lines]


def test_the_tables_are_current():
    subprocess.run([sys.executable, ROOT / "scripts/smart_home.py", "--check"], check=True)


@pytest.mark.parametrize("language", ["", "-zh"])
def test_commands_are_well_formed_and_no_command_of_the_test_is_learned(language):
    train, test = rows(f"intent{language}"), rows(f"intent{language}-test")
    assert len(train) > 1000 and len(test) > 100
    assert not [own for own, _, _ in test for words, _, _ in train if f" {own} " in f" {words} "]
    assert {intent for _, _, intent in test} == {intent for _, _, intent in train}
    for words, slots, _ in train + test:
        before = "O"
        for tag in slots.split():
            assert not tag.startswith("I-") or tag[2:] == before[2:]
            before = tag
        assert len(words.split()) == len(slots.split())


def test_what_is_understood_is_done():
    house = HOUSE["House"]()
    assert house.do("turn_on", {"device": "lamp", "room": "kitchen"}) == "lamp in kitchen: on"
    assert house.do("set_brightness", {"value": "30 %"}) == "brightness of lamp in kitchen: 30 %"  # "dim it to 30 %"
    assert house.do("close", {"opening": "blinds"}) == "blinds: closed"
    assert house.do("set_volume", {}).endswith("?")
    assert house.do("set_volume", {"value": "5"}) == "volume of music: 5"
    assert house.do("set_temperature", {"value": "21", "room": "bedroom"}) == "temperature of thermostat in bedroom: 21"
    assert house.do("open", {}) == "blinds: open"  # "open it again"
    unsure = {"intent": "turn_off", "score": 0.3, "slots": []}
    assert HOUSE["answer"](house, unsure) == "Did you mean turn off? Please say it in other words."
    for intent in {intent for _, _, intent in rows("intent")}:
        assert house.do(intent, {}).strip()
