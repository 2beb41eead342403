"""Knock on every door with mutated input: each is let in and right, or sent away in one line.

    python tests/fuzz.py --inputs 10000                the long version; `make test` has a short one
    python tests/fuzz.py --door index --input "(...)"  one input again, as an offense was printed

An offense is a traceback, a refusal of more than one line, a wrong value let in, an input that
takes half a minute, markup from a file in a page, pickle or another program at work, and any file
read or written outside the store and the folder of the output. Hypothesis draws the inputs; each is
a Python literal, so that what was printed can be played again.
"""

import argparse
import ast
import os
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest.mock import MagicMock, patch

import numpy as np
from fuzz_doors import small_models
from fuzz_draws import DOORS
from fuzz_good import good
from fuzz_watch import WATCH, Offense, one_line
from hypothesis import HealthCheck, Phase, given, settings

from mnemoscope.core.errors import UserError
from mnemoscope.report.claim_figures import claim_figures
from mnemoscope.studies.library.remember.drawings import DRAWINGS
from mnemoscope.studies.plot_data import Plots
from mnemoscope.studies.runner import Finding
from mnemoscope.verdicts.record import Provenance, Record

SECONDS = 30  # the longest that one input may take


@contextmanager
def calm() -> Iterator[None]:
    """Nothing trains, no browser opens, no real language model is read,
    nothing published is drawn again for each input.
    """

    def trains(*_: Any, **__: Any) -> Any:
        raise UserError("this would train")

    def judged(*_: Any) -> Finding:
        nowhere = Provenance(
            date="t", command="c", hardware="h", versions={}, code="c", criterion="c"
        )
        return Finding(record=Record(parts={}, why_not="not judged here", provenance=nowhere))

    with TemporaryDirectory() as empty, warnings.catch_warnings(), ExitStack() as stack:
        stack.enter_context(
            patch.dict(os.environ, {"MNEMOSCOPE_LANGUAGE_MODEL": f"{empty}/none", "COLUMNS": "160"})
        )
        for name, instead in {
            "execution.local.fit": trains,
            "execution.local.programs": MagicMock(),
            "training.profile.profile": trains,
            "studies.runner.measure_claim": judged,
            "studies.evidence.Evidence.run": MagicMock(),
            "studies.library.memories.optimized.errors": lambda cell, seeds: np.zeros(len(seeds)),
            "execution.machine.use_all_devices": MagicMock(),
            "studies.ledger_files.published_folder": lambda: Path(empty),
            "cli.visualize.open_in_browser": MagicMock(),
        }.items():
            stack.enter_context(patch(f"mnemoscope.{name}", instead))
        warnings.simplefilter("ignore")
        yield


def _late(*_: Any) -> None:
    raise TimeoutError(f"more than {SECONDS} seconds")


def knock(name: str, given: Any) -> tuple[str, str]:
    """One input at one door: accepted, refused or offense, and what was wrong."""
    with TemporaryDirectory() as folder:
        room, outside = Path(folder).resolve() / "room", Path(folder).resolve() / "outside"
        room.mkdir()
        outside.mkdir()
        (outside / "canary").write_text("sings")
        here, before = os.getcwd(), signal.signal(signal.SIGALRM, _late)
        os.chdir(room)
        WATCH.room, WATCH.seen = room, []
        signal.alarm(SECONDS)
        try:
            verdict, why = ("accepted" if DOORS[name].ask(given, room) else "refused"), ""
        except UserError as error:
            verdict, why = "refused", str(error)
            try:
                one_line(error)
            except Offense as offense:
                verdict, why = "offense", str(offense)
        except Exception as error:
            # the tests check every type that is written down, and refuse first
            if type(error).__name__ == "TypeCheckError":
                return "refused", "of another type"
            frames = [
                f"{Path(f.filename).name}:{f.lineno}"
                for f in traceback.extract_tb(error.__traceback__)
            ]
            verdict, why = (
                "offense",
                f"{type(error).__name__}: {str(error)[:200]} at {' '.join(frames[-6:])}",
            )
        finally:
            signal.alarm(0)
            WATCH.room = None
            signal.signal(signal.SIGALRM, before)
            os.chdir(here)
        sings = [p.name for p in outside.iterdir()] == ["canary"] and (
            outside / "canary"
        ).read_text() == "sings"
        touched = [*WATCH.seen, *([] if sings else ["the canary is gone"])]
        return ("offense", f"outside: {touched[:3]}") if touched else (verdict, why)


class Tally(NamedTuple):
    """How a door did."""

    tried: int
    accepted: int
    refused: int
    offenses: list[tuple[str, str]]


def fuzz(name: str, inputs: int, seed: int | None = None) -> Tally:
    """So many inputs at one door; without a seed they are the same each time."""
    # what makes files of its own, once, makes them now
    good()
    small_models()
    claim_figures((), {}, Plots(), DRAWINGS["R1"])
    counts, offenses = {"accepted": 0, "refused": 0, "offense": 0}, []

    @settings(
        max_examples=inputs,
        deadline=None,
        database=None,
        derandomize=seed is None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(DOORS[name].inputs())
    def each(given: Any) -> None:
        verdict, why = knock(name, given)
        counts[verdict] += 1
        if verdict == "offense":
            offenses.append((why, repr(given)))

    if seed is not None:
        from hypothesis import seed as seeded

        each = seeded(seed)(each)
    with calm():
        each()
    return Tally(sum(counts.values()), counts["accepted"], counts["refused"], offenses)


def main() -> int:
    """The long version."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--door", choices=DOORS)
    parser.add_argument("--input", help="one input again, as it was printed")
    parser.add_argument("--seed", type=int, help="other inputs than those of every time")
    parser.add_argument("--show", type=int, default=10, help="offenses shown for each door")
    args = parser.parse_args()
    # what asks for more than that gets an error, not the machine
    resource.setrlimit(resource.RLIMIT_AS, (40 << 30, 40 << 30))
    if args.input:
        with calm():
            print(*knock(args.door, ast.literal_eval(args.input)))
        return 0
    bad, total = 0, sum(door.share for door in DOORS.values())
    for name, door in DOORS.items():
        if args.door in (None, name):
            began = time.monotonic()
            share = args.inputs if args.door else -(-args.inputs * door.share // total)
            tally = fuzz(name, share, args.seed)
            bad += len(tally.offenses)
            took = time.monotonic() - began
            print(
                f"{name:9} {tally.tried:6,} tried {tally.accepted:6,} accepted {tally.refused:6,} "
                f"refused {len(tally.offenses):4} offenses {took:6.0f} s",
                flush=True,
            )
            kinds: dict[str, tuple[str, str]] = {}
            for why, given_ in sorted(tally.offenses, key=lambda pair: len(pair[1])):
                kinds.setdefault(why[:50] + why[-40:], (why, given_))
            for why, given_ in list(kinds.values())[: args.show]:
                print(f"    {why}\n      --door {name} --input {given_[:3000]!r}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
