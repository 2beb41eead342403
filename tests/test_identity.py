"""One identity: nothing that trains otherwise passes for what is stored,
and what is stored says who trained it.

Each of these was possible in 0.1, without a warning.
"""

import json
import shutil
import subprocess
import sys
import warnings
from functools import partial, wraps
from typing import ClassVar

import goldens
import jax
import numpy as np
import pytest
from test_studies import Watch

from mnemoscope.cli import stored_runs, visualize
from mnemoscope.core import fingerprint
from mnemoscope.core.errors import Notice, UserError
from mnemoscope.core.fingerprint import TrainedBy, code_of, trained_by
from mnemoscope.execution import cluster, local, retrain
from mnemoscope.execution.local import load_or_train, select
from mnemoscope.models import ModelConfig
from mnemoscope.store import Store
from mnemoscope.studies.claims import Claim, ClaimTest, Condition, Outcome, Study
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.walk.command import command as walk_command
from mnemoscope.studies.runner import finding_key, judging_fingerprint, run_study
from mnemoscope.tasks import Permutation
from mnemoscope.tasks.permutation import Split
from mnemoscope.training import loop, loss
from mnemoscope.training.loop import fit
from mnemoscope.training.optimizers import Adam
from mnemoscope.training.run import Run
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
        fingerprint._file_digest.cache_clear()
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
        "axes",
        "devices",
        "errors",
        "fingerprint",
        "import_record",
        "notebook",
        "strict",
        "theme",
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
        "prompts",
        "stack",
        "transformer_lens_config",
        "transformer_lens_fields",
        "weights",
    )
    harmless = (*core, "sinks", *in_the_hand)
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
    usual = trained_by()
    monkeypatch.setenv(
        "XLA_FLAGS", "--xla_force_host_platform_device_count=3 --xla_cpu_multi_thread_eigen=false"
    )
    assert trained_by().program() == trained_by().model_copy(update={"xla_flags": ()}).program()
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    assert trained_by().xla_flags == ("--xla_cpu_enable_fast_math=true",)
    assert trained_by().program() != usual.program()
    monkeypatch.delenv("XLA_FLAGS")
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        assert trained_by().xla_flags == ("jax_disable_most_optimizations",)
    finally:
        jax.config.update("jax_disable_most_optimizations", False)


# ---- the store


def other_program(monkeypatch, **changes):
    """From now on another program trains here."""
    real = trained_by()
    other = real.model_copy(update={"source": "another", **changes})
    for module in (loop, local, cluster, retrain, fingerprint):
        if hasattr(module, "trained_by"):
            monkeypatch.setattr(module, "trained_by", lambda: other)
    for name in ("evidence", "runner"):
        monkeypatch.setattr(f"mnemoscope.studies.{name}.trained_by", lambda: other)
    return other


def test_seeds_of_two_programs_are_never_joined(store, monkeypatch):
    old = load_or_train(store, SPEC, range(3))
    other = other_program(monkeypatch)
    with pytest.warns(
        Notice, match=r"was trained by Mnemoscope .*, not by this program; it is used as that"
    ):
        again = load_or_train(store, SPEC, range(2))
    assert again.origins == old.origins, "what is finished is not repeated"
    more = load_or_train(store, SPEC, range(5))
    assert more.origins == (other,), "but what is missing is not joined to it"
    assert len(store.rows()) == 2
    assert store.check() == []
    assert load_or_train(store, SPEC, range(3)).origins == (other,)


def test_a_checkpoint_of_another_program_is_not_resumed(store, monkeypatch):
    """Killed under one program, started again under another: from the beginning."""

    class CutOffError(Exception):
        pass

    def cut(done, _):
        if done >= 2:
            raise CutOffError

    monkeypatch.setattr(local._StoreCheckpointer, "is_due", lambda self: True)
    with pytest.raises(CutOffError):
        load_or_train(store, SPEC, [0], progress=cut)
    assert len(list(store.folder.rglob("*.part"))) == 1
    other_program(monkeypatch)
    told = []
    load_or_train(store, SPEC, [0], progress=lambda done, _: told.append(done))
    assert told[0] == 1


def test_a_deleted_run_leaves_no_checkpoint_to_go_on_from(store, monkeypatch):
    """The power goes between storing a block and dropping its checkpoint;
    then the run is deleted and trained anew.
    """
    monkeypatch.setattr(local._StoreCheckpointer, "is_due", lambda self: True)
    monkeypatch.setattr(local._StoreCheckpointer, "drop", lambda self: None)
    load_or_train(store, SPEC, range(2))
    assert list(store.folder.rglob("*.part"))
    stored_runs.runs(SPEC.digest(), delete=True, store=store.folder)
    assert not list(store.folder.rglob("*.part"))
    assert store.check() == []
    told = []
    load_or_train(store, SPEC, range(2), progress=lambda done, _: told.append(done))
    assert told[0] == 2 * 1


def test_a_mixture_is_named_in_the_verdict(store, monkeypatch):
    device = trained_by().model_copy(update={"device": "NVIDIA H200"})
    here, there = fit(SPEC, range(8)), fit(SPEC, range(8, 16))
    mixed = select([here, Run(**{**vars(there), "origins": (device,)})], tuple(range(16)))
    assert mixed.origins == (here.origins[0], device)

    def judged(run):
        evidence = Evidence("quick", {"a": Condition(SPEC, len(run.seeds))}, lambda name: run)
        return evidence.finding(
            ("a",), lambda evidence: Outcome("reproduced", 1.0, (1.0, 1.0), "So it is.")
        ).sentence

    assert judged(here) == "So it is."
    program = trained_by().program()[:8]
    version = trained_by().mnemoscope
    by = f"Mnemoscope {version}, program {program}, on"
    assert (
        judged(mixed) == f"So it is. Trained by {by} {trained_by().device}: a; {by} NVIDIA H200: a."
    )
    old = Run(**{**vars(here), "origins": (None,)})
    assert (
        judged(old)
        == "So it is. Trained by Mnemoscope 0.1, which kept no fingerprint, and judged by another."
    )


def test_a_second_metric_never_replaces_what_the_first_one_read(store):
    def first(model, world):
        return {"first": model.params["embed.W_E"].sum()}

    def second(model, world):
        return {"second": model.params["embed.W_E"].max()}

    def both(model, world):
        return {**first(model, world), **second(model, world)}

    store.save(fit(SPEC, [0], first), 1.0, "m")
    with pytest.raises(UserError, match=r"is stored with what another metric read \(first\)"):
        store.save(fit(SPEC, [0], second), 1.0, "m")
    with pytest.raises(UserError, match=r"what another metric read \(first\)"):
        store.save(
            fit(SPEC, [0], lambda model, world: {"first": 2 * model.params["embed.W_E"].sum()}),
            1.0,
            "m",
        )
    assert list(store.load(store.rows()[0]).metrics) == ["first"]
    store.save(fit(SPEC, [0], both), 1.0, "m")
    assert set(store.load(store.rows()[0]).metrics) == {"first", "second"}


def test_an_unknown_kind_is_unknown_and_not_damaged(store, capsys):
    """A run of an extension that is not loaded: listed, checked and deleted, and never repaired."""
    from mnemoscope.store.checksums import sha256
    from mnemoscope.store.schema import put_with_checksum

    load_or_train(store, SPEC, range(2))
    (row,) = store.rows()
    text = row.spec_json.replace('"kind":"permutation"', '"kind":"copy-back"')
    spec = sha256(text.encode())[:16]
    file = f"runs/{spec}/0-1.{row.program[:8]}.safetensors"
    (store.folder / file).parent.mkdir()
    shutil.copy(store.folder / row.file, store.folder / file)
    fields = row._replace(spec=spec, spec_json=text, file=file)[:-1]
    with store.db:
        put_with_checksum(store.db, "runs", fields)
    unknown = store.find(spec)
    with pytest.raises(
        UserError, match=r"is of a kind that is unknown here, not damaged .*'copy-back'"
    ):
        store.load(unknown)
    assert store.check() == []
    stored_runs.check(repair=True, store=store.folder)
    stored_runs.runs(store=store.folder)
    assert "copy-back" in capsys.readouterr().out
    stored_runs.runs(spec, delete=True, store=store.folder)
    assert [each.spec for each in store.rows()] == [SPEC.digest()]


# ---- worlds


def test_a_world_that_is_drawn_otherwise_now_is_refused(store, monkeypatch):
    load_or_train(store, SPEC, range(2))
    usual = Permutation.world

    def swapped(self, *, key):
        """The training mappings in another order: most would be judged as held out."""
        split = usual(self, key=key)
        return Split(split.train[::-1], split.held_out[::-1])

    run = store.load(store.rows()[0])
    run.worlds()
    run.world(1)
    monkeypatch.setattr(Permutation, "world", swapped)
    for read in (run.worlds, partial(run.world, 1)):
        with pytest.raises(
            UserError, match=r"the world that 'permutation' draws for seed [01] now is not the one"
        ):
            read()


def test_each_seed_has_its_own_world_hash():
    hashes = world_hashes(Permutation(), range(5))
    assert hashes.shape == (5, 32)
    assert len({row.tobytes() for row in hashes}) == 5
    one = world_hashes(Permutation(split_seed=3), range(5))
    assert len({row.tobytes() for row in one}) == 1


# ---- measures and judges


def test_measures_are_kept_by_function_and_not_by_name():
    run = fit(SPEC, range(8))
    evidence = Evidence("quick", {"a": Condition(SPEC, 8)}, lambda name: run)
    ones = evidence.measure("a", lambda task, model, world: model.params["embed.W_E"].sum() * 0 + 1)
    twos = evidence.measure("a", lambda task, model, world: model.params["embed.W_E"].sum() * 0 + 2)
    assert (ones.tolist(), twos.tolist()) == ([1.0] * 8, [2.0] * 8)

    def scaled(factor, task, model, world):
        return model.params["embed.W_E"].sum() * 0 + factor

    assert evidence.measure("a", partial(scaled, 3.0)).tolist() == [3.0] * 8
    assert evidence.measure("a", partial(scaled, 4.0)).tolist() == [4.0] * 8


def judge_text(verdict, helper="1.0"):
    return f"""
from mnemoscope.studies.claims import Outcome
def helper():
    '''A docstring.'''
    return {helper}
def judge(evidence):
    value = helper()
    return Outcome({verdict!r}, value, (value, value), "So it is.")
"""


def judge_from(text):
    names: dict = {"__name__": "somebodys_study"}
    exec(text, names)
    return names["judge"]


def study_of(judge):
    claim = Claim(id="P1", statement="s", source_figure="f", criterion="c")
    return Study(
        name="planted",
        title="t",
        paper="s",
        conditions=lambda scale: {},
        tests=(ClaimTest(claim, (), judge),),
    )


def test_a_changed_judge_from_outside_judges_anew(store):
    """Its own code, its helpers' and their constants count; comments and docstrings do not."""
    seen = []
    for text in (
        judge_text("reproduced"),
        judge_text("reproduced").replace("A docstring.", "Another docstring.") + "# a comment\n",
        judge_text("refuted"),
        judge_text("refuted", helper="0.5"),
    ):
        watch = Watch()
        entry = run_study(study_of(judge_from(text)), "quick", store, "c", watcher=watch).claims[0]
        seen.append((entry.verdict, entry.value, bool(watch.judged_)))
    assert seen == [
        ("reproduced", 1.0, True),
        ("reproduced", 1.0, False),
        ("refuted", 1.0, True),
        ("refuted", 0.5, True),
    ]


class Outside:
    """A class from outside with a constant."""

    limit: ClassVar[float] = 0.5

    def judge(self, evidence):
        return self.limit


def test_what_a_function_does_is_told_by_all_that_it_reaches(monkeypatch):
    table = np.arange(3)

    def closed(over):
        return lambda x: x + over

    assert code_of(closed(1)) != code_of(closed(2))
    assert code_of(closed(table)) != code_of(closed(table + 1))
    assert code_of(closed(table)) == code_of(closed(table.copy()))
    assert code_of(partial(closed, 1)) != code_of(partial(closed, 2))
    before = code_of(Outside().judge)
    monkeypatch.setattr(Outside, "limit", 0.6)
    assert code_of(Outside().judge) != before

    def wrapped(factor):
        @wraps(closed)
        def scaled(x):
            return factor * closed(1)(x)

        return scaled

    assert code_of(wrapped(1)) != code_of(wrapped(2)), "a decorator counts too"
    jitted = jax.jit(closed(1))
    assert code_of(jitted) == code_of(closed(1))


def test_editing_one_study_judges_only_that_one_anew(store, monkeypatch):
    from mnemoscope.studies.discover import STUDIES

    hashes = {name: judging_fingerprint(study) for name, study in STUDIES.items()}
    assert len(set(hashes.values())) == len(STUDIES), "each rests on its own folder"
    read = fingerprint._file_digest

    def changed_by(edited):
        """The studies that are judged anew when files of this name are edited."""
        monkeypatch.setattr(
            fingerprint, "_file_digest", lambda f: read(f) + (b"x" if f.match(edited) else b"")
        )
        return [
            name for name, study in STUDIES.items() if judging_fingerprint(study) != hashes[name]
        ]

    changed = changed_by("library/walk/judges.py")
    all_changed = changed_by("core/xla.py")
    assert changed == ["walk"]
    assert all_changed == list(STUDIES), "training rests on core/xla.py"


def test_a_finding_rests_on_the_program_that_trained(store, monkeypatch):
    study = Study(
        **{
            **vars(study_of(judge_from(judge_text("reproduced")))),
            "conditions": lambda scale: {"a": Condition(SPEC, 8)},
        }
    )
    test = ClaimTest(study.tests[0].claim, ("a",), study.tests[0].judge)
    conditions = study.conditions("quick")
    before = finding_key(study, test, "quick", conditions, store)
    load_or_train(store, SPEC, range(8))
    assert finding_key(study, test, "quick", conditions, store) == before
    other_program(monkeypatch)
    assert finding_key(study, test, "quick", conditions, store) == before, (
        "it would be judged on what is stored"
    )
    for row in store.rows():
        store.delete(row)
    assert finding_key(study, test, "quick", conditions, store) != before


# ---- trained again


def test_stored_seeds_are_trained_again_and_compared(store, capsys, monkeypatch):
    load_or_train(store, SPEC, range(3))
    stored_runs.check(retrain=2, store=store.folder)
    out = capsys.readouterr().out
    assert out.count("same: run") == 2
    assert "arrays, to the bit" in out
    (row,) = store.rows()
    wrong = store.load(row)
    wrong.snapshots["embed.W_E"][:] += 1e-6
    store.save(Run(**{**vars(wrong), "seeds": (0, 1, 2)}), 1.0, "m")
    with pytest.raises(UserError, match="1 of 1 seeds came out otherwise"):
        stored_runs.check(retrain=1, store=store.folder)
    assert "OTHER NUMBERS" in capsys.readouterr().out
    with pytest.raises(UserError, match="--retrain must be a number of seeds from 0 up, got -1"):
        stored_runs.check(retrain=-1, store=store.folder)


def test_what_another_device_trained_is_compared_to_a_tolerance(store):
    run = fit(SPEC, [0])
    elsewhere = trained_by().model_copy(update={"device": "NVIDIA H200"})
    for off, same in ((1e-6, True), (1e-4, False)):
        moved = {name: x + off for name, x in run.snapshots.items()}
        store.save(Run(**{**vars(run), "snapshots": moved, "origins": (elsewhere,)}), 1.0, "m")
        found = retrain.retrain_seed(store, store.rows()[0], 0)
        assert found.same is same
        assert "another kind of device" in found.words


def test_seeds_of_another_program_are_not_compared(store, monkeypatch, capsys):
    load_or_train(store, SPEC, range(3))
    other_program(monkeypatch)
    with pytest.raises(UserError, match="no stored seed was trained by this program"):
        stored_runs.check(retrain=2, store=store.folder)
    assert "3 stored seeds are not compared" in capsys.readouterr().out


# ---- a store of 0.1


@pytest.fixture
def old_store(tmp_path):
    """A copy of the store that 0.1 wrote."""
    return Store(shutil.copytree(goldens.FOLDER / "store-0.1", tmp_path / "store-0.1"))


def test_a_store_of_0_1_opens_and_is_whole(old_store):
    assert old_store.check() == []
    assert len(old_store.rows()) == len(goldens.CASES) + 1
    assert all(row.origin is None and row.program == "" for row in old_store.rows())
    assert Store(old_store.folder).check() == [], "a second time too"
    assert "R1" in old_store.read_text("ledger/quick/remember.json")


@pytest.mark.parametrize("name", goldens.CASES)
def test_runs_of_0_1_are_used_as_such(name, old_store):
    """Not trained again, and not taken for ours; their losses are those of today."""
    spec = goldens.CASES[name]
    with pytest.warns(Notice, match="was trained by Mnemoscope 0.1, which kept no fingerprint"):
        run = load_or_train(old_store, spec, range(2))
    assert (run.origins, run.world_hashes) == ((None,), None)
    frozen = goldens.read("losses.json")[name]
    np.testing.assert_allclose(run.losses[0], frozen[0], atol=1e-5, rtol=0)


def test_runs_of_0_1_are_never_joined_with_new_seeds(old_store):
    spec = goldens.CASES["permutation, pair tables"]
    run = load_or_train(old_store, spec, range(3))
    assert run.origins == (trained_by(),)
    assert [(row.first, row.last, bool(row.program)) for row in old_store.rows(spec.digest())] == [
        (0, 1, False),
        (0, 2, True),
    ]
    assert old_store.check() == []


def test_runs_of_0_1_are_shown_explored_walked_and_exported(old_store, tmp_path, capsys):
    spec = goldens.CASES["permutation, pair tables"]
    stored_runs.runs(store=old_store.folder)
    shown = capsys.readouterr().out
    assert spec.digest() in shown
    visualize.explore(
        (spec.digest(),), out=tmp_path / "page.html", open_=False, store=old_store.folder
    )
    assert (tmp_path / "page.html").stat().st_size > 10_000
    walk_command(run=spec.digest(), store=old_store.folder)
    from mnemoscope.cli.exchange import export

    export(spec.digest(), tmp_path / "run.npz", to="numpy", store=old_store.folder)
    assert (tmp_path / "run.npz").exists()
    imported = next(row for row in old_store.rows() if "imported" in row.spec_json)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert old_store.load(imported).origins == ()


def test_a_damaged_row_of_0_1_stays_damaged(tmp_path):
    import sqlite3

    folder = shutil.copytree(goldens.FOLDER / "store-0.1", tmp_path / "store-0.1")
    db = sqlite3.connect(folder / "index.sqlite3")
    with db:
        db.execute(
            "UPDATE runs SET machine = 'a better one' "
            "WHERE first = 0 AND rowid = (SELECT min(rowid) FROM runs)"
        )
    db.close()
    assert [damage.why for damage in Store(folder).check()] == [
        "its row in the index is not what was written"
    ]


def test_configurations_are_equal_by_their_fields():
    """Also after tables were computed from them: 0.1 compared these, and raised."""
    from mnemoscope.tasks.corpus import Corpus, tiny_shakespeare

    one = tiny_shakespeare()
    two = Corpus(**{name: getattr(one, name) for name in Corpus.model_fields})
    assert one.bigrams.shape == two.bigrams.shape
    assert one == two
    assert hash(one) == hash(two)
    assert one != two.model_copy(update={"name": "another"})
