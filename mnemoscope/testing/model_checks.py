"""Checks of a model: what it draws, what it computes, and that every named value of it can be
edited.

    ms.testing.check_model(Gru())

The model is drawn for few tokens and positions, and trained for a few steps.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Params
from mnemoscope.core.errors import short
from mnemoscope.models import Model, forward
from mnemoscope.models.edits import Intervention
from mnemoscope.tasks import Cycle, Task
from mnemoscope.testing.check_result import (
    Check,
    CheckResult,
    NotApplicable,
    require,
    run_checks,
)
from mnemoscope.training.loop import fit
from mnemoscope.training.optimizers import Adam
from mnemoscope.training.run import Run
from mnemoscope.training.spec import Spec

D_VOCAB = 5
N_CTX = 4
N_ANSWERS = 3
TOKENS = ((0, 1, 2, 3), (4, 1, 0, 0), (2, 2, 3, 1))
CLOSE = 1e-5
STEPS = 60
NOISE = 3.0  # standard deviation of what is added at a site


def check_model(
    model: Model, task: Task | None = None, *, train: bool = True, raise_on_failure: bool = True
) -> CheckResult:
    """Check all that a model promises.

    Args:
        model: of any class; small sizes are checked faster.
        task: what the short training is on; None: a cycle of three symbols.
        train: whether it is trained, which takes some seconds.
        raise_on_failure: raise one AssertionError that names every check that failed.
    """
    checks = list_model_checks(model, task, train=train)
    subject = f"model {model.kind_name()!r}"
    return run_checks(subject, checks, raise_on_failure=raise_on_failure)


def list_model_checks(
    model: Model, task: Task | None = None, *, train: bool = True
) -> tuple[Check, ...]:
    """The checks of a model, each to be called by itself, as a test with a parameter does.

    Args:
        model: of any class.
        task: what the short training is on; None: a cycle of three symbols.
        train: whether it is trained, which takes some seconds.
    """
    passes = _Passes(model, task or Cycle(length=N_CTX), train)

    def check(name: str, look: Callable[[_Passes], str | None], *needs: Check) -> Check:
        return Check(name, partial(look, passes), needs)

    is_kind = check("it is a registered kind whose code can be read", _check_kind)
    draws = check("parameters are drawn finite, in the shapes that it names", _check_shapes)
    runs = check("forward goes through jit and vmap", _check_forward, draws)
    trains = check("a short training lowers the loss", _check_trains, is_kind, runs)
    return (
        is_kind,
        check("JSON gives the same model and digest again", _check_json, is_kind),
        draws,
        check("one key draws the same parameters, other keys others", _check_keys, draws),
        check("sizes can be read off the shapes", _check_sizes, draws),
        runs,
        check("a sequence does not depend on its neighbors", _check_neighbors, runs),
        check("is_causal: no position sees a later one", _check_causal, runs),
        check("every site is reached, with the axes that it says", _check_sites, runs),
        check("an edit at every site changes the logits", _check_edits, runs),
        check("an edit that changes nothing changes no bit", _check_idle_edits, runs),
        check("the gradient is finite", _check_gradient, runs),
        trains,
    )


@dataclass(frozen=True)
class _Idle:
    """Leaves what stands at a site as it is."""

    site: str

    def apply(self, x: Array) -> Array:
        return x


@dataclass(frozen=True)
class _Noise:
    """Adds noise to what stands at a site."""

    site: str

    def apply(self, x: Array) -> Array:
        return x + NOISE * jax.random.normal(jax.random.key(len(self.site)), x.shape)


class _Passes:
    """Parameters and passes of one model, each made when it is first asked for."""

    def __init__(self, model: Model, task: Task, train: bool):
        self.model = model
        self.task = task
        self.train = train

    def draw(self, seed: int) -> Params:
        """The parameters of a key, by a program that is traced anew each time."""

        def of_key(key: Array) -> Params:
            return self.model.draw_parameters(D_VOCAB, N_CTX, N_ANSWERS, key=key)

        return jax.device_get(jax.jit(of_key)(jax.random.key(seed)))

    @cached_property
    def params(self) -> Params:
        """Those of the first key."""
        return self.draw(0)

    @cached_property
    def tokens(self) -> Array:
        """A few sequences."""
        return jnp.array(TOKENS)

    def logits_with(self, edits: tuple[Intervention, ...] = ()) -> np.ndarray:
        """The logits of the first sequence under edits."""
        found, _ = jax.jit(lambda params, row: forward(self.model, params, row, edits))(
            self.params, self.tokens[0]
        )
        return np.asarray(found)

    @cached_property
    def batched(self) -> Callable[[Params, Array], Array]:
        """Compiled: the logits of some sequences."""
        return jax.jit(
            jax.vmap(lambda params, row: forward(self.model, params, row)[0], in_axes=(None, 0))
        )

    @cached_property
    def logits(self) -> np.ndarray:
        """Of the few sequences."""
        return np.asarray(self.batched(self.params, self.tokens))

    @cached_property
    def alone(self) -> tuple[np.ndarray, Mapping[str, np.ndarray]]:
        """Logits and trace of the first sequence."""
        both = jax.jit(lambda params, row: forward(self.model, params, row))
        return jax.device_get(both(self.params, self.tokens[0]))

    @cached_property
    def sites_of_edits(self) -> tuple[str, ...]:
        """All sites: those that a pass makes only where somebody edits them, too."""
        return tuple(self.model.sites())

    @cached_property
    def run(self) -> Run:
        """A training of a few steps."""
        if not self.train:
            raise NotApplicable("no training was asked for")
        spec = Spec(task=self.task, model=self.model, optimizer=Adam(lr=0.01), steps=STEPS)
        return fit(spec, [0])


# ---- what it is


def _check_kind(passes: _Passes) -> str:
    model = passes.model
    Spec(task=passes.task, model=model)  # raises for a class that its kind does not stand for
    return model.code() and f"code {model.code()}"


def _check_json(passes: _Passes) -> None:
    spec = Spec(task=passes.task, model=passes.model)
    again = Spec.model_validate_json(spec.canonical_json())
    require(again == spec, f"it comes back as {short(again.model)}")
    require(again.digest() == spec.digest(), "its digest comes back as another one")
    hash(passes.model)  # `jit` keeps programs under it


# ---- its parameters


def _check_shapes(passes: _Passes) -> str:
    wanted = passes.model.parameter_shapes(D_VOCAB, N_CTX, N_ANSWERS)
    found = {name: np.shape(x) for name, x in passes.params.items()}
    missing = sorted(wanted.keys() ^ found.keys())
    require(not missing, f"parameter_shapes and draw_parameters differ in {', '.join(missing)}")
    for name, shape in wanted.items():
        came = found[name]
        require(came == tuple(shape), f"{name} must have the shape {shape}, got {came}")
        x = np.asarray(passes.params[name])
        require(jnp.issubdtype(x.dtype, jnp.floating), f"{name} must be floats, got {x.dtype}")
        require(np.isfinite(x).all(), f"{name} is not finite")
    return f"{len(wanted)} parameters, {sum(int(np.prod(s)) for s in wanted.values()):,} numbers"


def _bits(params: Params) -> list[bytes]:
    """Each parameter as bytes."""
    return [np.asarray(x).tobytes() for x in params.values()]


def _check_keys(passes: _Passes) -> None:
    require(
        _bits(passes.draw(0)) == _bits(passes.params),
        "the same key draws others the second time; all that is random must come from the key",
    )
    require(_bits(passes.draw(1)) != _bits(passes.params), "another key draws the same ones")


def _check_sizes(passes: _Passes) -> None:
    shapes = {name: np.shape(x) for name, x in passes.params.items()}
    sizes = passes.model.read_sizes(shapes)
    wanted = (D_VOCAB, N_CTX, N_ANSWERS)
    require(
        (sizes.d_vocab, sizes.n_ctx or N_CTX, sizes.d_vocab_out) == wanted,
        f"read_sizes must give d_vocab, n_ctx, d_vocab_out = {wanted}, got {tuple(sizes)}",
    )


# ---- its pass


def _check_forward(passes: _Passes) -> str:
    wanted = (len(TOKENS), N_CTX, N_ANSWERS)
    require(
        passes.logits.shape == wanted,
        f"logits must have the shape {wanted[1:]}, got {passes.logits.shape[1:]}",
    )
    require(np.isfinite(passes.logits).all(), "logits are not finite")
    # prompts are shorter than the context
    short_one = np.asarray(passes.batched(passes.params, passes.tokens[:1, :2]))
    require(
        short_one.shape == (1, 2, N_ANSWERS),
        f"the logits of two tokens must have the shape (2, {N_ANSWERS}), got {short_one.shape[1:]}",
    )
    return f"logits {short(wanted[1:])}"


def _check_neighbors(passes: _Passes) -> None:
    turned = np.asarray(passes.batched(passes.params, passes.tokens[::-1]))[::-1]
    alone, _ = passes.alone
    same = np.allclose(turned, passes.logits, atol=CLOSE) and np.allclose(
        alone, passes.logits[0], atol=CLOSE
    )
    require(same, "its logits are others alone, or beside other sequences")


def _check_causal(passes: _Passes) -> None:
    if not passes.model.is_causal:
        raise NotApplicable("is_causal is False")
    for place in range(1, N_CTX):
        changed = passes.tokens.at[:, place].set((passes.tokens[:, place] + 1) % D_VOCAB)
        before = np.asarray(passes.batched(passes.params, changed))[:, :place]
        require(
            np.allclose(before, passes.logits[:, :place], atol=CLOSE),
            f"is_causal is True, and logits before position {place} change with the token there",
        )


def _check_gradient(passes: _Passes) -> str:
    def loss(params: Params) -> Array:
        found = jax.vmap(lambda row: forward(passes.model, params, row)[0])(passes.tokens)
        return (jax.nn.log_softmax(found)[..., 0] ** 2).mean()

    gradient = jax.device_get(jax.jit(jax.grad(loss))(passes.params))
    for name, x in gradient.items():
        require(np.isfinite(x).all(), f"that of {name} is not finite")
    still = [name for name, x in gradient.items() if not np.any(x)]
    require(len(still) < len(gradient), "it is 0 in all parameters")
    return f"0 in {', '.join(still)}" if still else ""


# ---- its sites


def _check_sites(passes: _Passes) -> str:
    sites = passes.model.sites()
    _, trace = passes.alone
    missed = [name for name in sites if name not in trace]
    for name in missed:  # a pass may make some only where somebody edits them
        passes.logits_with((_Idle(name),))
    sizes: dict[str, tuple[int, str]] = {"pos": (N_CTX, "the sequence")}
    for name, x in trace.items():
        for axis, size in zip(sites[name].split(), np.shape(x), strict=True):
            known, where = sizes.setdefault(axis, (size, name))
            require(
                size == known,
                f"the axis {axis!r} has {size} entries at {name!r}, and {known} at {where!r}",
            )
    return f"{len(sites)} sites, {len(missed)} of them only where edited"


def _check_edits(passes: _Passes) -> str:
    sites = passes.sites_of_edits

    def changes(params: Params, row: Array) -> dict[str, Array]:
        plain, _ = forward(passes.model, params, row)
        found: dict[str, Array] = {}
        for name in sites:
            edited, _ = forward(passes.model, params, row, (_Noise(name),))
            found[name] = jnp.abs(edited - plain).max()
        return found

    found = jax.device_get(jax.jit(changes)(passes.params, passes.tokens[0]))
    idle = [name for name, change in found.items() if not change > 0]
    require(
        not idle,
        f"noise at {', '.join(map(repr, idle))} changes no logit; the pass must go on with what "
        "`site` returns",
    )
    return f"{len(sites)} sites"


def _check_idle_edits(passes: _Passes) -> str:
    plain, _ = passes.alone
    sites = [name for name in passes.sites_of_edits if name in passes.alone[1]]
    edited = passes.logits_with(tuple(_Idle(name) for name in sites))
    require(
        edited.tobytes() == np.asarray(plain).tobytes(),
        "with edits that leave everything as it is, the logits have other bits",
    )
    return f"{len(sites)} sites at once"


# ---- training


def _check_trains(passes: _Passes) -> str:
    losses = np.asarray(passes.run.losses)[0]
    require(np.isfinite(losses).all(), "the loss is not finite")
    require(
        losses[-1] < losses[0],
        f"the loss was {losses[0]:.4g} at first and {losses[-1]:.4g} after {STEPS} steps",
    )
    return f"from {losses[0]:.3g} to {losses[-1]:.3g} in {STEPS} steps"
