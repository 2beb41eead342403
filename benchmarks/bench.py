"""`make bench`: measure on this machine, keep the numbers in benchmarks/NAME.json,
and write BENCHMARKS.md from all of them.

On a CPU the rivals take turns, each in a process of its own on the cores it may use, so that a
machine that slows down slows both. On a GPU the same training is measured against itself: seeds,
sizes, the whole budget. Speed is a ratio and its spread; no test depends on it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import measure
from report import write

HERE = Path(__file__).parent
REPEATS = 7
RIVALS = {
    "source": ("source", 1, 1),
    "one": ("ours", 1, 1),
    "one core, many": ("ours", 1, 32),
    "two cores, many": ("ours", 2, 32),
}

# this process holds most of the device's memory
BESIDE = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


def child(function: str, cores: int | None = None, env: dict | None = None, **arguments) -> dict:
    """One measurement, in a fresh process."""
    order = json.dumps({"function": function, "cores": cores, "arguments": arguments})
    result = subprocess.run(
        [sys.executable, __file__, "--child", order],
        capture_output=True,
        text=True,
        env=os.environ | (env or {}),
    )
    if result.returncode:
        sys.exit(f"{function} {arguments} failed:\n{result.stderr}")
    return json.loads(result.stdout.splitlines()[-1])


def on_a_child(order: dict) -> None:
    """What the child does."""
    if order["cores"]:
        measure.pin(order["cores"])
    if order["function"] != "source":
        from mnemoscope.execution.machine import use_all_devices

        use_all_devices()
    arguments = {k: Path(v) if k == "store" else v for k, v in order["arguments"].items()}
    print(json.dumps(getattr(measure, order["function"])(**arguments)))


def tell(line: str) -> None:
    """Progress, with the time."""
    print(time.strftime("%H:%M:%S"), line, flush=True)


def rivals(norm: bool) -> dict:
    """The paper's loop and ours, in turns."""
    found: dict[str, list[dict]] = {name: [] for name in RIVALS}
    for _ in range(REPEATS):
        for name, (function, cores, seeds) in RIVALS.items():
            arguments = {"norm": norm} | ({"seeds": seeds} if function == "ours" else {})
            found[name].append(child(function, cores, **arguments))
            tell(f"{'norm' if norm else 'no norm'}, {name}: {found[name][-1]}")
    return found


def birth() -> dict:
    """The induction model, ours and as people write it, in turns on one core;
    then the loss that both reach.
    """
    found: dict = {"source": [], "ours": []}
    for _ in range(5):
        for name in found:
            found[name].append(child(f"birth_{name}", 1, size="time"))
            tell(f"birth, {name}: {found[name][-1]}")
    return found | {"losses": {name: child(f"birth_{name}", 1, size="loss") for name in found}}


def start() -> dict:
    """How long a person waits, with an empty cache and with a full one."""
    with tempfile.TemporaryDirectory() as folder:
        return measure.start_times(Path(folder))


def growth_on_cpu() -> dict:
    """Each axis in a process of its own."""
    found: dict = {}
    for axis in measure.GROWTH["cpu"]:
        found |= child("growth_of", axis=axis, kind="cpu")
        tell(f"growth: {axis}: {found[axis]}")
    return found


def growth_on_gpu() -> dict:
    """All in this process: starting one takes longer than the measurement."""
    found: dict = {}
    for axis in measure.GROWTH["gpu"]:
        found |= measure.growth_of(axis, "gpu", tell)
    return found | {"memory": measure.memory()}


def blocks() -> dict:
    """The same seeds on a device with enough memory,
    and with so little that they have to be cut.
    """
    import numpy as np

    found, losses = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for share in ("0.5", "0.003"):
            store = Path(folder, share)
            found[share] = child(
                "blocks", store=str(store), env={"XLA_PYTHON_CLIENT_MEM_FRACTION": share}
            )
            losses[share] = np.load(store / "losses.npy")
    return found | {"apart": float(np.abs(losses["0.5"] - losses["0.003"]).max())}


def peers(*options: str) -> list[dict]:
    """Ours beside plain JAX and PyTorch: every model of `peers.py`, which takes turns by itself."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "peers.json")
        subprocess.run(
            [sys.executable, str(HERE / "peers.py"), "--out", str(out), *options], check=True
        )
        return json.loads(out.read_text())["peers"]


PARTS = {
    "cpu": {
        "peers": peers,
        "loop": lambda: {"norm" if norm else "no norm": rivals(norm) for norm in (False, True)},
        "birth": birth,
        "start": start,
        "evaluation": lambda: child("evaluation", scale="quick"),
        "growth": growth_on_cpu,
    },
    "gpu": {
        "peers": lambda: peers("--precision", "default", "bfloat16"),
        "agreement": measure.agreement,
        "budget": measure.budget,
        "birth": measure.birth_steps,
        "evaluation": lambda: child("evaluation", env=BESIDE, scale="full"),
        "growth": growth_on_gpu,
        "norm": lambda: {"1024": measure.ours(True, 1024)["rate"]},
        "blocks": blocks,
    },
}


def main() -> None:
    """Measure, keep, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument(
        "--only",
        nargs="*",
        metavar="PART",
        help="measure only these parts again; none: write the page",
    )
    parser.add_argument(
        "--out", type=Path, default=HERE, help="folder for the numbers (default: benchmarks/)"
    )
    arguments = parser.parse_args()
    if arguments.child:
        on_a_child(json.loads(arguments.child))
        return
    if arguments.only != []:
        import jax

        from mnemoscope.execution.machine import hardware, versions

        kind = "cpu" if jax.default_backend() == "cpu" else "gpu"
        parts = PARTS[kind]
        if unknown := set(arguments.only or ()) - set(parts):
            parser.error(f"unknown part {', '.join(unknown)}; allowed: {', '.join(parts)}")
        path = arguments.out / f"{kind}.json"
        found = json.loads(path.read_text()) if arguments.only and path.is_file() else {}
        found |= {"hardware": hardware(), "versions": versions(), "date": time.strftime("%Y-%m-%d")}
        for part in arguments.only or parts:
            found[part] = parts[part]()
            found.pop(f"{part} on", None)  # measured here and now, as all of it
            tell(f"{part}: {found[part]}")
        path.write_text(json.dumps(found, indent=1) + "\n")
    if arguments.out == HERE:
        write()


if __name__ == "__main__":
    main()
