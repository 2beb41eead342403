"""Ours beside what a user would write in JAX and in PyTorch, in turns on one machine.

    python benchmarks/peers.py --only t64 t256 --out peers.json        these models; the file keeps
                                                                       what it has of others

Every trainer is a process of its own, compiled and warm; then they take turns, a window of a second
or so each, so that a machine that slows down slows all of them. A figure is the median over windows
of samples a second, all seeds together, its spread the least and the most. Each trainer first says
its loss after so many steps, which are as many samples for all.

In bfloat16, JAX is the faster of its float32 and bfloat16 forms. On a CPU, PyTorch is the faster of
eager and compiled.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import traceback
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
ROUNDS = 7
SECONDS = 1.0  # of a window
# several processes share a GPU: none takes all of its memory
SHARED = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


def serve(order: dict) -> None:
    """What a trainer's process does: train, say the loss, and then a window at every word."""
    if order["cores"]:
        os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[: order["cores"]]))
    from peer_cases import CASES

    case = CASES[order["case"]]
    spec = case.spec
    batch = order["seeds"] * spec.batch
    advance = prepared(order, spec)
    loss_steps = order["loss_steps"] or case.loss_steps
    last = max(1, loss_steps // 10)
    if loss_steps > last:
        advance(loss_steps - last)
    say({"loss": advance(last)})
    steps = steps_of(advance, order["seconds"])
    for _ in sys.stdin:
        began = time.perf_counter()
        advance(steps)
        say({"rate": steps * batch / (time.perf_counter() - began)})


def prepared(order: dict, spec):
    """The trainer that an order names."""
    who, seeds, precision = order["who"], order["seeds"], order["precision"]
    if who == "ours":
        from mnemoscope.execution.machine import use_all_devices

        use_all_devices()
        from peer_ours import prepare

        stated = {} if precision == "default" else {"precision": precision}
        return prepare(spec.model_copy(update=stated), seeds)
    from peer_cases import initial, stock

    if who.startswith("jax"):
        from peer_jax import prepare

        return prepare(spec, stock(spec), initial(spec, seeds), order["form"])
    import jax

    with jax.default_device(jax.devices("cpu")[0]):
        made = stock(spec), initial(spec, seeds)
    import torch

    torch.set_num_threads(order["cores"] or torch.get_num_threads())
    from peer_torch import prepare

    return prepare(spec, *made, precision, compiled=order["form"] == "compiled")


def steps_of(advance, seconds: float) -> int:
    """How many steps take about so long; a power of two, since JAX compiles for each number."""
    steps = 1
    while True:
        advance(steps)
        began = time.perf_counter()
        advance(steps)
        took = time.perf_counter() - began
        if took > seconds / 3:
            return steps
        steps *= 2


def say(found: dict) -> None:
    """To the process that asked."""
    print("SAYS " + json.dumps(found), flush=True)


class Trainer:
    """A trainer's process, as its boss sees it."""

    def __init__(self, name: str, order: dict, log: Path):
        self.name = name
        self.rates: list[float] = []
        self.loss: float | None = None
        self.log = log
        command = [sys.executable, str(HERE / "peers.py"), "--serve", json.dumps(order)]
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ | SHARED,
            )

    def hear(self) -> dict | None:
        """What it says next; None if it ended."""
        assert self.process.stdout
        for line in self.process.stdout:
            if line.startswith("SAYS "):
                return json.loads(line[5:])
        return None

    def ready(self) -> bool:
        """Whether it is warm; waits for that."""
        found = self.hear()
        self.loss = found["loss"] if found else None
        if found is None:
            lines = self.log.read_text().strip().splitlines()
            tell(f"  {self.name} failed: {lines[-1] if lines else '?'}")
        return found is not None

    def turn(self) -> bool:
        """One window; whether it worked."""
        assert self.process.stdin
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return False
        found = self.hear()
        if found:
            self.rates.append(found["rate"])
        return found is not None

    def end(self) -> None:
        """Let it go."""
        self.process.kill()
        self.process.wait()


def tell(line: str) -> None:
    """Progress, with the time."""
    print(time.strftime("%H:%M:%S"), line, flush=True)


def trainers_of(kind: str, precision: str, who: list[str]) -> dict[str, dict]:
    """By name the part of an order that differs between trainers."""
    found = {"ours": {"who": "ours", "form": ""}, "jax": {"who": "jax", "form": "default"}}
    if precision == "bfloat16":
        found["jax bfloat16"] = {"who": "jax", "form": "bfloat16"}
    if find_spec("torch"):
        found["torch"] = {"who": "torch", "form": "compiled"}
        if kind == "cpu":
            found["torch eager"] = {"who": "torch", "form": "eager"}
    return {name: order for name, order in found.items() if order["who"] in who}


def measure(
    kind: str, name: str, seeds: int, precision: str, arguments: argparse.Namespace
) -> dict | None:
    """All trainers of one case, in turns."""
    rest = {
        "case": name,
        "seeds": seeds,
        "precision": precision,
        "cores": arguments.cores if kind == "cpu" else None,
        "seconds": arguments.seconds,
        "loss_steps": arguments.loss_steps,
    }
    logs = Path(arguments.logs)
    logs.mkdir(parents=True, exist_ok=True)
    tell(f"{name}, {seeds} seeds, {precision}")
    orders = trainers_of(kind, precision, arguments.who)
    made: list[Trainer] = []
    alive: list[Trainer] = []
    try:
        for each, order in orders.items():
            log = logs / f"{name}-{seeds}-{precision}-{each.replace(' ', '-')}.log"
            made.append(Trainer(each, order | rest, log))
            # a GPU's machine has cores for all to compile at once; elsewhere one after another
            if kind == "cpu" and made[-1].ready():
                alive.append(made[-1])
        if kind != "cpu":
            alive = [trainer for trainer in made if trainer.ready()]
        for _ in range(arguments.rounds):
            alive = [trainer for trainer in alive if trainer.turn()]
    finally:
        for trainer in made:
            trainer.end()
    rates = {trainer.name: trainer.rates for trainer in alive}
    losses = {trainer.name: trainer.loss for trainer in alive}
    if not rates:
        return None
    found = summary(name, seeds, precision, rates, losses)
    if kind == "cpu":
        found["cores"] = arguments.cores
    tell(f"  {found}")
    return found


def summary(name: str, seeds: int, precision: str, rates: dict, losses: dict) -> dict:
    """A row: of each peer its fastest form, and the spread of ratios of neighboring windows."""
    row: dict = {"model": name, "seeds": seeds, "precision": precision}
    spread: dict[str, list[float]] = {}
    for who in ("ours", "jax", "torch"):
        forms = [form for form in rates if form.split()[0] == who]
        row[who] = None
        if not forms:
            continue
        best = max(forms, key=lambda form: statistics.median(rates[form]))
        row[who] = round(statistics.median(rates[best]), 1)
        row.setdefault("forms", {})[who] = best
        row.setdefault("losses", {})[who] = round(losses[best], 4)
        if who != "ours" and "ours" in rates:
            ratios = [a / b for a, b in zip(rates["ours"], rates[best], strict=True)]
            spread[who] = [round(f(ratios), 3) for f in (min, statistics.median, max)]
    return row | {"ratio": spread}


def keep(path: Path, rows: list[dict], where: dict | None = None) -> None:
    """Put rows into a file, each in the place of an older one of the same case.

    Args:
        path: the file.
        rows: what was measured.
        where: on which machine, with which versions, and when.
    """
    held = json.loads(path.read_text()) if path.is_file() else {}
    names = ("model", "seeds", "precision", "cores")

    def case(row: dict) -> tuple:
        return tuple(row.get(name) for name in names)

    new = {case(row): row for row in rows}
    old = {case(row): row for row in held.get("peers", [])}
    held["peers"] = list((old | new).values())
    if where:
        held["peers on"] = where
    path.write_text(json.dumps(held, indent=1) + "\n")


def machine() -> dict:
    """This machine, its versions, and the day."""
    from importlib.metadata import version

    import jax

    from mnemoscope.execution.machine import hardware, versions

    torch = {"torch": version("torch")} if find_spec("torch") else {}
    return {
        "kind": "cpu" if jax.default_backend() == "cpu" else "gpu",
        "hardware": hardware(),
        "versions": versions() | torch,
        "date": time.strftime("%Y-%m-%d"),
    }


def main() -> None:
    """Measure what is asked for, row by row; each row is kept as soon as it is there."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--only", nargs="*", default=[], metavar="MODEL", help="these models")
    parser.add_argument("--who", nargs="*", default=["ours", "jax", "torch"])
    parser.add_argument("--seeds", nargs="*", type=int, help="default: 1 and the model's many")
    parser.add_argument("--precision", nargs="*", default=["default"])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of a window")
    parser.add_argument("--loss-steps", type=int, default=0, help="default: the model's own")
    parser.add_argument("--cores", type=int, default=1, help="of a CPU")
    parser.add_argument("--logs", default="/tmp/mnemoscope-peers", help="what trainers complain of")
    parser.add_argument("--out", type=Path, help="a JSON file (default: benchmarks/KIND.json)")
    parser.add_argument("--where", action="store_true", help="say only on which machine this is")
    arguments = parser.parse_args()
    if arguments.where:
        print(json.dumps(machine()))
        return
    if arguments.serve:
        try:
            serve(json.loads(arguments.serve))
        except Exception:
            traceback.print_exc()
            sys.exit(1)
        return
    # asked of another process, so that this one holds no part of a GPU
    asked = [sys.executable, __file__, "--where"]
    answer = subprocess.check_output(asked, text=True, env=os.environ | SHARED)
    where = json.loads(answer.splitlines()[-1])
    kind = where.pop("kind")
    from peer_cases import CASES

    names = arguments.only or list(CASES)
    if unknown := set(names) - set(CASES):
        parser.error(f"unknown model {', '.join(unknown)}; allowed: {', '.join(CASES)}")
    path = arguments.out or HERE / f"{kind}.json"
    for name in names:
        many = CASES[name].many_on_cpu if kind == "cpu" else CASES[name].many_on_gpu
        for seeds in arguments.seeds or dict.fromkeys((1, many)):
            for precision in arguments.precision:
                row = measure(kind, name, seeds, precision, arguments)
                if row:
                    keep(path, [row], where)


if __name__ == "__main__":
    main()
