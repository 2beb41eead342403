"""One identity: nothing that trains otherwise passes for what is stored,
and what is stored says who trained it.

Each of these was possible in 0.1, without a warning.
"""

import json
import subprocess
import sys

import goldens
import jax
import numpy as np
import pytest

from mnemoscope.core import fingerprint
from mnemoscope.core.errors import UserError
from mnemoscope.core.fingerprint import LAZY_COMPILER, TrainedBy, trained_by
from mnemoscope.execution.local import load_or_train
from mnemoscope.models import ModelConfig
from mnemoscope.tasks import Permutation
from mnemoscope.training import loss
from mnemoscope.training.loop import fit
from mnemoscope.training.optimizers import Adam
from mnemoscope.training.spec import Spec
from mnemoscope.training.worlds import world_hashes

SPEC = Spec(
    task=Permutation(n_symbols=3),
    model=ModelConfig(d_model=4, n_heads=1, d_mlp=0),
    steps=4,
    batch=4,
    snapshots=3,
)


# ---- classes


class Reversed(Permutation):
    """A task of somebody's own, under its parent's kind."""

    def sample(self, world, *, key):
        example = super().sample(world, key=key)
        return example._replace(targets=example.targets[::-1])


class Wider(ModelConfig):
    """A model with a field of its own, which 0.1 left out of the JSON."""

    window: int = 3


class Decaying(Adam):
    """An optimizer of somebody's own, which 0.1 stored as Adam."""


class OwnSpec(Spec):
    """A Spec of somebody's own."""


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Spec(task=Reversed()), "task: Reversed is a class of its own"),
        (lambda: Spec(task=Permutation(), model=Wider()), "model: Wider is a class of its own"),
        (lambda: Spec(task=Permutation(), optimizer=Decaying()), "optimizer: Decaying is a class"),
        (lambda: OwnSpec(task=Permutation()), "OwnSpec extends Spec"),
        (lambda: SPEC.model_copy(update={"task": Reversed()}), "task: Reversed is a class of its"),
        (lambda: SPEC.model_copy(update={"tusk": 1}), "unknown key of Spec 'tusk'"),
    ],
)
def test_a_class_that_is_not_the_known_one_is_refused_when_the_spec_is_made(make, said):
    with pytest.raises(UserError, match=said) as refused:
        make()
    assert "\n" not in str(refused.value)
    assert "allowed: " in str(refused.value)


def test_what_is_written_down_is_what_an_object_is_and_not_what_its_field_says():
    """By runtime type: past all checks, a subclass's own fields still reach the JSON."""
    task = Permutation()
    spec = Spec.model_construct(**{**dict(Spec(task=task)), "model": Wider(window=5)})
    assert json.loads(spec.canonical_json())["model"]["window"] == 5
    assert spec.digest() != Spec(task=task).digest()


def test_configurations_are_equal_by_their_fields():
    """Also after tables were computed from them: 0.1 compared these, and raised."""
    from mnemoscope.tasks.corpus import Corpus, tiny_shakespeare

    one = tiny_shakespeare()
    two = Corpus(**{name: getattr(one, name) for name in Corpus.model_fields})
    assert one.bigrams.shape == two.bigrams.shape
    assert one == two
    assert hash(one) == hash(two)
    assert one != two.model_copy(update={"name": "another"})


# ---- programs


def doubled(logits, targets, vocab_axis=-1):
    """A loss of somebody's own."""
    return 2 * CROSS_ENTROPY(logits, targets, vocab_axis)


CROSS_ENTROPY = loss.cross_entropy


@pytest.mark.parametrize("name", ["permutation, pair tables", "bigrams, score tables in chunks"])
def test_another_loss_counts_in_every_pass_and_is_another_program(name, monkeypatch, store):
    spec = goldens.CASES[name]
    usual = load_or_train(store, spec, [0])
    monkeypatch.setattr(loss, "cross_entropy", doubled)
    origin = trained_by()
    assert [where for where, _ in origin.replaced] == ["mnemoscope.training.loss.cross_entropy"]
    run = fit(spec, [0])
    assert run.losses[0, 0] == pytest.approx(2 * usual.losses[0, 0], rel=1e-5)
    assert run.origins == (origin,)
    assert origin.program() != usual.origins[0].program()
    store.save(run, 1.0, "a machine")
    assert len(store.rows()) == 2, "both are kept, each under its own program"
    np.testing.assert_array_equal(load_or_train(store, spec, [0]).losses, run.losses)
    monkeypatch.undo()
    np.testing.assert_array_equal(load_or_train(store, spec, [0]).losses, usual.losses)


def test_a_changed_constant_or_method_is_another_program(monkeypatch):
    usual = trained_by()
    monkeypatch.setattr(loss, "FEW", 1 / 2)
    monkeypatch.setattr(Permutation, "sample", Reversed.sample)
    names = [where for where, _ in trained_by().replaced]
    assert names == [
        "mnemoscope.tasks.permutation.Permutation.sample",
        "mnemoscope.training.loss.FEW",
    ]
    monkeypatch.undo()
    assert trained_by() == usual


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ("from mnemoscope.training import loss as at; at.FEW = 1 / 2", "training.loss.FEW"),
        (
            "from mnemoscope.probes import weight_memories as at; at.output_memory = print",
            "probes.weight_memories.output_memory",
        ),
        (
            "from mnemoscope import Permutation as at; at.sample = print",
            "tasks.permutation.Permutation.sample",
        ),
    ],
)
def test_what_is_changed_before_anything_else_is_loaded_is_another_program(change, name):
    """Nothing that trains is loaded yet,
    so nobody but the import itself could have seen what stood there.
    """
    script = (
        f"{change}\n"
        "from mnemoscope.core.fingerprint import trained_by\n"
        "import mnemoscope.training.loop\n"
        "print(trained_by().replaced)"
    )
    out = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    assert f"('mnemoscope.{name}', " in out


def test_source_is_compared_by_what_it_does(tmp_path, monkeypatch):
    monkeypatch.setattr(fingerprint, "PACKAGE", tmp_path)

    def of(text):
        (tmp_path / "x.py").write_text(text)
        fingerprint._digests.clear()
        return fingerprint.source_fingerprint("x.py")

    first = of('"""One."""\ndef f(x):\n    """Two."""\n    return x + 1  # three\n')
    assert of("def f(x):\n    return (x\n            + 1)\n") == first
    assert of("def f(x):\n    return x + 2\n") != first
    assert of("def g(x):\n    return x + 1\n") != first
    field = of("class A:\n    x: int = 1\n    y: int = 2\n")
    assert of('class A:\n    x: int = 1\n    """One."""\n    y: int = 2\n') == field
    assert of("class A:\n    x: int = 1\n    f()\n    y: int = 2\n") != field


def test_what_trains_is_all_in_the_fingerprint():
    """Every module that training and its metrics load from the package, but for words and files."""
    # types, how many devices there are, errors, this, and what shows or sends numbers
    core = (
        "attention_maps",
        "axes",
        "code_identity",
        "devices",
        "errors",
        "fingerprint",
        "import_record",
        "kind_class",
        "kinds",
        "notebook",
        "source",
        "strict",
        "theme",
        "users_code",
        "working",
    )
    # what a model is asked in a reader's hand: metrics call `Transformer.run_with_trace` alone
    in_the_hand = (
        "activation_cache",
        "batched_pass",
        "cached_sites",
        "factored_matrix",
        "hooked_model",
        "hooks",
        "next_token",
        "parts",
        "prompts",
        "stack",
        "transformer_lens_config",
        "transformer_lens_fields",
        "transformer_lens_names",
        "weights",
    )
    # what refuses a task or a number of seeds, and changes nothing of one that it lets through
    harmless = (*core, "sinks", "first_look", "limits", "by_seed", *in_the_hand)
    script = (
        "import sys, mnemoscope.training.loop, mnemoscope.training.metrics; "
        "print(*[m for m in sys.modules if m.startswith('mnemoscope.')])"
    )
    out = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    files = {fingerprint.PACKAGE.joinpath(*name.split(".")[1:]) for name in out.split()}
    modules = {file.with_suffix(".py") for file in files if file.with_suffix(".py").is_file()}
    covered = [fingerprint.PACKAGE / part for part in fingerprint.TRAINING]
    left = {file.stem for file in modules if not any(file.is_relative_to(part) for part in covered)}
    assert left == set(harmless)


ENVIRONMENTS = {
    "JAX_ENABLE_X64": "1",
    "JAX_DEFAULT_PRNG_IMPL": "rbg",
    "JAX_THREEFRY_PARTITIONABLE": "0",
    "JAX_RANDOM_SEED_OFFSET": "7",
    "JAX_DEFAULT_MATMUL_PRECISION": "bfloat16",
}
CHILD = """
import json, sys
sys.path.insert(0, {tests!r})
import goldens
from mnemoscope.core.fingerprint import trained_by
from mnemoscope.training.loop import fit
from mnemoscope.training.worlds import world_hashes
from mnemoscope.tasks import Permutation
name = "permutation, pair tables"
run = fit(goldens.CASES[name], goldens.SEEDS)
print(json.dumps([
    run.losses.tolist(),
    world_hashes(Permutation(), [0, 1]).tolist(),
    trained_by().model_dump(mode="json"),
]))
"""


def child(**environment):
    import os
    import subprocess
    import sys
    from pathlib import Path

    script = CHILD.format(tests=str(Path(__file__).parent))
    result = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert result.returncode == 0, result.stderr
    losses, worlds, origin = json.loads(result.stdout.splitlines()[-1])
    return np.array(losses), worlds, TrainedBy.model_validate(origin)


def test_the_users_environment_changes_no_number():
    """All five variables at once: each alone gave other numbers under the same digest."""
    losses, worlds, origin = child(**ENVIRONMENTS)
    frozen = goldens.read("losses.json")["permutation, pair tables"]
    np.testing.assert_allclose(losses, frozen, atol=1e-5, rtol=0)
    assert worlds == world_hashes(Permutation(), [0, 1]).tolist()
    assert origin == trained_by()
    assert (origin.prng, origin.x64, origin.seed_offset) == ("threefry2x32", False, 0)


def test_flags_that_change_numbers_are_part_of_the_program(monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    usual = trained_by()
    lazy = jax.config.read(LAZY_COMPILER)
    by_switch = (LAZY_COMPILER,) if lazy else ()
    assert usual.xla_flags == by_switch
    monkeypatch.setenv(
        "XLA_FLAGS", "--xla_force_host_platform_device_count=3 --xla_cpu_multi_thread_eigen=false"
    )
    assert trained_by().program() == usual.program()
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    assert trained_by().xla_flags == ("--xla_cpu_enable_fast_math=true", *by_switch)
    assert trained_by().program() != usual.program()
    monkeypatch.delenv("XLA_FLAGS")
    jax.config.update(LAZY_COMPILER, not lazy)
    try:
        assert trained_by().xla_flags == (() if lazy else (LAZY_COMPILER,))
    finally:
        jax.config.update(LAZY_COMPILER, lazy)
