"""Kill a study again and again, at random moments, and see that nothing finished is lost,
repeated or read half-written.

    python tests/crash.py --kills 300        all studies in turn

`make test` has a short version, `make test-long` a long one.

A run is killed (SIGKILL) after a random time and started again with the same command. After each
kill the store must pass its own check, and every block that was in the index before must be there
as it was. When it is let to its end, its ledger equals the one of a run that nobody disturbed, but
for the time at which it was finished.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mnemoscope.store import RunRow, Store

# several studies, each short enough to be killed hundreds of times:
# trained on few and many stops, watched, and not trained at all
LONG = tuple(
    ("run", study, "--claims", claims, *seeds)
    for study, claims, *seeds in (
        ("walk", "W2,W3", "--seeds", "8"),
        ("remember", "R1,R3", "--seeds", "8"),
        ("facts", "F4", "--seeds", "2"),
        ("hops", "H5", "--seeds", "2"),
        ("memories", "M1,M3"),
    )
)
COMMANDS = LONG[:1]

# blocks under way are kept as often as can be, so that restarts go on in the middle of them
LINE = (
    "from mnemoscope.cli.main import main; "
    "from mnemoscope.store import checkpoints; "
    "checkpoints.SECONDS_BETWEEN = 0; "
    "main()"
)


def start(command: tuple[str, ...], store: Path) -> subprocess.Popen[bytes]:
    """The command line as a user starts it, quietly,
    but for how often it keeps blocks under way.
    """
    line = [sys.executable, "-c", LINE, *command, "--store", str(store)]
    return subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(command: tuple[str, ...], store: Path) -> float:
    """Let it run to its end, and say how long it took."""
    began = time.monotonic()
    process = start(command, store)
    error = process.communicate()[1].decode()
    if process.returncode:
        raise AssertionError(f"{' '.join(command)} ended with {process.returncode}: {error[-500:]}")
    return time.monotonic() - began


def ledgers(store: Path) -> dict[str, object]:
    """What the store's ledgers and evidence say, without the times at which it was measured
    and the folder in their commands.
    """
    found = {}
    for path in sorted((store / "ledger").rglob("*.json")):
        body = json.loads(path.read_text())
        found[path.relative_to(store).as_posix()] = _without(body, {"finished", "command", "date"})
    return found


def _without(body: Any, keys: set[str]) -> Any:
    """What was read from JSON without these keys, wherever they stand."""
    if isinstance(body, dict):
        return {key: _without(each, keys) for key, each in body.items() if key not in keys}
    return [_without(each, keys) for each in body] if isinstance(body, list) else body


def rows(store: Path) -> dict[str, RunRow]:
    """Every block of the index, after a check of the whole store."""
    kept = Store(store)
    assert kept.check() == []
    found = {row.id: row for row in kept.rows()}
    kept.db.close()
    return found


def torment(kills: int, commands: tuple[tuple[str, ...], ...], seed: int = 0) -> dict[str, int]:
    """Kill so many times, let it end, compare;
    start over with an empty store until the kills are used up.
    """
    rng, done, rounds = random.Random(seed), 0, 0
    with TemporaryDirectory() as folder:
        calm = Path(folder) / "calm"
        takes = {command: finish(command, calm) for command in commands}
        expected = ledgers(calm)
        while done < kills:
            store = Path(folder) / f"store{rounds}"
            rounds += 1
            for command in commands:
                for _ in range(rng.randint(1, 8)):
                    before = rows(store) if store.exists() else {}
                    process = start(command, store)
                    try:
                        process.communicate(timeout=rng.uniform(0.05, 0.95) * takes[command])
                        break  # it was faster: there is nothing left to kill
                    except subprocess.TimeoutExpired:
                        process.send_signal(signal.SIGKILL)
                        process.communicate()
                        done += 1
                    after = rows(store) if store.exists() else {}
                    repeated = [name for name, row in before.items() if after.get(name) != row]
                    assert repeated == [], f"finished blocks were lost or made again: {repeated}"
                finish(command, store)
            print(f"{done} kills, {rounds} rounds", flush=True)
            assert ledgers(store) == expected, "the ledger is not the one of an undisturbed run"
    return {"kills": done, "rounds": rounds}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0, help="of the moments at which it kills")
    arguments = parser.parse_args()
    with TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache  # compiled programs go nowhere else
        print(torment(arguments.kills, LONG, arguments.seed))
