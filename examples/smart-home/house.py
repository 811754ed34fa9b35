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
LEVELS = {
    "set_brightness": "brightness",
    "set_volume": "volume",
    "set_temperature": "temperature",
    "set_color": "color",
}
STEPS = {"volume_up": "louder", "volume_down": "quieter"}


class House:
    def __init__(self) -> None:
        self.state: dict[str, str] = {}  # of each thing
        self.last = "lights"  # what "it" is

    def do(self, intent: str, slots: dict[str, str]) -> str:
        """What the house says."""
        if intent in SWITCHES:
            return self._set(self._thing(slots, "device"), SWITCHES[intent])
        if intent in LEVELS:
            value = slots.get("value") or slots.get("color")
            return (
                f"To what should I set the {LEVELS[intent]}?"
                if value is None
                else self._set(f"{LEVELS[intent]} of {self._thing(slots, 'lights')}", value)
            )
        if intent in STEPS:
            return self._set(f"volume of {self._thing(slots, 'music')}", STEPS[intent])
        if intent == "play_music":
            return self._set("music", slots.get("music", "anything"))
        if intent == "stop_music":
            return self._set("music", "off")
        if intent == "set_timer":
            return self._set("timer", slots.get("duration", "not said for how long"))
        if intent == "set_alarm":
            return self._set("alarm", slots.get("time", "not said for when"))
        if intent == "ask_temperature":
            return f"I would look at the thermometer: {slots.get('room', 'in here')}."
        if intent == "ask_weather":
            return f"I would ask for the weather: {slots.get('place', 'here')}, {slots.get('day', 'now')}."
        return "That is nothing for me to do."

    def _thing(self, slots: dict[str, str], otherwise: str) -> str:
        named = slots.get("device") or slots.get("opening")
        if named is None and "room" not in slots and self.last:
            return self.last
        self.last = " in ".join(part for part in (named or otherwise, slots.get("room")) if part)
        return self.last

    def _set(self, thing: str, value: str) -> str:
        self.state[thing] = value
        return f"{thing}: {value}"


def main(folder: str, commands: list[str]) -> None:
    model, house = weft.load(folder), House()
    for command in commands or map(str.strip, sys.stdin):
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
