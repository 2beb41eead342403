"""Open kinds: a class of somebody's own stands in a Spec, under an identity that says what it does.

Each rule for what comes from outside has a test: what is one program, what is another, and what is
refused.
"""

import json
import subprocess
import sys
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mnemoscope as ms
from mnemoscope.core.code_identity import code_of
from mnemoscope.core.errors import UserError
from mnemoscope.core.kinds import known_kinds
from mnemoscope.training.metric import metric
from mnemoscope.training.metrics import list_metrics, metrics_of
from mnemoscope.training.spec import Spec

SHIFT = 2


def shifted(tokens):
    return jnp.roll(tokens, SHIFT)


class Echo(ms.Task):
    """Say the token that stood two places ago."""

    kind: Literal["echo"] = "echo"
    length: int = 6

    @property
    def d_vocab(self):
        return 4

    @property
    def n_ctx(self):
        return self.length

    def sample(self, world, *, key):
        tokens = jax.random.randint(key, (self.length,), 0, 4)
        return ms.Example(tokens, shifted(tokens), jnp.ones(self.length))


@metric
def flatness(task, model, world):
    logits = model(jnp.zeros(2, int))
    return {"mean": logits.mean(), "all": logits}


SPEC = Spec(
    task=Echo(), model=ms.ModelConfig(d_model=4, n_heads=1, d_mlp=0), steps=3, batch=2, snapshots=2
)


# ---- known once defined, and found again


def test_a_task_of_somebodys_own_trains_and_is_found_again(store):
    spec = SPEC.model_copy(update={"metrics": flatness})
    run = ms.fit(spec, [0, 1])
    assert run.metrics["flatness/mean"].shape == (2, 2)
    assert run.metrics["flatness/all"].shape == (2, 2, 2, 4)
    store.save(run, 1.0, "a machine")
    again = store.load(store.rows()[0])
    assert again.spec == spec
    np.testing.assert_array_equal(again.losses, run.losses)


def test_json_has_kind_code_and_fields():
    task = json.loads(SPEC.canonical_json())["task"]
    assert task == {"kind": "echo", "code": Echo.code(), "length": 6}
    assert Spec.model_validate_json(SPEC.canonical_json()) == SPEC
    assert "code" not in Spec(task=ms.Cycle()).canonical_json(), "built-ins keep their digests"


def test_metrics_are_named_by_themselves_or_together():
    alone = Spec(task=ms.Hops(), metrics="hops")
    assert Spec(task=ms.Hops(), metrics=("hops",)).digest() == alone.digest()
    assert json.loads(alone.canonical_json())["watch"] == "hops"
    both = Spec(task=ms.Hops(), metrics=("hops", flatness))
    assert Spec.model_validate_json(both.canonical_json()) == both
    assert [each.kind_name() for each in list_metrics(both.metrics)] == ["hops", "flatness"]
    assert Spec(task=ms.Hops(), metrics=()) == Spec(task=ms.Hops())


def test_a_metric_may_have_another_kind_than_its_functions_name():
    @metric(kind="sharpness")
    def of_the_logits(task, model, world):
        return jnp.ones(())

    assert of_the_logits.kind_name() == "sharpness"
    assert list(of_the_logits(SPEC.task, ms.Transformer(SPEC.model, {}), ())) == ["sharpness"]
    with pytest.raises(UserError, match="for package 'somebody' to define"):
        metric(kind="somebody/sharpness")(lambda task, model, world: jnp.ones(()))


def test_what_a_metric_returns_is_checked():
    @metric
    def says_words(task, model, world):
        return "high"

    @metric
    def again(task, model, world):
        return {"mean": jnp.zeros(())}

    model = ms.Transformer(SPEC.model, {})
    with pytest.raises(UserError, match=r"metric 'says_words' returned 'high'; allowed: an array"):
        says_words(SPEC.task, model, ())
    twice = metrics_of(SPEC.model_copy(update={"metrics": (again, again)}))
    with pytest.raises(UserError, match="two metrics of one Spec read 'again/mean'"):
        twice(model, ())


# ---- what is refused


class Backwards(Echo):
    """Has its parent's kind."""

    def sample(self, world, *, key):
        return super().sample(world, key=key)


def test_a_subclass_without_a_kind_of_its_own_is_refused_when_the_spec_is_made():
    with pytest.raises(UserError, match=r"Backwards is a class of its own.*Literal\['backwards'\]"):
        Spec(task=Backwards())


def make_class(kind="again", base=ms.Cycle):
    class Made(base):
        pass

    return type("Made", (base,), {"__annotations__": {"kind": Literal[kind]}, "kind": kind})


def test_an_object_of_a_class_that_was_defined_again_is_refused():
    before = make_class()()
    assert Spec(task=before).task is before
    make_class()
    with pytest.raises(UserError, match="Made was defined again since this object was made"):
        Spec(task=before)


def test_another_class_of_the_same_kind_is_refused_when_it_is_defined():
    with pytest.raises(UserError, match="needs a kind of its own: 'echo' is that of"):

        class Other(ms.Task):
            kind: Literal["echo"] = "echo"

    with pytest.raises(UserError, match="'cycle' is that of mnemoscope"):

        class Cycle(ms.Task):
            kind: Literal["cycle"] = "cycle"

    assert "echo" in known_kinds("task")


def test_only_a_package_defines_kinds_that_begin_with_its_name():
    with pytest.raises(UserError, match="for package 'somebody' to define"):

        class Theirs(ms.Task):
            kind: Literal["somebody/theirs"] = "somebody/theirs"


def test_a_class_whose_text_cannot_be_read_is_refused_when_the_spec_is_made():
    names = {"ms": ms, "Literal": Literal, "__name__": "nowhere"}
    exec(
        "class Hidden(ms.Cycle):\n"
        "    kind: Literal['hidden'] = 'hidden'\n"
        "    def sample(self, world, *, key):\n"
        "        return None\n",
        names,
    )
    with pytest.raises(UserError, match=r"the text of 'Hidden.sample' cannot be read"):
        Spec(task=names["Hidden"]())


def test_an_unknown_kind_says_what_would_bring_it_and_is_not_damaged(store):
    text = SPEC.canonical_json().replace('"echo"', '"echoes/echo"')
    with pytest.raises(UserError, match="package 'echoes' would bring it: --plugin echoes"):
        Spec.model_validate_json(text)
    edited = SPEC.canonical_json().replace(Echo.code(), "0123456789abcdef")
    with pytest.raises(UserError, match=r"was of code 0123456789abcdef and is of .* now"):
        Spec.model_validate_json(edited)


# ---- what is another program

TASK = '''
"""A task in a file."""
from typing import Literal

import jax.numpy as jnp
import mnemoscope as ms
from helpers_of_echo import turn

BY = 3


class Turned(ms.Cycle):
    """A cycle, turned."""

    kind: Literal["turned"] = "turned"
    by: int = 1

    def sample(self, world, *, key):
        """One sequence."""
        example = super().sample(world, key=key)  # of the parent
        return example._replace(targets=turn(example.targets, BY))
'''
HELPER = '''
"""Helpers."""
import jax.numpy as jnp

def turn(x, by):
    return jnp.roll(x, by)
'''
ASK = (
    "import sys; sys.path.insert(0, '.'); from turned_echo import Turned; "
    "from mnemoscope.training.spec import Spec; "
    "print(Turned.code(), Spec(task=Turned()).digest())"
)


def identity_of(folder, task=TASK, helper=HELPER):
    (folder / "turned_echo.py").write_text(task)
    (folder / "helpers_of_echo.py").write_text(helper)
    command = [sys.executable, "-B", "-c", ASK]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_what_a_class_does_is_its_identity_and_how_it_is_written_is_not(tmp_path):
    first = identity_of(tmp_path)
    commented = TASK.replace("# of the parent", "# mine").replace("One sequence", "A sequence")
    assert identity_of(tmp_path, commented, HELPER.replace("Helpers", "Help")) == first
    others = {
        "its own text": identity_of(tmp_path, TASK.replace("BY)", "BY + 1)")),
        "a constant": identity_of(tmp_path, TASK.replace("BY = 3", "BY = 4")),
        "a field's default": identity_of(tmp_path, TASK.replace("by: int = 1", "by: int = 2")),
        "a helper of another file": identity_of(
            tmp_path, helper=HELPER.replace("roll(x, by)", "roll(x, -by)")
        ),
    }
    codes = [code for code, _ in others.values()]
    digests = [digest for _, digest in others.values()]
    assert len({first[0], *codes}) == 5, others
    assert len({first[1], *digests}) == 5, others


def test_a_helper_that_is_replaced_while_python_runs_is_another_program(monkeypatch):
    digest, key = SPEC.digest(), SPEC.compile_key()
    before = ms.fit(SPEC, [0]).losses
    monkeypatch.setattr(sys.modules[__name__], "SHIFT", 1)
    assert SPEC.digest() != digest
    assert SPEC.compile_key() != key, "the compiled program of before is not used"
    assert not np.array_equal(ms.fit(SPEC, [0]).losses, before)
    monkeypatch.undo()
    assert SPEC.digest() == digest


def test_a_file_that_was_edited_after_its_import_does_not_pass_for_what_runs(tmp_path, monkeypatch):
    file = tmp_path / "edited_later.py"
    file.write_text("def f(x):\n    return x + 1\n\n\ndef g(x):\n    return x\n")
    monkeypatch.syspath_prepend(tmp_path)
    import edited_later

    unread = code_of(edited_later.f)
    file.write_text("def f(x):\n    return x + 1\n\n\ndef g(x):\n    return x + 2\n")
    with pytest.raises(UserError, match="is another than the one that runs"):
        code_of(edited_later.g, must_read=True)
    assert code_of(edited_later.f, must_read=True) == unread


seen = 1


def test_an_argument_is_not_the_global_of_its_name(monkeypatch):
    """In a notebook `model` is an argument of a metric, and what the last cell made."""

    def reads(seen):
        return seen + SHIFT

    before = code_of(reads, must_read=True)
    monkeypatch.setattr(sys.modules[__name__], "seen", 2)
    assert code_of(reads, must_read=True) == before
    monkeypatch.setattr(sys.modules[__name__], "SHIFT", 3)
    assert code_of(reads, must_read=True) != before


PAIRS = (lambda x: x + 1, lambda x: x + 2), (lambda x: lambda x: x, lambda x: x)


@pytest.mark.parametrize("pair", PAIRS)
def test_lambdas_of_one_line_are_told_apart(pair):
    one, other = pair
    assert code_of(one, must_read=True) != code_of(other, must_read=True)


def test_the_code_is_the_same_under_every_version_of_python(tmp_path):
    """Written down once, under Python 3.11, 3.12 and 3.13."""
    assert identity_of(tmp_path)[0] == "204be5a45a022c88"
