"""A Dask scheduler and workers on loopback, as processes of their own."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import mnemoscope

REPOSITORY = str(Path(mnemoscope.__file__).parent.parent)


class Dask:
    """A scheduler, and workers that can be started, killed and stopped."""

    def __init__(self, folder):
        """Start the scheduler.

        Args:
            folder: where the processes run, and their log is.
        """
        self.folder = folder
        self.processes = []
        self.env = dict(os.environ)
        known = folder / "scheduler.json"
        self.start(
            "scheduler",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--scheduler-file",
            known,
            "--idle-timeout",
            "1800",
        )
        while not known.exists() or not known.read_text().endswith("}"):
            assert self.processes[0].poll() is None, (folder / "log").read_text()
            time.sleep(0.05)
        self.address = json.loads(known.read_text())["address"]

    def start(self, what, *args, python=sys.executable, path=""):
        """Start a process.

        Args:
            what: `scheduler` or `worker`.
            *args: its options.
            python: of which environment.
            path: where it looks for modules first.
        """
        line = [
            python,
            "-m",
            f"distributed.cli.dask_{what}",
            "--no-dashboard",
            *map(str, args),
        ]
        with open(self.folder / "log", "a") as log:
            self.processes.append(
                subprocess.Popen(
                    line,
                    env=self.env
                    | {"PYTHONPATH": os.pathsep.join(filter(None, (path, REPOSITORY)))},
                    cwd=self.folder,
                    stdout=log,
                    stderr=log,
                )
            )
        return self.processes[-1]

    def worker(self, preload="", nanny=False, **more_options):
        """Start a worker of one thread.

        Args:
            preload: Python that it runs first.
            nanny: whether another process watches over it.
            **more_options: those of `start`.
        """
        # if the tests are killed, the worker goes too
        more = ["--nanny" if nanny else "--no-nanny", "--death-timeout", "30"]
        if preload:
            path = self.folder / f"preload{len(self.processes)}.py"
            path.write_text(preload)
            more += ["--preload", path]
        return self.start(
            "worker",
            self.address,
            "--nthreads",
            "1",
            "--local-directory",
            self.folder / "scratch",
            *more,
            **more_options,
        )

    def end(self, processes):
        """End processes, stopped ones too."""
        for process in processes:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
