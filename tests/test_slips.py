"""What somebody gets wrong first with objects of ours and classes of their own: each is one line
that says what came and what is allowed, and what is harmless is taken as it is meant.
"""

import inspect
from pathlib import Path
from typing import Literal
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gru import Gru

import mnemoscope as ms
from mnemoscope.core.seeds import map_over_seeds
from mnemoscope.store import Store
from mnemoscope.studies.runner import run_study
from mnemoscope.training import compilation, evaluation

TASK = ms.Cycle()
TINY = ms.ModelConfig(d_model=4, n_heads=1, d_mlp=0)
SPEC = ms.Spec(task=TASK, model=TINY, steps=2, batch=2)


def said(call, *args, **fields):
    """The one line that a call ends in."""
    with pytest.raises(ms.UserError) as error:
        call(*args, **fields)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.fixture(scope="module")
def run():
    return ms.fit(SPEC, 2, progress=False)


# ---- objects of ours


def test_an_object_never_changes_and_a_copy_does():
    line = said(setattr, TASK, "n_symbols", 4)
    assert line == (
        "a Cycle never changes, so n_symbols stays as it is; allowed: a changed copy, "
        ".model_copy(update={'n_symbols': 4})"
    )
    assert TASK.n_symbols == 3
    assert TASK.model_copy(update={"n_symbols": 4}).n_symbols == 4
    assert "(did you mean 'n_symbols'?)" in said(setattr, TASK, "n_symbol", 4)
    assert "a Cycle never changes" in said(delattr, TASK, "n_symbols")


def test_fields_are_given_by_name():
    line = said(ms.Cycle, 7)
    assert line == "Cycle takes its fields by name, got 7; allowed: n_symbols, length"
    assert "values" not in inspect.signature(ms.Cycle).parameters, "help shows the fields alone"


def test_a_list_for_a_tuple_is_the_tuple():
    of_list = ms.ModelConfig(n_layers=2, attn_layers=[1])
    of_tuple = ms.ModelConfig(n_layers=2, attn_layers=(1,))
    assert of_list.attn_layers == (1,)
    assert of_list == of_tuple
    assert hash(of_list) == hash(of_tuple)
    assert of_list.digest() == of_tuple.digest()


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"optimizer": "adam"}, "an Optimizer or its fields are needed, got 'adam'; allowed: ms.A"),
        ({"optimizer": ms.SGD}, "optimizers.SGD'>; allowed: ms.SGD()"),
        ({"optimizer": "adm"}, "allowed: ms.Adam()"),
        ({"loss": "squared"}, "a Loss or its fields are needed, got 'squared'"),
        ({"task": "cycle"}, "got 'cycle'; allowed: ms.Cycle()"),
    ],
)
def test_a_name_or_a_class_is_no_object(fields, line):
    assert line in said(ms.Spec, **{"task": TASK, **fields})


def test_a_field_without_default_is_needed():
    class Slow(ms.Optimizer):
        kind: Literal["slow"] = "slow"

        def direction(self):
            return optax.identity()

    assert said(Slow) == "Slow: lr is needed, since it has no default; got {}"


# ---- classes of one's own


def step_of(optimizer):
    """One step by an optimizer, traced and not computed."""

    def step(params):
        rule = optimizer.transformation(2)
        return rule.update(params, rule.init(params), params)

    return jax.eval_shape(step, jnp.zeros(2))


def test_a_schedule_decides_nothing_in_python():
    class Dropping(ms.Schedule):
        kind: Literal["dropping"] = "dropping"
        after: int = 10

        def share(self, step, steps):
            return 0.5 if step > self.after else 1.0

    line = said(step_of, ms.Adam(schedule=Dropping()))
    assert line.startswith("the schedule 'dropping': share decides in Python")
    assert "jnp.where" in line

    class Timeless(Dropping):
        kind: Literal["timeless"] = "timeless"

        def share(self, step):
            return 1.0

    line = said(step_of, ms.Adam(schedule=Timeless()))
    assert line.endswith("share(step) must be share(self, step, steps)")


def test_a_direction_is_a_transformation():
    class Plain(ms.Optimizer):
        kind: Literal["plain"] = "plain"
        lr: float = 0.1

        def direction(self):
            return lambda gradient: gradient

    line = said(step_of, Plain())
    assert "direction must return an optax.GradientTransformation, such as" in line
    assert "got <function" in line

    class Asking(Plain):
        kind: Literal["asking"] = "asking"

        def direction(self, steps):
            return optax.identity()

    assert "direction(steps) must be direction(self)" in said(step_of, Asking())


def test_a_model_finds_its_parameters_by_their_names():
    class Forgetful(Gru):
        kind: Literal["forgetful"] = "forgetful"

        def forward(self, params, tokens, site):
            return params["embed.WE"][tokens]

    line = said(ms.fit, SPEC.model_copy(update={"model": Forgetful()}), 1, progress=False)
    assert "'embed.WE' (did you mean 'embed.W_E'?)" in line
    assert "test_slips.py, line " in line

    class Short(Gru):
        kind: Literal["short"] = "short"

        def parameter_shapes(self, d_vocab):
            return {}

    line = said(Short)
    assert line.endswith("must be parameter_shapes(self, d_vocab, n_ctx, d_vocab_out=None)")


def test_what_needs_heads_says_so_of_a_model_without():
    said_of_gru = said(ms.knock_out_head, Gru(), 0, 0)
    assert "the model 'gru' has no attention heads; allowed: replace_site at one of" in said_of_gru
    assert "gru.hook_hidden" in said_of_gru
    shapes = Gru().parameter_shapes(3, 3)
    model = ms.bind(Gru(), {name: jnp.zeros(shape) for name, shape in shapes.items()})
    _, cache = model.run_with_cache([0, 1, 2])
    assert said(cache.attention) == "cache.attention has no kind='gru' (allowed: 'transformer')"


def test_metrics_are_made_of_functions_of_three_arguments(run):
    def spread(task, model, world):
        return model.params["embed.WE"].std()

    line = said(ms.Spec, task=TASK, metrics=spread)
    assert line.endswith("@ms.metric above def spread(task, model, world), or ms.metric(spread)")
    assert "'embed.WE' (did you mean 'embed.W_E'?)" in said(run.measure, ms.metric(spread))

    def short(model, world):
        return 1.0

    line = said(ms.metric, short)
    assert line == "the metric 'short': short(model, world) must be short(task, model, world)"


# ---- runs and caches


def test_a_snapshot_or_a_site_that_there_is_not(run):
    line = "no snapshot 9 in this run; allowed: 0 to 1, or -1 for the end"
    assert said(run.model, 0, snapshot=9) == line
    assert said(run.models, snapshot=9) == line
    assert run.step_of(-1) == 2
    model = run.model(0)
    _, cache = model.run_with_cache([0, 1, 2])
    line = said(cache.__getitem__, ("patern", 0))
    assert "(did you mean 'blocks.0.attn.hook_pattern'?)" in line
    assert "did you mean" not in said(cache.__getitem__, ("pattern", 7))


def test_asking_again_compiles_nothing(run, monkeypatch):
    made = []

    def counted(read, *args):
        made.append(read)
        return map_over_seeds(read, *args)

    monkeypatch.setattr(evaluation, "map_over_seeds", counted)
    monkeypatch.setattr(compilation, "_programs", {})
    first = run.accuracy()
    np.testing.assert_array_equal(run.accuracy(), first)
    run.loss(by="position", snapshot=0)
    assert len(made) == 1, "accuracy and loss at any snapshot are one program"
    run.accuracy(sample=64)
    assert len(made) == 2


# ---- studies, before anything is trained


def as_study(**fields):
    """A study that trains one condition."""
    conditions = {"one": ms.Condition(SPEC, seeds=2)}
    return ms.Study(**{"title": "?", "name": "mine", "conditions": lambda _: conditions, **fields})


def test_a_study_says_before_the_training_what_check_study_says(tmp_path):
    def refused(study):
        return said(run_study, study, "quick", Store(tmp_path), "a test", watcher=Mock())

    line = refused(as_study(conditions=lambda scale: {"one": SPEC}))
    assert line == (
        "condition 'one' of study 'mine' is a Spec alone; allowed: ms.Condition(SPEC, seeds=16)"
    )
    assert "must return a dictionary of Conditions by name, got [" in refused(
        as_study(conditions=lambda scale: [SPEC])
    )
    assert "explore= of study 'mine' 'oen' (did you mean 'one'?)" in refused(
        as_study(explore=("oen",))
    )
    assert not list(Path(tmp_path).rglob("*.safetensors"))
