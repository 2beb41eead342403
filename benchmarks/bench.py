"""`make bench`: Mnemoscope against the source's loop, in one run on one machine; writes BENCHMARKS.md.

Every measurement is a process of its own, pinned to the cores it may use, and the rivals take turns, so that a machine that
slows down slows both. Speed is a ratio and its spread; no test depends on it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
REPEATS = 3
LOSS_STEPS = 2000  # both are compared after 2,000 x 128 samples


def child(kind: str, norm: bool, cores: int, seeds: int) -> dict:
    """One measurement, in a fresh process."""
    command = [
        sys.executable,
        __file__,
        "--child",
        json.dumps({"kind": kind, "norm": norm, "cores": cores, "seeds": seeds}),
    ]
    result = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(HERE)})
    if result.returncode:
        sys.exit(result.stderr)
    return json.loads(result.stdout.splitlines()[-1])


def measure(kind: str, norm: bool, cores: int, seeds: int) -> dict:
    """What the child does: train, time the steps after compilation, and report the loss on the way."""
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:cores]))
    if kind == "source":
        from source_loop import train

        rate, losses = train(LOSS_STEPS, norm)
        return {"rate": rate, "loss": statistics.mean(losses[-200:])}
    from mnemoscope.engine import use_all_devices

    use_all_devices()
    from mnemoscope import Adam, ModelConfig, Permutation, Spec, fit

    model = ModelConfig(d_model=32, n_heads=2, d_mlp=64, norm="post" if norm else "none")
    steps = 4 * LOSS_STEPS
    spec = Spec(task=Permutation(repeat=0.3), model=model, optimiser=Adam(lr=1e-3), steps=steps, batch=128, snapshots=1)
    times: list[tuple[int, float]] = []
    run = fit(spec, range(seeds), progress=lambda done, _: times.append((done, time.perf_counter())))
    (first, began), (last, ended) = times[0], times[-1]
    at = run.loss_steps <= LOSS_STEPS
    return {"rate": seeds * (last - first) * 128 / (ended - began), "loss": float(run.losses[:, at][:, -6:].mean())}


def main() -> None:
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--child")
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure(**json.loads(arguments.child))))
        return
    from mnemoscope.engine import hardware, versions

    rows = {}
    for norm in (False, True):
        cases = {"source": ("source", 1, 1), "one": ("ours", 1, 1), "two": ("ours", 2, 8)}
        found: dict[str, list[dict]] = {name: [] for name in cases}
        for _ in range(REPEATS):
            for name, (kind, cores, seeds) in cases.items():
                found[name].append(child(kind, norm, cores, seeds))
                print(norm, name, found[name][-1], flush=True)
        rows[norm] = found

    def rate(results: list[dict]) -> float:
        return statistics.median(r["rate"] for r in results)

    def spread(results: list[dict], unit: float) -> str:
        return f"{min(r['rate'] for r in results) / unit:.1f} to {max(r['rate'] for r in results) / unit:.1f}"

    lines = [
        "# Benchmarks", "",
        f"Written by `make bench` on {time.strftime('%Y-%m-%d')}: {hardware()}; "
        + ", ".join(f"{k} {v}" for k, v in versions().items()) + ".", "",
        "The work: the `remember` model (V=5, one layer, d=32, two heads, feed-forward 64), batch 128, Adam. The yardstick is",
        "`benchmarks/source_loop.py`, the study's training as people write it in PyTorch, on one core. Medians of "
        f"{REPEATS} runs, taken in turns.", "",
        "| who | samples/s | ratio to the source's loop | spread | loss after 256,000 samples |", "|---|---|---|---|---|",
    ]  # fmt: skip
    names = {
        "source": "the source's loop, one core",
        "one": "Mnemoscope, one core, one seed",
        "two": "Mnemoscope, two cores, 8 seeds",
    }
    for norm, found in rows.items():
        unit = rate(found["source"])
        for name, results in found.items():
            loss = statistics.mean(r["loss"] for r in results)
            lines.append(f"| {names[name]}, {'norm' if norm else 'no norm'} | {rate(results):,.0f} | {rate(results) / unit:.1f} | "
                         f"{spread(results, unit)} | {loss:.3f} |")  # fmt: skip
    for norm, found in rows.items():
        gain = rate(found["two"]) / rate(found["one"])
        lines += ["", f"Two cores against one, {'with' if norm else 'without'} norm: {gain:.2f} times."]
    text = "\n".join([*lines, ""])
    (HERE.parent / "BENCHMARKS.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
