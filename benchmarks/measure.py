"""What is measured, one function a measurement; `bench.py` decides which of them run where.

Each returns plain numbers. Rates leave compilation out:
the clock starts when the first stretch of a training is done.
"""

import os
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

BATCH, LOSS_STEPS = 128, 2000  # losses are compared after 2,000 x 128 samples
GROWTH = {
    "cpu": {
        "seeds": [1, 2, 4, 8, 16, 32],
        "width": [8, 16, 32, 64, 128, 256],
        "length": [5, 9, 17, 33, 49, 51, 65],
        "vocabulary": [4, 8, 16, 32, 34, 64],
    },
    "gpu": {
        "seeds": [1, 4, 16, 64, 256, 1024, 4096],
        "width": [16, 32, 64, 128, 256],
        "length": [5, 9, 17, 33, 65],
        "vocabulary": [4, 8, 16, 32, 64],
    },
}
GROWTH_SEEDS = {"cpu": 2, "gpu": 1024}  # where something else than the seeds is varied


def remember(d: int = 32, norm: str = "none", steps: int = 4 * LOSS_STEPS, snapshots: int = 1):
    """The Spec that everything here trains: the study's model with two heads,
    at the paper's batch.
    """
    from mnemoscope import Adam, ModelConfig, Permutation, Spec

    model = ModelConfig(d_model=d, n_heads=2, d_mlp=2 * d, norm=norm)
    task = Permutation(repeat=0.3)
    return Spec(
        task=task,
        model=model,
        optimizer=Adam(lr=1e-3),
        steps=steps,
        batch=BATCH,
        snapshots=snapshots,
    )


def source(norm: bool) -> dict:
    """The paper's loop in PyTorch: rate, and loss after LOSS_STEPS."""
    from source_loop import train

    rate, losses = train(LOSS_STEPS, norm)
    return {"rate": rate, "loss": statistics.mean(losses[-200:])}


def ours(norm: bool, seeds: int) -> dict:
    """The same training with Mnemoscope, as every study trains."""
    from mnemoscope import fit

    times: list[tuple[int, float]] = []
    steps = (4 if seeds == 1 else 1) * LOSS_STEPS
    run = fit(
        remember(norm="post" if norm else "none", steps=steps),
        range(seeds),
        progress=lambda done, _: times.append((done, time.perf_counter())),
    )
    (first, began), (last, ended) = times[0], times[-1]
    end = run.loss_steps <= LOSS_STEPS  # the last tenth of the compared samples, as for the paper
    tenth = end & (run.loss_steps > 0.9 * LOSS_STEPS)
    return {
        "rate": seeds * (last - first) * BATCH / (ended - began),
        "loss": float(run.losses[:, tenth].mean()),
    }


# the induction model: width, length, batch, steps; at the paper's sizes for time,
# small for the loss that both reach
BIRTH = {"time": (256, 256, 512, 2), "loss": (64, 64, 64, 400)}


def birth_source(size: str) -> dict:
    """The simplified induction model as people write it: seconds a step, of these drawing text,
    and the last losses.
    """
    import birth_loop

    from mnemoscope.tasks import Bigrams

    d, length, batch, steps = BIRTH[size]
    task = Bigrams(length=length)
    text = birth_loop.Text(
        task.text.unigrams, task.text.bigrams, task.fixed_triggers, length, seed=0
    )
    seconds, drawing, losses = birth_loop.train(text, d, batch, steps)
    return {"seconds": seconds, "drawing": drawing, "loss": statistics.mean(losses[-40:])}


def birth_ours(size: str) -> dict:
    """The same training with Mnemoscope, as the study trains it; for the loss over eight seeds."""
    from mnemoscope import Spec, fit
    from mnemoscope.tasks import Bigrams
    from mnemoscope.theory.induction import simplified_model
    from mnemoscope.training.optimizers import SGD

    d, length, batch, steps = BIRTH[size]
    steps = 8 if size == "time" else steps
    optimizer = SGD(lr=0.03, momentum=0.9, weight_decay=1e-4)
    spec = Spec(
        task=Bigrams(length=length),
        model=simplified_model(d),
        optimizer=optimizer,
        steps=steps,
        batch=batch,
        snapshots=1,
    )
    times: list[tuple[int, float]] = []
    run = fit(
        spec,
        range(1 if size == "time" else 8),
        progress=lambda done, _: times.append((done, time.perf_counter())),
    )
    (first, began), (last, ended) = times[0], times[-1]
    late = run.losses[:, run.loss_steps > steps - 40].mean(axis=1)
    return {"seconds": (ended - began) / (last - first), "loss": late.tolist()}


def birth_steps() -> dict:
    """Seconds a step of the full-scale induction model, its text included,
    by the number of seeds trained together.
    """
    from mnemoscope import fit
    from mnemoscope.studies.library.birth.conditions import ALL, build_conditions

    found = {}
    for seeds, steps in ((1, 600), (16, 100)):
        spec = build_conditions("full")[ALL].spec.model_copy(
            update={"steps": steps, "metrics": None, "n_evals": 0, "snapshots": 1}
        )
        times: list[tuple[int, float]] = []
        fit(
            spec,
            range(seeds),
            progress=lambda done, _, times=times: times.append((done, time.perf_counter())),
        )
        (first, began), (last, ended) = times[0], times[-1]
        found[str(seeds)] = (ended - began) / (last - first)
    return found


def _timed(advance, target: float = 1.0) -> float:
    """Median seconds of one turn; `advance(turns)` runs that many and waits."""
    advance(2)
    turns = 4
    while True:
        began = time.perf_counter()
        advance(turns)
        if (took := time.perf_counter() - began) > target / 8:
            break
        turns *= 2
    turns = max(1, round(turns * target / 4 / took))
    found = []
    for _ in range(5):
        began = time.perf_counter()
        advance(turns)
        found.append((time.perf_counter() - began) / turns)
    return statistics.median(found)


def step_time(d: int, seeds: int) -> float:
    """Seconds of one training step of all seeds."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from mnemoscope.core.seeds import device_mesh, shard
    from mnemoscope.training.compilation import numbers_by_seed, programs
    from mnemoscope.training.shared_arrays import place_arrays

    spec = remember(d, steps=10**6)
    program = programs(spec, seeds)
    mesh = device_mesh(seeds)
    ids = shard(mesh, np.arange(seeds))
    numbers = shard(mesh, numbers_by_seed([spec] * seeds))
    arrays = place_arrays(spec.task, mesh)
    states = program.start(ids)
    return _timed(
        lambda turns: jax.block_until_ready(
            program.advance((ids, states, numbers), jnp.array(0), jnp.array(turns), arrays)
        )
    )


def gradient_time(length: int, vocabulary: int, seeds: int, d: int = 32) -> float:
    """Seconds for loss and gradient of random sequences read at every second position;
    no task has this freedom.
    """
    from typing import ClassVar

    import jax
    import jax.numpy as jnp
    import numpy as np

    from mnemoscope.core.seeds import device_mesh, for_each_seed, seeds_per_device, shard
    from mnemoscope.models import ModelConfig, init
    from mnemoscope.models.rewrites.choose import choose_rewrite
    from mnemoscope.tasks import Example, Task
    from mnemoscope.training.loss import batch_loss

    class EverySecond(Task):
        """Read at every second position."""

        d_vocab: ClassVar[int] = vocabulary
        n_ctx: ClassVar[int] = length
        loss_positions: ClassVar[tuple[int, ...]] = tuple(range(0, length, 2))

        def world(self, *, key):
            raise NotImplementedError("sequences are drawn here")

        def sample(self, world, *, key):
            raise NotImplementedError("sequences are drawn here")

    task = EverySecond()
    config = ModelConfig(d_model=d, n_heads=2, d_mlp=2 * d)
    rewrite = choose_rewrite(config, task)
    tokens = jnp.array(np.random.default_rng(0).integers(0, vocabulary, (BATCH, length)))

    def one(params, turns, tokens):
        def turn(i, params):
            shifted = (tokens + i) % vocabulary  # so that nothing can be computed before the loop
            batch = Example(shifted, shifted, jnp.ones(tokens.shape))
            gradient = jax.grad(lambda p: batch_loss(task, config, p, batch, rewrite))(params)
            return jax.tree.map(lambda p, g: p - 1e-3 * g, params, gradient)

        return jax.lax.fori_loop(0, turns, turn, params)

    mesh = device_mesh(seeds)
    params = shard(
        mesh,
        jax.vmap(lambda key: init(config, vocabulary, length, key=key))(
            jax.random.split(jax.random.key(0), seeds)
        ),
    )
    run = jax.jit(for_each_seed(one, mesh, seeds_per_device(mesh, seeds)))
    return _timed(lambda turns: jax.block_until_ready(run(params, jnp.array(turns), tokens)))


def growth_of(axis: str, kind: str, tell=lambda _: None) -> dict[str, list[list[float]]]:
    """Seconds of a step against seeds, width, length or vocabulary."""
    seeds = GROWTH_SEEDS[kind]
    few = max(1, seeds // 4)  # the plain path on long sequences needs memory for every position
    timer = {
        "seeds": lambda n: step_time(32, n),
        "width": lambda n: step_time(n, seeds),
        "length": lambda n: gradient_time(n, 6, few),
        "vocabulary": lambda n: gradient_time(9, n, few),
    }[axis]
    found = []
    for n in GROWTH[kind][axis]:
        found.append([n, timer(n)])
        tell(f"growth: {axis} {n}: {1e6 * found[-1][1]:,.0f} us a step")
    return {axis: found}


def start_times(folder: Path) -> dict:
    """`--help`, and the time from the start of Python to the end of the first stretch of training,
    cold and known.
    """
    script = f"""
import time; began = time.perf_counter()
from pathlib import Path
from mnemoscope.execution.machine import use_all_devices
use_all_devices(Path({str(folder)!r}))
from mnemoscope import Adam, ModelConfig, Permutation, Spec, fit
spec = Spec.model_validate_json({remember(steps=640).canonical_json()!r})
first = []
fit(spec, [0], progress=lambda done, _: first.append(time.perf_counter() - began))
print(first[0])
"""
    cold, known = (
        float(subprocess.check_output([sys.executable, "-c", script], text=True)) for _ in range(2)
    )
    helps = []
    for _ in range(5):
        began = time.perf_counter()
        subprocess.check_output([sys.executable, "-m", "mnemoscope", "--help"])
        helps.append(time.perf_counter() - began)
    return {"help": statistics.median(helps), "first_step_cold": cold, "first_step_known": known}


def evaluation(scale: str, seeds: int = 64) -> dict:
    """Training of the study's condition with two heads, against every probe on it;
    compilation counts for both.
    """
    from mnemoscope import fit
    from mnemoscope.probes.ablation import forced_patterns, knock_outs
    from mnemoscope.probes.attention import mean_pattern
    from mnemoscope.probes.skills import over_seeds, report_card
    from mnemoscope.studies.library.remember.conditions import TWO, build_conditions

    spec = build_conditions(scale)[TWO].spec
    began = time.perf_counter()
    run = fit(spec, range(seeds))
    trained = time.perf_counter() - began
    models, worlds, found = run.models(), run.worlds(), {"train": trained}

    def attention(task, model, split):
        return mean_pattern(task, model, task.list_tokens(split.held_out, (task.n_symbols - 1,)))

    probes = {
        "report card": report_card,
        "knock-outs": knock_outs,
        "forced patterns": forced_patterns,
        "attention": attention,
    }
    for name, probe in probes.items():
        began = time.perf_counter()
        over_seeds(partial(probe, spec.task), models, worlds)
        found[name] = time.perf_counter() - began
    return found


def budget(seeds: int = 1000) -> dict:
    """The paper's whole budget, 5 million samples for each seed,
    from an empty cache to finished runs.
    """
    from mnemoscope import fit
    from mnemoscope.studies.library.remember.conditions import TWO, build_conditions

    times: list[float] = []
    began = time.perf_counter()
    run = fit(
        build_conditions("full")[TWO].spec,
        range(seeds),
        progress=lambda *_: times.append(time.perf_counter() - began),
    )
    return {
        "seconds": time.perf_counter() - began,
        "first_stretch": times[0],
        "finished": int(run.finished.sum()),
    }


def blocks(store: Path) -> dict:
    """A device with little memory: seeds that do not fit are cut into blocks,
    and the losses are those of the whole.
    """
    import warnings

    import numpy as np

    from mnemoscope.core.errors import Notice
    from mnemoscope.execution.local import load_or_train
    from mnemoscope.store import Store

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", Notice)
        run = load_or_train(Store(store), remember(steps=100), range(1024))
    np.save(store / "losses.npy", run.losses)
    return {"told": [str(w.message) for w in told if w.category is Notice]}


def agreement(norms: tuple[str, ...] = ("none", "post")) -> dict:
    """Loss and gradient of the training's path against the plain forward pass on this device,
    at full precision.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np

    from mnemoscope.models.rewrites.choose import choose_rewrite
    from mnemoscope.training.loss import batch_loss
    from mnemoscope.training.step import draw, start, unravel_params
    from mnemoscope.training.worlds import seed_keys

    def one(norm: str) -> dict:
        spec = remember(norm=norm)
        for_world, _, for_data = seed_keys(0)
        batch = draw(spec, spec.task.world(key=for_world), for_data, jnp.array(0))
        params = unravel_params(spec, start(spec, 0).trained)

        def found(plain: bool):
            rewrite = None if plain else choose_rewrite(spec.model, spec.task)
            loss = partial(batch_loss, spec.task, spec.model, batch=batch, rewrite=rewrite)
            with jax.default_matmul_precision("highest"):
                return jax.jit(jax.value_and_grad(loss))(params)

        (quick, by_quick), (plain, by_plain) = found(False), found(True)
        size = np.sqrt(sum(float(jnp.square(g).sum()) for g in by_plain.values()))
        apart = np.sqrt(sum(float(jnp.square(by_quick[k] - g).sum()) for k, g in by_plain.items()))
        return {"loss": abs(float(quick / plain) - 1), "gradient": float(apart / size)}

    return {norm: one(norm) for norm in norms}


def memory() -> dict:
    """The device's memory, and the most of it that was ever in use."""
    import jax

    stats = jax.devices()[0].memory_stats() or {}
    return {key: stats[key] for key in ("peak_bytes_in_use", "bytes_limit") if key in stats}


def pin(cores: int) -> None:
    """Keep this process on the first cores."""
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:cores]))
