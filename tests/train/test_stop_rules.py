"""A rule may end a run after a validation. Its reason is kept, so that the run stays stopped."""

import json

import pytest
from test_processes import run, spec

from weft.folders import MANIFEST, manifest, to_json
from weft.train.loop import Hooks


def never(facts, state):
    return None


def saved_state(folder, step):
    return folder / f"checkpoints/step-{step:06}/state.json"


def test_a_rule_sees_the_facts_and_ends_the_run_for_good(tmp_path, capsys):
    seen = []

    def rule(facts, state):
        seen.append((facts["step"], facts["validation_loss"] > 0, state.step))
        return "the figure is good enough" if facts["step"] == 4 else None

    hooks = Hooks(stop_rules=[never, rule])
    _, state = run(tmp_path, settings=spec(20), hooks=hooks)
    assert seen == [(2, True, 2), (4, True, 4)]
    assert (state.step, state.stopped) == (4, "the figure is good enough")
    assert "Stopping early at step 4: the figure is good enough." in capsys.readouterr().err
    assert json.loads(saved_state(tmp_path, 4).read_text())["stopped"] == state.stopped
    _, again = run(tmp_path, settings=spec(20), resume=True, hooks=Hooks(stop_rules=[never]))
    assert again == state


def test_a_rule_has_nothing_to_stop_at_the_last_step(tmp_path, capsys):
    _, state = run(tmp_path, settings=spec(2), hooks=Hooks(stop_rules=[lambda facts, state: "too late"]))
    assert (state.step, state.stopped) == (2, None)
    assert "Stopping early" not in capsys.readouterr().err


@pytest.mark.parametrize(("waited", "steps"), [(3, 4), (2, 8)])
def test_a_checkpoint_of_an_earlier_version_stays_stopped_by_its_patience(waited, steps, tmp_path):
    """Those kept `waited` alone, without a reason."""
    run(tmp_path, settings=spec(4))
    file = saved_state(tmp_path, 4)
    state = json.loads(file.read_text())
    del state["stopped"]
    file.write_text(json.dumps(state | {"waited": waited}))
    (file.parent / MANIFEST).unlink()
    (file.parent / MANIFEST).write_bytes(to_json(manifest(file.parent)))
    _, resumed = run(tmp_path, settings=spec(8, patience=3), resume=True)
    assert resumed.step == steps
