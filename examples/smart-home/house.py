"""A house that understands what it is told: an intent and its slots become an action.

    weft finetune recipes/tasks/intent.yml
    python examples/smart-home/house.py runs/intent/model "turn on the lamp in the kitchen" "dim it to 30 %"

Without commands it reads them from standard input, one per line. The Chinese model of recipes/tasks/intent-zh.yml works
as well: intents and slots have the same names. What is said with a probability below 0.5 is asked back.
"""

import sys
from typing import Any

import weft

LEAST_SCORE = 0.5
SWITCHES = {"turn_on": "on", "turn_off": "off", "open": "open", "close": "closed"}
LEVELS = {  # what is set, and of which thing if none is named
    "set_brightness": ("brightness", "lights"),
    "set_color": ("color", "lights"),
    "set_temperature": ("temperature", "thermostat"),
    "set_volume": ("volume", "music"),
}
STEPS = {"volume_up": "louder", "volume_down": "quieter"}
NOTED = {"play_music": ("music", "music"), "set_timer": ("timer", "duration"), "set_alarm": ("alarm", "time")}


class House:
    def __init__(self) -> None:
        self.state: dict[str, str] = {}  # of each thing
        self.last = "lights"  # what "it" is

    def do(self, intent: str, slots: dict[str, str]) -> str:
        """What the house says."""
        if intent in SWITCHES:
            return self._set(self._named(slots, self.last), SWITCHES[intent])
        if intent in LEVELS:
            what, usual = LEVELS[intent]
            value = slots.get("value") or slots.get("color")
            if value is None:
                return f"To what should I set the {what}?"
            return self._set(f"{what} of {self._named(slots, self.last if usual == 'lights' else usual)}", value)
        if intent in STEPS:
            return self._set(f"volume of {self._named(slots, 'music')}", STEPS[intent])
        if intent in NOTED:
            what, slot = NOTED[intent]
            return self._set(what, slots.get(slot, "not said which"))
        if intent == "stop_music":
            return self._set("music", "off")
        if intent == "ask_temperature":
            return f"I would look at the thermometer: {slots.get('room', 'in here')}."
        if intent == "ask_weather":
            return f"I would ask for the weather: {slots.get('place', 'here')}, {slots.get('day', 'now')}."
        return "That is nothing for me to do."

    def _named(self, slots: dict[str, str], otherwise: str) -> str:
        """The thing that the command names, which is then "it"; otherwise this one."""
        thing = slots.get("device") or slots.get("opening")
        if thing is None and "room" not in slots:
            return otherwise
        found = " in ".join(part for part in (thing or otherwise, slots.get("room")) if part)
        self.last = found if thing else self.last
        return found

    def _set(self, thing: str, value: str) -> str:
        self.state[thing] = value
        return f"{thing}: {value}"


def main(folder: str, commands: list[str]) -> None:
    model, house = weft.load(folder), House()
    for command in commands or filter(None, map(str.strip, sys.stdin)):
        [found] = model.predict([command])
        print(f"> {command}\n  {answer(house, found)}")


def answer(house: House, found: dict[str, Any]) -> str:
    if found["score"] < LEAST_SCORE:
        return f"Did you mean {found['intent'].replace('_', ' ')}? Please say it in other words."
    return house.do(found["intent"], {slot["kind"]: slot["text"] for slot in found["slots"]})


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:])
