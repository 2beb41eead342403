"""Checks of a task: that it can be trained on, that nothing depends on what it should not, and that
what it says is exact is so.

    ms.testing.check_task(CopyBack())

Some thousand sequences are drawn in the worlds of four seeds, and a small model is trained for a
few steps. What is exact is held against what is drawn in each of these worlds, where they differ.
"""

import json
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.errors import short
from mnemoscope.tasks import Example, Task, World
from mnemoscope.tasks.requirements import (
    name_of,
    require_query_token,
    require_signature,
    require_sizes,
    require_tokens,
    require_weights,
    require_world,
)
from mnemoscope.testing.check_result import (
    Check,
    CheckResult,
    NotApplicable,
    require,
    run_checks,
)
from mnemoscope.testing.posterior_checks import (
    check_agrees,
    check_agrees_exactly,
    check_floor_of_posterior,
    check_floor_of_training,
    check_listed,
    check_possible,
    check_sums,
)
from mnemoscope.testing.task_draws import TaskDraws, draw_again
from mnemoscope.training.first_look import require_same_shapes
from mnemoscope.training.spec import Spec

LATER_STEP = 1000


def check_task(task: Task, *, train: bool = True, raise_on_failure: bool = True) -> CheckResult:
    """Check all that a task promises.

    Args:
        task: of any class; small sizes are checked faster.
        train: whether a small model is trained on it, which takes some seconds.
        raise_on_failure: raise one AssertionError that names every check that failed.
    """
    checks = list_task_checks(task, train=train)
    return run_checks(name_of(task), checks, raise_on_failure=raise_on_failure)


def list_task_checks(task: Task, *, train: bool = True) -> tuple[Check, ...]:
    """The checks of a task, each to be called by itself, as a test with a parameter does.

    Args:
        task: of any class.
        train: whether a small model is trained on it, which takes some seconds.
    """
    draws = TaskDraws(task, train)

    def check(
        name: str, look: Callable[[TaskDraws], str | None], needs: tuple[Check, ...]
    ) -> Check:
        return Check(name, partial(look, draws), needs)

    is_kind = check("it is a registered kind whose code can be read", _check_kind, ())
    sizes = check("sizes and loss positions fit together", _check_sizes, ())
    compiles = check("it goes through jit and vmap", _check_compiles, (sizes,))
    world = (sizes, compiles)
    vocabulary = check("tokens and targets are in the vocabulary", _check_vocabulary, (compiles,))
    weights = check(
        "weights are finite, not negative, and at loss_positions alone", _check_weights, (compiles,)
    )
    sound = (vocabulary, weights)
    sums = check("the posterior sums to one", check_sums, sound)
    possible = check("the posterior gives 0 to nothing that is drawn", check_possible, (sums,))
    listed = check("the listed examples are those that are drawn", check_listed, sound)
    trains = check("a short training stays finite", _check_trains, (is_kind, *sound))
    return (
        is_kind,
        check("JSON gives the same task and digest again", _check_json, (is_kind,)),
        sizes,
        check("every token has a name", _check_token_names, (sizes,)),
        compiles,
        check("one key draws the same bits, alone and in any batch", _check_same_bits, (compiles,)),
        check("other keys draw other sequences", _check_keys, (compiles,)),
        vocabulary,
        weights,
        check("query_token ends every sequence", _check_query_token, sound),
        check("sparse_loss: what is asked differs", _check_sparse_loss, sound),
        check("reads_early: examples name a layer", _check_reads_early, (compiles,)),
        check("one key draws the same world again", _check_world, world),
        check("sequences depend on what the world hides", _check_hidden, world),
        check("at_step keeps the world's shapes", _check_at_step, (sizes,)),
        sums,
        possible,
        check("the posterior agrees with what is drawn", check_agrees, (possible,)),
        listed,
        check(
            "the posterior agrees with all listed examples", check_agrees_exactly, (listed, sums)
        ),
        trains,
        check("the loss floor is not above the posterior's", check_floor_of_posterior, (possible,)),
        check("no training goes below the loss floor", check_floor_of_training, (trains,)),
    )


# ---- what it is


def _check_kind(draws: TaskDraws) -> str:
    task = draws.task
    Spec(task=task)  # raises where its class is not the one that its kind stands for
    return task.code() and f"code {task.code()}"


def _check_json(draws: TaskDraws) -> None:
    spec = Spec(task=draws.task)
    again = Spec.model_validate_json(spec.canonical_json())
    require(again == spec, f"it comes back as {short(again.task)}")
    require(again.digest() == spec.digest(), "its digest comes back as another one")
    json.loads(draws.task.canonical_json())
    hash(draws.task)  # `jit` keeps programs under it


def _check_sizes(draws: TaskDraws) -> str:
    task = draws.task
    require_sizes(task)
    require_signature(task, task.world, "key")
    require_signature(task, task.at_step, "world", "step")
    require_signature(task, task.sample, "world", "key")
    return f"{task.d_vocab} tokens, {task.d_vocab_out} answers, {task.n_ctx} positions"


def _check_token_names(draws: TaskDraws) -> None:
    names = draws.task.token_names
    require(
        len(names) == draws.task.d_vocab,
        f"token_names must have one for each of {draws.task.d_vocab} tokens, got {len(names)}",
    )
    require(
        all(isinstance(name, str) and name for name in names),
        f"token_names must be texts, got {short(names)}",
    )
    require(len(set(names)) == len(names), f"two tokens have one name: {short(names)}")


# ---- what it draws


def _check_compiles(draws: TaskDraws) -> str:
    require_same_shapes(draws.task, jax.random.key(0))
    return f"{len(draws.batch.tokens):,} sequences"


def _bits(tree: Example | World) -> list[bytes]:
    """The arrays of a pytree as bytes."""
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


def _check_same_bits(draws: TaskDraws) -> None:
    # other neighbors, through the same program
    reversed_ = draws.draw(draws.world(), draws.keys[::-1])
    turned = jax.tree.map(lambda x: np.asarray(x)[::-1], reversed_)
    require(
        _bits(turned) == _bits(draws.batch),
        "it draws something else when its neighbors in the batch are others",
    )
    # alone, through a program that is traced anew: what Python drew while tracing differs
    task = draws.task

    def alone(key: jax.Array) -> Example:
        return task.sample(task.at_step(draws.world(), jnp.zeros((), int)), key=key)

    once = jax.jit(alone)(draws.keys[0])
    first = jax.tree.map(lambda x: x[0], draws.batch)
    require(
        _bits(once) == _bits(first),
        "the same key draws something else in a batch than alone, or the second time; all that is "
        "random must come from the key (jax.random, not numpy.random or random)",
    )


def _check_keys(draws: TaskDraws) -> str:
    rows = {
        b"".join(_bits(jax.tree.map(lambda x, i=i: x[i], draws.batch)))
        for i in range(min(len(draws.keys), 256))
    }
    require(len(rows) > 1, "all keys draw one sequence: the key is not read")
    return f"{len(rows)} sequences of {min(len(draws.keys), 256)} differ"


def _check_vocabulary(draws: TaskDraws) -> None:
    require_tokens(draws.task, draws.batch)


def _check_weights(draws: TaskDraws) -> str:
    require_weights(draws.task, draws.batch)
    asked = np.asarray(draws.batch.weights) > 0
    require(asked.any(), "all weights are 0: nothing is asked")
    return f"{asked.sum(axis=1).mean():.3g} of {draws.task.n_ctx} positions count on average"


def _check_query_token(draws: TaskDraws) -> None:
    if draws.task.query_token is None:
        raise NotApplicable("it has no query_token")
    require_query_token(draws.task, draws.batch)


def _check_sparse_loss(draws: TaskDraws) -> str:
    if not draws.task.sparse_loss:
        raise NotApplicable("sparse_loss is False")
    asked = np.asarray(draws.batch.weights) > 0
    share = asked.mean()
    require(
        (asked != asked[0]).any(),
        "every sequence asks at the same positions; allowed: to say so by loss_positions",
    )
    require(share < 0.5, f"{share:.0%} of all positions are asked, which is not sparse")
    return f"{share:.1%} of all positions are asked"


def _check_reads_early(draws: TaskDraws) -> str:
    layer = draws.batch.layer
    if not draws.task.reads_early:
        raise NotApplicable("reads_early is False")
    require(layer is not None, "reads_early is True and no example names a layer")
    layers = np.unique(np.asarray(layer))
    require(layers.min() >= 0, f"layers are counted from 0, got {layers.min()}")
    return f"layers {layers.tolist()}"


# ---- its world


def _check_world(draws: TaskDraws) -> None:
    if not jax.tree.leaves(draws.worlds):
        raise NotApplicable("it hides nothing")
    require_world(draws.task, draws.worlds)
    again = draw_again(draws.task, draws.world_keys)
    require(
        _bits(again) == _bits(draws.worlds),
        "the same key draws another world the second time; all that is random must come from the "
        "key (jax.random, not numpy.random or random)",
    )


def _check_hidden(draws: TaskDraws) -> None:
    first = _bits(draws.world())
    others = [seed for seed in range(len(draws.world_keys)) if _bits(draws.world(seed)) != first]
    if not others:
        raise NotApplicable("all keys have one world")
    for seed in others:
        if _bits(draws.draw(draws.world(seed), draws.keys)) != _bits(draws.batch):
            return
    require(False, "worlds differ, and the same keys draw the same sequences in all of them")


def _check_at_step(draws: TaskDraws) -> str:
    task = draws.task
    if type(task).at_step is Task.at_step:
        raise NotApplicable("its world has no schedule")
    world = draws.world()
    for step in (0, LATER_STEP):
        later = task.at_step(world, jnp.asarray(step))
        require_world(task, later, "at_step")
        require(
            jax.tree.structure(later) == jax.tree.structure(world)
            and _shapes(later) == _shapes(world),
            f"at step {step} it has {_shapes(later)}, and not {_shapes(world)}",
        )
    return f"at steps 0 and {LATER_STEP}"


def _shapes(world: World) -> list[str]:
    """Type and shape of every array of a world."""
    return [f"{jnp.asarray(x).dtype}{list(jnp.shape(x))}" for x in jax.tree.leaves(world)]


# ---- training


def _check_trains(draws: TaskDraws) -> str:
    losses = np.asarray(draws.run.losses)
    require(np.isfinite(losses).all(), "the loss is not finite")
    return f"{draws.run.spec.steps} steps; the loss ended at {losses[0, -1]:.3g}"
