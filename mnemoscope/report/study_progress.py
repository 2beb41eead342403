"""What a person sees while a study runs.

What is being trained, how many seeds, how fast, how long still.
"""

import time
from collections.abc import Mapping

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from mnemoscope.core.errors import counted
from mnemoscope.execution.blocks import ClusterProgress
from mnemoscope.report.ledger_tables import styled
from mnemoscope.studies.study import Condition
from mnemoscope.verdicts.ledger import Entry


class Live:
    """A watcher of `run_study` that draws two bars.

    It leaves a line behind for everything finished.
    """

    def __init__(self, console: Console, title: str):
        self.console = console
        self.title = title
        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeRemainingColumn(elapsed_when_finished=True),
            TextColumn("{task.fields[note]}"),
            console=console,
        )
        self.conditions: Mapping[str, Condition] = {}
        # by condition: when its training began, how much of it is done, and its bar
        self.began: dict[str, float] = {}
        self.share: dict[str, float] = {}
        self.bars: dict[str, TaskID] = {}
        self.cluster: TaskID | None = None  # one bar for all workers, where there are any

    def __enter__(self) -> "Live":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def _cost(self, name: str) -> float:
        """About how long a training takes, in no unit."""
        spec = self.conditions[name].spec
        seeds = self.conditions[name].seeds
        return float(seeds * spec.steps * spec.batch * spec.model.relative_cost)

    def plan(self, conditions: Mapping[str, Condition], claims: int) -> None:
        """Say what there is to do, and begin with the first condition."""
        self.conditions = conditions
        if not claims:
            self.console.print(f"{self.title}: everything is finished.")
            return
        self.console.print(
            f"{self.title}: {counted(len(conditions), 'condition')} to train or find, "
            f"{counted(claims, 'claim')} to judge."
        )
        training = sum(map(self._cost, conditions))
        judging = 0.25 * training + 1
        text = f"[bold]{self.title}"
        self.overall = self.progress.add_task(text, total=training + judging, note="")
        self.judge_cost = judging / claims
        self._next(0)

    def _next(self, index: int) -> None:
        """Show the condition that is about to be trained, before its first steps come back."""
        names = list(self.conditions)
        if index < len(names):
            name = names[index]
            self.began[name] = time.monotonic()
            text = f"{name} · {counted(self.conditions[name].seeds, 'seed')}"
            self.bars[name] = self.progress.add_task(text, total=None, note="compiling")

    def trained(self, name: str, done: int, total: int) -> None:
        """So many steps of a condition are done."""
        bar = self.bars[name]
        condition = self.conditions[name]
        seconds = time.monotonic() - self.began[name]
        rate = f"{done * condition.spec.batch / seconds:,.0f} samples/s"
        self.progress.update(bar, completed=done, total=total, note=rate)
        more = done / total - self.share.get(name, 0.0)
        self.progress.advance(self.overall, more * self._cost(name))
        self.share[name] = done / total
        if done == total:
            self.progress.remove_task(bar)
            self.progress.print(f"  {name:<22} {condition.seeds:>4} seeds  {seconds:6.1f} s")
            self._next(list(self.conditions).index(name) + 1)

    def spread(self, progress: ClusterProgress) -> None:
        """How far a cluster is: one bar for all its workers, instead of one for each condition."""
        if self.cluster is None:
            for bar in self.bars.values():
                self.progress.update(bar, visible=False)
            self.cluster = self.progress.add_task("cluster", total=progress.of_samples, note="")
        who = counted(progress.workers, "worker") if progress.workers else "waiting for workers"
        rate = f"{progress.per_second:,.0f} samples/s"
        self.progress.update(
            self.cluster,
            description=f"cluster · {who} · {progress.stored}/{progress.blocks or '?'} blocks",
            completed=progress.samples,
            total=progress.of_samples,
            note=rate,
        )
        if progress.blocks and progress.stored == progress.blocks:
            self.progress.remove_task(self.cluster)
            self.progress.print(f"  {counted(progress.blocks, 'block')} from the cluster, {rate}")
            self.cluster = None

    def say(self, line: str) -> None:
        """Leave a line behind."""
        self.progress.print(line, highlight=False, markup=False)

    def judging(self, claim_id: str) -> None:
        """A claim is about to be judged."""
        self.progress.update(self.overall, note=f"judging {claim_id}")

    def judged(self, entry: Entry) -> None:
        """Leave a claim's verdict behind."""
        self.progress.advance(self.overall, self.judge_cost)
        verdict = styled(entry.verdict, f"{entry.verdict_in_words():<16}")
        self.progress.print(f"  {entry.id:<5} {verdict} {escape(entry.sentence)}", highlight=False)
