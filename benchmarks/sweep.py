"""Whether a sweep is faster than the loops that one would write instead of it.

    python benchmarks/sweep.py                            4 widths x 8 rates x 16 seeds
    python benchmarks/sweep.py --steps 100 --seeds 4      smaller

    sweep   ms.sweep
    fit     a loop over widths and rates that calls ms.fit, and reads off when accuracy came
    jax     the same loop in plain JAX: vmap over seeds, scan over steps, Optax; the learning rate
            is a number in the program, as one writes it

All three find, in each cell and for each seed, the first of 32 evaluations at which accuracy is at
least .99. Each runs in a process of its own and compiles everything anew: compilation is part of
the time, and what Python imports is not. They take turns; the ratios are of medians.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parents[1]
WAYS = ("sweep", "fit", "jax")
WIDTHS = (8, 16, 32, 64)
N_RATES = 8
EVALS = 32
LEVEL = 0.99


def base_spec(steps: int):
    """What is swept.

    Args:
        steps: how long it is trained.
    """
    import mnemoscope as ms

    return ms.Spec(
        task=ms.Cycle(n_symbols=11, length=8),
        model=ms.ModelConfig(d_model=8, n_heads=2, d_mlp=32),
        steps=steps,
        batch=32,
    )


def rates():
    """The learning rates."""
    import mnemoscope as ms

    return ms.geomspace(1e-4, 1e-1, N_RATES)


def by_sweep(steps: int, seeds: int) -> int:
    """How many seeds of all cells reach, by `ms.sweep`."""
    import mnemoscope as ms

    over = {"model.d_model": WIDTHS, "optimizer.lr": rates()}
    found = ms.sweep(base_spec(steps), over, seeds, event=f"accuracy>={LEVEL}", progress=False)
    return sum(int(cell.reached.sum()) for cell in found.cells)


def by_fit(steps: int, seeds: int) -> int:
    """The same by a loop that calls `ms.fit`."""
    import mnemoscope as ms

    n_reached = 0
    for width in WIDTHS:
        for rate in rates():
            spec = base_spec(steps).model_copy(
                update={
                    "model": ms.ModelConfig(d_model=width, n_heads=2, d_mlp=32),
                    "optimizer": ms.Adam(lr=rate),
                    "metrics": "answers",
                    "n_evals": EVALS,
                }
            )
            run = ms.fit(spec, seeds, progress=False)
            n_reached += int((run.metrics["accuracy"] >= LEVEL).any(axis=1).sum())
    return n_reached


def by_jax(steps: int, seeds: int) -> int:
    """The same in plain JAX."""
    import jax
    import jax.numpy as jnp
    import optax
    from peer_cases import initial, stock
    from peer_jax import logits

    import mnemoscope as ms

    n_reached = 0
    for width in WIDTHS:
        for rate in rates():
            model = ms.ModelConfig(d_model=width, n_heads=2, d_mlp=32)
            spec = base_spec(steps).model_copy(update={"model": model})
            sequences = jax.tree.map(jnp.asarray, stock(spec, 1024))
            every = spec.task.sequences()
            tokens, targets = jnp.asarray(every[:, :-1]), jnp.asarray(every[:, 1:])
            rule = optax.adam(rate)

            def loss(params, rows, model=model, sequences=sequences):
                found = logits(model, params, sequences.tokens[rows], jnp.float32)
                each = optax.softmax_cross_entropy_with_integer_labels(
                    found, sequences.targets[rows]
                )
                return each.mean()

            def train(state, key, begin, spec=spec, rule=rule, loss=loss):
                def step(state, i):
                    params, remembered = state
                    rows = jax.random.randint(jax.random.fold_in(key, i), (spec.batch,), 0, 1024)
                    gradient = jax.grad(loss)(params, rows)
                    updates, remembered = rule.update(gradient, remembered, params)
                    return (optax.apply_updates(params, updates), remembered), None

                return jax.lax.scan(step, state, begin + jnp.arange(steps // EVALS))[0]

            def accuracy(params, model=model, tokens=tokens, targets=targets):
                said = logits(model, params, tokens, jnp.float32).argmax(-1)
                return (said == targets).mean()

            run = jax.jit(jax.vmap(train, in_axes=(0, 0, None)))
            read = jax.jit(jax.vmap(accuracy))
            params = jax.tree.map(jnp.asarray, initial(spec, seeds))
            state = (params, jax.vmap(rule.init)(params))
            keys = jax.random.split(jax.random.key(0), seeds)
            reached = read(params) >= LEVEL
            for stretch in range(EVALS):
                state = run(state, keys, jnp.array(stretch * (steps // EVALS)))
                reached |= read(state[0]) >= LEVEL
            n_reached += int(reached.sum())
    return n_reached


def timed(way: str, steps: int, seeds: int) -> dict[str, float]:
    """Seconds that one of the ways takes, in this process, with nothing compiled before.

    Args:
        way: `sweep`, `fit` or `jax`.
        steps: of each training.
        seeds: of each cell.
    """
    import jax

    import mnemoscope.training  # every core is a device, before JAX first computes  # noqa: F401

    jax.config.update("jax_enable_compilation_cache", False)
    ways: dict[str, Callable[[int, int], int]] = {"sweep": by_sweep, "fit": by_fit, "jax": by_jax}
    began = time.perf_counter()
    reached = ways[way](steps, seeds)
    return {"seconds": time.perf_counter() - began, "reached": reached}


def measure(way: str, options: argparse.Namespace) -> dict[str, float]:
    """`timed` in a process of its own.

    Args:
        way: which of them.
        options: of the command line.
    """
    sizes = ["--steps", str(options.steps), "--seeds", str(options.seeds)]
    done = subprocess.run(
        [sys.executable, __file__, "--way", way, *sizes],
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(HERE), str(HERE / "benchmarks")))},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Take turns and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--way", choices=WAYS, help="one measurement, in this process")
    parser.add_argument("--steps", type=int, default=512, help="of each training")
    parser.add_argument("--seeds", type=int, default=16, help="of each cell")
    parser.add_argument("--repeats", type=int, default=3, help="how many turns")
    options = parser.parse_args()
    if options.steps % EVALS:
        raise SystemExit(f"--steps must be a multiple of {EVALS}, got {options.steps}")
    if options.way:
        print(json.dumps(timed(options.way, options.steps, options.seeds)))
        return
    n_seeds = len(WIDTHS) * N_RATES * options.seeds
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    for turn in range(options.repeats):
        for way in WAYS:
            found = measure(way, options)
            seconds[way].append(found["seconds"])
            reached = f"{found['reached']:.0f} of {n_seeds} reached"
            print(f"turn {turn + 1}: {way:<5} {found['seconds']:7.1f} s   {reached}", flush=True)
    median = {way: statistics.median(found) for way, found in seconds.items()}
    for way in WAYS[1:]:
        print(f"the sweep is {median[way] / median['sweep']:.2f} times as fast as the {way} loop")


if __name__ == "__main__":
    main()
