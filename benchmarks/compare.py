"""Whether a change costs time: what stands here beside an earlier commit.

    python benchmarks/compare.py REV
    python benchmarks/compare.py REV --only "remember, one core" --repeats 9

The commit is taken out into a temporary folder. Every measurement is a process of its own on the
cores that it names, and the two trees take turns, so that a machine that slows down slows both. A
ratio above 1 says that what stands here is faster. Nothing is kept but the table that is printed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parents[1]
BATCH = 128


def remember(norm: str, seeds: int) -> float:
    """Samples a second of the `remember` model's training."""
    from mnemoscope import Adam, ModelConfig, Permutation, Spec, fit

    steps = 8000 if seeds == 1 else 1000
    spec = Spec(
        task=Permutation(repeat=0.3),
        model=ModelConfig(d_model=32, n_heads=2, d_mlp=64, norm=norm),
        optimizer=Adam(lr=1e-3),
        steps=steps,
        batch=BATCH,
        snapshots=1,
    )
    return seeds * BATCH * _steps_a_second(fit, spec, seeds)


def birth() -> float:
    """Sequences a second of the simplified induction model's training, at the paper's sizes.

    At small sizes a stop after each step costs as much as a quarter of it, or nothing, by the luck
    of whether the allocator hands the step's memory back to the system.
    """
    from mnemoscope import Bigrams, Spec, fit
    from mnemoscope.theory.induction import simplified_model
    from mnemoscope.training.optimizers import SGD

    spec = Spec(
        task=Bigrams(length=256),
        model=simplified_model(256),
        optimizer=SGD(lr=0.03, momentum=0.9, weight_decay=1e-4),
        steps=6,
        batch=512,
        snapshots=1,
    )
    return 512 * _steps_a_second(fit, spec, 1)


def _steps_a_second(fit: Callable, spec: object, seeds: int) -> float:
    """After the first stretch, which holds the compilation."""
    times: list[tuple[int, float]] = []
    fit(spec, range(seeds), progress=lambda done, _: times.append((done, time.perf_counter())))
    (first, began), (last, ended) = times[0], times[-1]
    return (last - first) / (ended - began)


def plain(norm: str) -> float:
    """Sequences a second of the plain pass of a model of two layers, with its gradient."""
    import jax
    import jax.numpy as jnp

    from mnemoscope.models import ModelConfig, forward, init

    config = ModelConfig(d_model=32, n_heads=2, n_layers=2, d_mlp=64, norm=norm)
    params = init(config, 16, 32, key=jax.random.key(0))
    tokens = jax.random.randint(jax.random.key(1), (BATCH, 32), 0, 16)

    def loss(params: dict) -> object:
        logits = jax.vmap(lambda row: forward(config, params, row)[0])(tokens)
        return jax.nn.logsumexp(logits, axis=-1).mean()

    gradient = jax.grad(loss)

    @jax.jit
    def turns(params: dict) -> dict:
        def turn(_: object, params: dict) -> dict:
            change = gradient(params)
            return {name: x - 1e-3 * change[name] for name, x in params.items()}

        return jax.lax.fori_loop(0, 100, turn, params)

    params = jax.block_until_ready(turns({n: jnp.asarray(x) for n, x in params.items()}))
    began = time.perf_counter()
    for _ in range(3):
        params = jax.block_until_ready(turns(params))
    return 300 * BATCH / (time.perf_counter() - began)


def help_page() -> float:
    """How often `mnemoscope --help` runs in a second, from start to end."""
    command = [sys.executable, "-m", "mnemoscope", "--help"]
    began = time.perf_counter()
    for _ in range(5):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return 5 / (time.perf_counter() - began)


class Measurement(NamedTuple):
    """What is measured."""

    run: Callable[..., float]
    """A rate: the more, the faster."""
    cores: int
    """On how many cores."""
    arguments: dict
    """What it is called with."""


MEASUREMENTS = {
    "remember, one core": Measurement(remember, 1, {"norm": "none", "seeds": 1}),
    "remember with norm, one core": Measurement(remember, 1, {"norm": "post", "seeds": 1}),
    "remember, two cores": Measurement(remember, 2, {"norm": "none", "seeds": 32}),
    "birth's step": Measurement(birth, 1, {}),
    "plain pass, two layers": Measurement(plain, 1, {"norm": "none"}),
    "plain pass with norm, two layers": Measurement(plain, 1, {"norm": "pre"}),
    "help page": Measurement(help_page, 1, {}),
}


def child(name: str) -> None:
    """One measurement, in the process that it is made in."""
    import mnemoscope

    folder = Path.cwd()
    if not Path(mnemoscope.__file__).is_relative_to(folder):
        sys.exit(f"{mnemoscope.__file__} is measured instead of what stands in {folder}")
    measured = MEASUREMENTS[name]
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: measured.cores])
    # as the command line has it, which stood elsewhere in earlier commits
    devices = f"--xla_force_host_platform_device_count={measured.cores}"
    os.environ["XLA_FLAGS"] = f"{devices} --xla_cpu_multi_thread_eigen=false"
    print(json.dumps(measured.run(**measured.arguments)))


def rate(tree: Path, name: str) -> float:
    """One measurement of a tree."""
    result = subprocess.run(
        [sys.executable, __file__, "--child", name],
        capture_output=True,
        text=True,
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree)},
    )
    if result.returncode:
        sys.exit(f"{name} in {tree} failed:\n{result.stderr}")
    return json.loads(result.stdout.splitlines()[-1])


def ratios(before: Path, name: str, repeats: int) -> list[float]:
    """What stands here over what stood before, turn by turn; who begins changes."""
    found = []
    for turn in range(repeats):
        order = [HERE, before] if turn % 2 else [before, HERE]
        rates = {tree: rate(tree, name) for tree in order}
        found.append(rates[HERE] / rates[before])
    return found


def take_out(rev: str, folder: Path) -> None:
    """The files of a commit."""
    archive = subprocess.run(
        ["git", "-C", str(HERE), "archive", rev], capture_output=True, check=False
    )
    if archive.returncode:
        sys.exit(archive.stderr.decode().strip())
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)


def main() -> None:
    """Compare, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rev", nargs="?", help="the commit that stood before")
    parser.add_argument("--only", action="append", choices=MEASUREMENTS, help="some measurements")
    parser.add_argument("--repeats", type=int, default=7, help="turns of each")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        child(chosen.child)
        return
    if not chosen.rev:
        parser.error("which commit stood before?")
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder)
        take_out(chosen.rev, before)
        print(f"{'what':34} {'median':>7}  spread, of {chosen.repeats} turns", flush=True)
        for name in chosen.only or MEASUREMENTS:
            found = ratios(before, name, chosen.repeats)
            spread = f"{min(found):.3f} to {max(found):.3f}"
            print(f"{name:34} {statistics.median(found):7.3f}  {spread}", flush=True)


if __name__ == "__main__":
    main()
