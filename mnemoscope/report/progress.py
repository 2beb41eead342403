"""What a person sees while a study runs: what is being trained, how many seeds, how fast, how long still."""

import time
from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeRemainingColumn

from mnemoscope.execution.cluster import Tally
from mnemoscope.report.tables import VERDICT_STYLE
from mnemoscope.studies.claims import Finding, Setting


class Live:
    """A watcher of `run_study` that draws two bars, and leaves a line behind for everything finished."""

    def __init__(self, console: Console, title: str):
        self.console, self.title = console, title
        self.progress = Progress(
            SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"),
            TimeRemainingColumn(elapsed_when_finished=True), TextColumn("{task.fields[note]}"), console=console,
        )  # fmt: skip
        self.settings: Mapping[str, Setting] = {}
        self.began: dict[str, float] = {}
        self.share: dict[str, float] = {}
        self.bars: dict[str, TaskID] = {}
        self.cluster: TaskID | None = None

    def __enter__(self) -> "Live":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def _cost(self, name: str) -> float:
        spec, seeds = self.settings[name].spec, self.settings[name].seeds
        return float(seeds * spec.steps * spec.batch * (spec.model.d_model + 16))

    def plan(self, settings: Mapping[str, Setting], claims: int) -> None:
        self.settings = settings
        if not claims:
            self.console.print(f"{self.title}: everything is finished.")
            return
        self.console.print(f"{self.title}: {len(settings)} settings to train or find, {claims} claims to judge.")
        total = sum(map(self._cost, settings))
        self.overall = self.progress.add_task(f"[bold]{self.title}", total=total + 0.25 * total + 1, note="")
        self.judge_cost = (0.25 * total + 1) / claims
        self._next(0)

    def _next(self, index: int) -> None:
        """Show the setting that is about to be trained, before its first steps come back."""
        names = list(self.settings)
        if index < len(names):
            name = names[index]
            self.began[name] = time.monotonic()
            text = f"{name} · {self.settings[name].seeds} seeds"
            self.bars[name] = self.progress.add_task(text, total=None, note="compiling")

    def trained(self, name: str, done: int, total: int) -> None:
        bar, setting = self.bars[name], self.settings[name]
        seconds = time.monotonic() - self.began[name]
        rate = f"{done * setting.spec.batch / seconds:,.0f} samples/s"
        self.progress.update(bar, completed=done, total=total, note=rate)
        self.progress.advance(self.overall, (done / total - self.share.get(name, 0.0)) * self._cost(name))
        self.share[name] = done / total
        if done == total:
            self.progress.remove_task(bar)
            self.progress.print(f"  {name:<22} {setting.seeds:>4} seeds  {seconds:6.1f} s")
            self._next(list(self.settings).index(name) + 1)

    def spread(self, tally: Tally) -> None:
        """How far a cluster is: one bar for all its workers, instead of one for each setting."""
        if self.cluster is None:
            for bar in self.bars.values():
                self.progress.update(bar, visible=False)
            self.cluster = self.progress.add_task("cluster", total=tally.of_samples, note="")
        who = f"{tally.workers} workers" if tally.workers else "waiting for workers"
        text = f"cluster · {who} · {tally.landed}/{tally.blocks or '?'} blocks"
        self.progress.update(self.cluster, description=text, completed=tally.samples, total=tally.of_samples,
                             note=f"{tally.per_second:,.0f} samples/s")  # fmt: skip
        if tally.blocks and tally.landed == tally.blocks:
            self.progress.remove_task(self.cluster)
            self.progress.print(f"  {tally.blocks} blocks from the cluster, {tally.per_second:,.0f} samples/s")
            self.cluster = None

    def say(self, line: str) -> None:
        """Leave a line behind."""
        self.progress.print(line, highlight=False, markup=False)

    def judging(self, claim_id: str) -> None:
        self.progress.update(self.overall, note=f"judging {claim_id}")

    def judged(self, claim_id: str, finding: Finding) -> None:
        self.progress.advance(self.overall, self.judge_cost)
        style = VERDICT_STYLE[finding.verdict]
        self.progress.print(f"  {claim_id:<5} [{style}]{finding.verdict:<10}[/] {finding.sentence}", highlight=False)
