"""Whether a task from outside trains as fast as one of ours of the same shape.

    python benchmarks/outside.py

`RunningSum` of `examples/outside` beside the built-in `Cycle`: as many tokens, positions and
questions, the same model, batch and optimizer. Both train in turns, each in a process of its own,
so that a machine that slows down slows both. A ratio above 1 says that the one from outside is
faster.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parents[1]
TOKENS = 5
LENGTH = 12
BATCH = 128
STEPS = 4000


def train(which: str) -> float:
    """Sequences a second, compilation left out.

    Args:
        which: `ours` or `outside`.
    """
    import mnemoscope as ms
    from mnemoscope.training.loop import fit

    if which == "outside":
        from state_tracking import RunningSum

        task: ms.Task = RunningSum(modulus=TOKENS, length=LENGTH)
    else:
        task = ms.Cycle(n_symbols=TOKENS, length=LENGTH)
    spec = ms.Spec(
        task=task,
        model=ms.ModelConfig(d_model=32, n_heads=2, d_mlp=64),
        steps=STEPS,
        batch=BATCH,
        snapshots=1,
    )
    times: list[tuple[int, float]] = []
    fit(spec, [0], progress=lambda done, _: times.append((done, time.perf_counter())))
    first, began = times[0]
    last, ended = times[-1]
    return BATCH * (last - first) / (ended - began)


def measure(which: str) -> float:
    """`train` in a process of its own on one core.

    Args:
        which: `ours` or `outside`.
    """
    path = os.pathsep.join((str(HERE), str(HERE / "examples/outside")))
    command = [sys.executable, __file__, "--train", which]
    done = subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {0}),
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Take turns and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", choices=("ours", "outside"), help="one measurement")
    parser.add_argument("--repeats", type=int, default=5, help="how many turns")
    options = parser.parse_args()
    if options.train:
        print(json.dumps(train(options.train)))
        return
    ratios = []
    for turn in range(options.repeats):
        ours = measure("ours")
        outside = measure("outside")
        ratios.append(outside / ours)
        print(f"turn {turn + 1}: ours {ours:,.0f}, outside {outside:,.0f} sequences a second")
    print(
        f"outside is {statistics.median(ratios):.3f} times as fast as ours "
        f"({min(ratios):.3f} to {max(ratios):.3f})"
    )


if __name__ == "__main__":
    main()
