"""The profile: its stages add up, its last loop is the training itself,
and what it cannot do is said in a line.
"""

import io
import json
import subprocess
import sys

import goldens
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console
from test_train import SMALL

from mnemoscope.cli import profiling
from mnemoscope.core.errors import UserError
from mnemoscope.models.rewrites import (
    gpu_kernel,
    pair_tables,
    score_tables,
    token_counts,
    token_rows,
)
from mnemoscope.models.rewrites.choose import REWRITES
from mnemoscope.report.profile_table import print_profile
from mnemoscope.training import loss, profile
from mnemoscope.training.step import (
    draw,
    numbers_of,
    ravel_params,
    start,
    train_step,
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
    """Each turn depends on what it claims to compute: the tokens, the loss,
    the gradient of every free parameter.
    """
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
            SMALL, world, for_data, STEP, state, numbers_of(SMALL)
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


@pytest.mark.parametrize(
    ("case", "taken"),
    [
        ("permutation, pair tables", "pair tables"),
        ("permutation, pair tables, two layers, pre", "pair tables"),
        ("bigrams, score tables in chunks", "score tables"),
        ("bigrams, plain, two heads", "token rows"),
        ("facts, token counts", "token counts"),
        ("hops, early readout, schedule, watched", "early"),
    ],
)
def test_every_stage_takes_the_pass_that_training_takes(case, taken, monkeypatch):
    spec = goldens.CASES[case]
    used = set()

    def noted(name, run):
        def call(*args, **rest):
            used.add(name)
            return run(*args, **rest)

        return call

    places = {
        "token counts": (token_counts, "last_logits"),
        "pair tables": (pair_tables, "read_logits"),
        "score tables": (score_tables, "read_logits"),
        "token rows": (token_rows, "read_logits"),
        "plain": (loss, "plain_logits"),
        "early": (loss, "early_logits"),
    }
    for name, (module, function) in places.items():
        monkeypatch.setattr(module, function, noted(name, getattr(module, function)))
    for_world, _, for_data = seed_keys(0)
    state = jax.eval_shape(lambda: start(spec, 0))
    for stage in ("loss", "gradient", "optimizer"):
        used.clear()
        jax.eval_shape(
            lambda state, stage=stage: profile._turn(
                stage, spec, spec.task.world(key=for_world), for_data, STEP, state
            ),
            state,
        )
        assert used == {taken}, stage


NO_QUERY = "Not token counts: no one token ends every sequence and asks."
TOO_MANY = "Not pair tables: 65 tokens at 16 positions are 1040 pairs; tables pay up to 300."
EARLY = "answers are read after earlier layers too"


@pytest.mark.parametrize(
    ("case", "lines"),
    [
        (
            "bigrams, plain, two heads",
            [
                "Forward pass: token rows.",
                NO_QUERY,
                TOO_MANY,
                "Not score tables: n_heads=2 (allowed: 1).",
            ],
        ),
        ("bigrams, score tables in chunks", ["Forward pass: score tables.", NO_QUERY, TOO_MANY]),
        (
            "permutation, pair tables",
            [
                "Forward pass: pair tables.",
                NO_QUERY,
                "Attention in the first layer: not the GPU kernel: there is no GPU.",
                "Not score tables: pair tables come first.",
            ],
        ),
        ("facts, token counts", ["Forward pass: token counts.", "Not pair tables: "]),
        (
            "hops, early readout, schedule, watched",
            [
                "Forward pass: plain, read after each layer.",
                *(f"Not {rewrite.name}: {EARLY}." for rewrite in REWRITES),
            ],
        ),
    ],
)
def test_a_profile_names_the_pass_and_why_not_the_others(case, lines):
    said = passes_said(goldens.CASES[case])
    for line in lines:
        assert line in said
    others = [line for line in lines if line.startswith("Not ")]
    n_taken = 0 if "Forward pass: plain" in said else 1
    assert said.count("Not ") == len(REWRITES) - n_taken >= len(others)


@pytest.mark.parametrize(
    ("sizes", "why_not"),
    [
        ((64, 128, 128), None),
        ((65, 32, 128), "65 pairs of a position and a token (allowed: up to 64)"),
        ((45, 129, 128), "d_head=129 (allowed: up to 128)"),
        ((45, 32, 100), "batch=100 (allowed: multiples of 64)"),
    ],
)
def test_the_gpu_kernel_says_why_not(sizes, why_not, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert gpu_kernel.why_not(*sizes) == why_not
    assert gpu_kernel.applies(*sizes) == (why_not is None)


def test_a_profile_on_a_gpu_names_the_kernel(monkeypatch):
    monkeypatch.setattr(gpu_kernel, "why_not", lambda *_: None)
    said = passes_said(goldens.CASES["permutation, pair tables"])
    assert "Attention in the first layer: the GPU kernel." in said


def passes_said(spec):
    """What a profile of this training says after its table."""
    found = profile.Profile(
        spec=spec,
        seeds=1,
        seconds={"loss": 1.0},
        spread={"loss": 0.1},
        compile_seconds={"loss": 2.0},
    )
    out = io.StringIO()
    print_profile(Console(file=out, width=200), "title", found)
    said = " ".join(out.getvalue().split())
    return said[said.index("Forward pass") :]


def test_a_profile_that_cannot_be(capsys):
    with pytest.raises(
        UserError, match=r"unknown condition 'repeat/d32' \(did you mean 'repeat/d32h2'\?\)"
    ):
        profiling.profile("remember", condition="repeat/d32")
    with pytest.raises(UserError, match="--seeds must be 1 to 1,000,000"):
        profiling.profile("remember", seeds=-1)


def test_a_known_spec_is_not_compiled_again_on_a_second_start(tmp_path):
    """The persistent cache: a new process finds every program
    of a training that an earlier one compiled.
    """
    script = f"""
import json, jax
from pathlib import Path
from mnemoscope.execution.machine import use_all_devices
use_all_devices(Path({str(tmp_path)!r}))
# from here on whatever it took to compile: how long that is depends on the machine
within = jax.config.jax_persistent_cache_min_compile_time_secs
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
events = []
jax.monitoring.register_event_listener(lambda event, **_: events.append(event))
from mnemoscope.training.spec import Spec
from mnemoscope.training.compilation import programs
programs(Spec.model_validate_json({SMALL.canonical_json()!r}), 2)
print(json.dumps(
    [within]
    + [events.count("/jax/compilation_cache/cache_" + kind) for kind in ("hits", "misses")]
))
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
