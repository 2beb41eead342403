"""Precision is part of a Spec: of its identity where it is not the usual one, and its program."""

import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from asking import Asking
from rich.console import Console

from mnemoscope.cli.stored_runs import _describe
from mnemoscope.core.errors import UserError
from mnemoscope.execution import local
from mnemoscope.explorer import describe_run
from mnemoscope.models import ModelConfig, parameter_shapes
from mnemoscope.models.precision import lowered
from mnemoscope.models.rewrites.choose import REWRITES, choose_rewrite
from mnemoscope.report.profile_table import print_profile
from mnemoscope.tasks import Bigrams, Example, Permutation
from mnemoscope.training import loss, profile
from mnemoscope.training.loop import fit
from mnemoscope.training.optimizers import Adam
from mnemoscope.training.spec import Spec

TASK = Bigrams(length=16, loss="all")
MODEL = ModelConfig(d_model=16, n_heads=2, n_layers=2, d_mlp=32, norm="pre")
SPEC = Spec(task=TASK, model=MODEL, steps=30, batch=16, snapshots=1, optimizer=Adam(lr=0.01))


def at(precision, spec=SPEC):
    return spec.model_copy(update={"precision": precision})


# ---- identity


def test_the_usual_precision_says_nothing():
    stated = at("default")
    assert "precision" not in stated.canonical_json()
    assert stated.digest() == SPEC.digest()
    assert Spec.model_validate_json(SPEC.canonical_json()).precision == "default"


@pytest.mark.parametrize("precision", ["highest", "bfloat16"])
def test_another_precision_is_another_spec(precision):
    other = at(precision)
    assert f'"precision":"{precision}"' in other.canonical_json()
    assert Spec.model_validate_json(other.canonical_json()) == other
    assert other.digest() != SPEC.digest()
    assert other.compile_key() != SPEC.compile_key()
    assert f"precision='{precision}'" in repr(other)


def test_a_precision_that_there_is_not():
    with pytest.raises(UserError, match=r"precision: Input should be 'default', 'highest' or"):
        at("float16")


def test_a_precision_is_shown_with_the_run(store, capsys):
    """By `runs` and in the explorer; the usual one is not."""
    for spec in (SPEC, at("bfloat16")):
        short = spec.model_copy(update={"steps": 2})
        run = local.load_or_train(store, short, [0])
        other = spec.precision != "default"
        description = describe_run(run, "one").about
        assert ("in precision bfloat16" in description) == other
    assert sorted("bfloat16" in " ".join(_describe(row)) for row in store.rows()) == [False, True]


# ---- which pass


def test_a_rewrite_says_whether_it_has_bfloat16():
    remember = Permutation()
    why_not = {
        each.name: each.why_not(ModelConfig(), remember, "bfloat16") or "" for each in REWRITES
    }
    assert why_not["pair tables"] == "precision='bfloat16' (allowed: 'default', 'highest')"
    assert choose_rewrite(ModelConfig(), remember, "highest").name == "pair tables"
    assert choose_rewrite(ModelConfig(), remember, "bfloat16").name == "token rows"


def test_a_profile_says_the_precision():
    found = profile.Profile(
        spec=at("bfloat16", SPEC.model_copy(update={"task": Permutation()})),
        seeds=1,
        seconds={"loss": 1.0},
        spread={"loss": 0.1},
        compile_seconds={"loss": 2.0},
    )
    out = io.StringIO()
    print_profile(Console(file=out, width=80), "remember", found)
    said = " ".join(out.getvalue().split())
    assert "precision bfloat16" in said
    assert "Not pair tables: precision='bfloat16' (allowed: 'default', 'highest')." in said


# ---- numbers


def drawn(config, seed=0):
    rng = np.random.default_rng(seed)
    params = {
        name: jnp.asarray(float(name.endswith(".w")) + 0.2 * rng.normal(size=size), jnp.float32)
        for name, size in parameter_shapes(config, 7, 9).items()
    }
    tokens, targets = jnp.asarray(rng.integers(0, 7, (2, 8, 9)))
    return params, Example(tokens, targets, jnp.ones(tokens.shape))


@pytest.mark.parametrize(
    "fields",
    [
        {"norm": "pre"},
        {"norm": "post", "norm_type": "rms", "positions": "sinusoidal"},
        {"attention": "relu", "positions": "rotary", "gated_mlp": True, "causal": False},
    ],
)
def test_bfloat16_is_near_float32_by_every_pass(fields):
    """A bfloat16 has eight bits: a loss is within a hundredth, a gradient within a tenth, and both
    are float32 numbers that are not those of float32.
    """
    config = ModelConfig(d_model=8, n_heads=2, n_layers=2, d_mlp=8, **fields)
    params, batch = drawn(config)
    task = Asking(tokens=7, length=9)
    token_rows = next(each for each in REWRITES if each.name == "token rows")

    @jax.jit
    def routes(p):
        def by(precision, rewrite):
            return jax.value_and_grad(
                lambda p: loss.batch_loss(task, config, lowered(p, precision), batch, rewrite)
            )(p)

        return [by("default", None), by("bfloat16", None), by("bfloat16", token_rows)]

    exact, *low = (
        (float(x), np.concatenate([np.ravel(gradient[n]) for n in params]))
        for x, gradient in routes(params)
    )
    for value, gradient in low:
        assert gradient.dtype == np.float32
        assert 0 < abs(value - exact[0]) < 0.01 * exact[0]
        off = np.linalg.norm(gradient - exact[1]) / np.linalg.norm(exact[1])
        assert 1e-4 < off < 0.1


def test_norms_softmax_and_logits_are_wide_in_bfloat16():
    """No exponential and no root of a norm is taken of bfloat16, by either pass."""
    config = ModelConfig(d_model=8, n_heads=2, d_mlp=8, norm="pre")
    params, batch = drawn(config)
    task = Asking(tokens=7, length=9)
    for rewrite in (None, next(each for each in REWRITES if each.name == "token rows")):
        text = str(
            jax.make_jaxpr(
                lambda p, rewrite=rewrite: loss.batch_loss(
                    task, config, lowered(p, "bfloat16"), batch, rewrite
                )
            )(params)
        )
        assert "dot_general" in text
        for operation in ("exp ", "rsqrt ", "sqrt ", "log "):
            lines = [line for line in text.splitlines() if f"= {operation}" in line]
            assert all("bf16" not in line for line in lines), lines
        products = [line for line in text.splitlines() if "= dot_general" in line]
        # 8 sequences of 9 tokens; a norm's shift meets the weights in float32
        of_rows = [line for line in products if ("[72," in line or "[8," in line or "[9," in line)]
        assert of_rows
        assert all("bf16" in line for line in of_rows), of_rows


@pytest.mark.parametrize("precision", ["highest", "bfloat16"])
def test_training_in_another_precision_learns_the_same(precision):
    usual = fit(SPEC, [0, 1])
    other = fit(at(precision), [0, 1])
    assert other.finished.all()
    assert other.snapshots["embed.W_E"].dtype == np.float32
    late = slice(20, None)
    gained = usual.losses[:, :3].mean() - usual.losses[:, late].mean()
    assert gained > 0.3
    assert abs(other.losses[:, late].mean() - usual.losses[:, late].mean()) < 0.1 * gained


def test_highest_asks_for_products_of_whole_floats():
    """Every product of the loss and its gradient, whatever pass; the usual precision asks for
    nothing.
    """
    config = ModelConfig(d_model=8, n_heads=2)
    params, batch = drawn(config)
    task = Asking(tokens=7, length=9)
    for precision in ("default", "highest"):
        lowered_program = jax.jit(
            lambda p, precision=precision: loss.loss_and_gradient(
                task, config, p, {}, batch, precision
            )
        ).lower(params)
        lines = [x for x in lowered_program.as_text().splitlines() if "dot_general" in x]
        assert lines
        asked = ["HIGHEST" in line for line in lines]
        assert all(asked) if precision == "highest" else not any(asked)
