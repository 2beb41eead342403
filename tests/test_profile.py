"""The profile: its stages add up, its last loop is the training itself, and what it cannot do is said in a line."""

import io
import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console
from test_train import SMALL

from mnemoscope import cli
from mnemoscope.core.errors import UserError
from mnemoscope.report.speed import print_profile
from mnemoscope.training import profile
from mnemoscope.training.step import (
    draw,
    ravel_params,
    start,
    train_step,
    unfreeze_step_of_each,
    unravel_params,
)
from mnemoscope.training.worlds import seed_keys

STEP = jnp.array(5)


def test_stages_add_up_to_the_step(monkeypatch, tmp_path):
    monkeypatch.setattr(profile, "TARGET", 0.01)
    told = []
    found = profile.profile(SMALL, 3, repeats=2, tell=told.append)
    assert tuple(found.seconds) == profile.STAGES
    assert found.step == pytest.approx(sum(found.seconds.values()))
    assert found.rate == pytest.approx(3 * SMALL.batch / found.step)
    assert told[0] == "compiling: draw the batch"
    assert told[-1] == "timing: optimizer"
    out = io.StringIO()
    print_profile(Console(file=out, width=100), "small", found)
    for word in (*profile.STAGES, "samples/s", "d_model 8", "3 seeds"):
        assert word in out.getvalue()
    profile.write_trace(SMALL, 1, tmp_path)
    assert list(tmp_path.rglob("*.trace.json.gz"))


def test_every_stage_does_its_work():
    """Each turn depends on what it claims to compute: the tokens, the loss, the gradient of every free parameter."""
    for_world, _, for_data = seed_keys(0)
    world, state = SMALL.task.world(key=for_world), start(SMALL, 0)

    @jax.jit  # one program: nothing is compiled operation by operation
    def turns(state):
        return {
            stage: profile._turn(stage, SMALL, world, for_data, STEP, state)
            for stage in profile.STAGES
        }

    @jax.jit
    def whole(state):
        return draw(SMALL, world, for_data, STEP), train_step(
            SMALL, world, for_data, STEP, state, unfreeze_step_of_each(SMALL)
        )

    turn, (batch, after_step) = turns(state), whole(state)
    assert int(turn["draw the batch"].finite_steps) == int(batch.tokens.sum() + batch.targets.sum())
    np.testing.assert_allclose(turn["optimizer"].trained, after_step.trained, atol=1e-6)
    assert np.abs(after_step.trained - state.trained).max() > 1e-4, (
        "a step is larger than what is allowed above"
    )
    params = unravel_params(SMALL, state.trained)
    wild = turns(
        state._replace(
            trained=ravel_params(SMALL, params | {"unembed.W_U": params["unembed.W_U"] * np.nan})
        )
    )
    for stage in ("loss", "gradient"):
        assert all(
            np.isnan(value).any() for value in unravel_params(SMALL, wild[stage].trained).values()
        ), stage


def test_a_profile_that_cannot_be(capsys):
    with pytest.raises(
        UserError, match=r"unknown condition 'repeat/d32' \(did you mean 'repeat/d32h2'\?\)"
    ):
        cli.profile("remember", condition="repeat/d32")
    with pytest.raises(UserError, match="--seeds must be 1 to 1,000,000"):
        cli.profile("remember", seeds=-1)


def test_a_known_spec_is_not_compiled_again_on_a_second_start(tmp_path):
    """The persistent cache: a new process finds every program of a training that an earlier one compiled."""
    script = f"""
import json, jax
from pathlib import Path
from mnemoscope.execution.local import use_all_devices
use_all_devices(Path({str(tmp_path)!r}))
# from here on whatever it took to compile: how long that is depends on the machine
within = jax.config.jax_persistent_cache_min_compile_time_secs
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
events = []
jax.monitoring.register_event_listener(lambda event, **_: events.append(event))
from mnemoscope.training.spec import Spec
from mnemoscope.training.programs import programs
programs(Spec.model_validate_json({SMALL.canonical_json()!r}), 2)
print(json.dumps([within] + [events.count("/jax/compilation_cache/cache_" + kind) for kind in ("hits", "misses")]))
"""
    (within, hits, misses), again = (json.loads(run_python(script)) for _ in range(2))
    assert within == 0.1, "what takes longer is worth a file"
    assert hits == 0
    assert misses >= 2
    assert again == [within, misses, 0]


def run_python(script):
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()[-1]
