"""Where it runs, if one machine is not enough: blocks of (Spec, seeds) on a Dask cluster's workers.

The client hands every worker one block at a time and keeps the books itself: a worker that dies,
hangs or raises costs the block one of three tries, and the block goes to another worker; a worker
that joins late is given what is left. Whatever comes back is checked, and stored here, in one
store, for the seeds that it does not hold yet: so a block is stored once, however often it returns.

What a worker does is `mnemoscope.execution.cluster_worker`. It is given no work unless it runs
the same Mnemoscope on the same JAX, and knows every kind from outside by the same code: a seed
trains to the same bits in any block on machines of one type, but not under another release.
"""

import asyncio
import hashlib
import itertools
import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load

from mnemoscope.core.errors import UserError
from mnemoscope.core.fingerprint import TrainedBy, trained_by
from mnemoscope.core.kinds import codes_in
from mnemoscope.core.seeds import OUT_OF_MEMORY
from mnemoscope.execution.blocks import TRIES, Attempt, Block, ClusterProgress, Lacking, block_size
from mnemoscope.execution.cluster_worker import (
    describe_worker,
    in_a_line,
    must_agree,
    train_block,
)
from mnemoscope.execution.local import contiguous_blocks, select
from mnemoscope.execution.sent_plugins import SentPlugin
from mnemoscope.store import Store, check_arrays, run_of
from mnemoscope.training.run import Run
from mnemoscope.training.spec import Spec

CONNECT_SECONDS = 10
BLOCK_TIMEOUT = 3600.0  # seconds without a step before a block is tried elsewhere as well
# how often the client looks for workers that came or went
POLL_SECONDS = 1.0


def check_answer(spec: Spec, seeds: list[int], answer: Mapping[str, Any]) -> Run:
    """The run that a worker sent, if it is the one that was asked for and arrived whole.

    A ValueError says what is wrong.

    Args:
        spec: what was asked for.
        seeds: and of which seeds.
        answer: what `train_block` returned.
    """
    if "error" in answer:
        raise ValueError(answer["error"])
    if hashlib.sha256(answer["data"]).hexdigest() != answer["sha256"]:
        raise ValueError("the bytes that came are not those that were sent")
    if (answer["spec"], answer["seeds"]) != (spec.digest(), seeds):
        raise ValueError(f"an answer for Spec {answer['spec']}, seeds {answer['seeds']}")
    try:
        arrays = load(answer["data"])
    except SafetensorError as error:
        raise ValueError(f"an answer that is no run ({error})") from error
    check_arrays(spec, len(seeds), arrays)
    origin = TrainedBy.model_validate_json(answer["trained_by"])
    ours = trained_by()
    if origin.program() != ours.program():
        raise ValueError(f"an answer by another program ({origin}; ours is {ours})")
    return run_of(spec, seeds, arrays, (origin,))


class Cluster:
    """A Dask cluster that trains what a store lacks.

    Args:
        address: of the scheduler.
        block_timeout: seconds without a step before a block is tried elsewhere as well.
        on_progress: is called with how far it is.
        say: is called with what a person should know.
        sent: plugins that workers load first.
    """

    def __init__(
        self,
        address: str,
        block_timeout: float = BLOCK_TIMEOUT,
        on_progress: Callable[[ClusterProgress], None] | None = None,
        say: Callable[[str], None] = print,
        sent: Sequence[SentPlugin] = (),
    ):
        if block_timeout <= 0:
            raise UserError(f"--block-timeout must be more than 0 seconds, got {block_timeout:g}")
        try:
            import distributed
        except ModuleNotFoundError as error:
            raise UserError(
                "--cluster needs Dask; install it with: pip install 'mnemoscope[cluster]'"
            ) from error
        self.dask = distributed
        self.address = address
        self.block_timeout = block_timeout
        self.on_progress = on_progress
        self.say = say
        self.sent = tuple(sent)

    def train(self, store: Store, wanted: Mapping[str, tuple[Spec, int | Sequence[int]]]) -> None:
        """Train every seed that the store lacks, all conditions at once.

        Raises for blocks that failed three times, at the end.

        Args:
            store: where everything is kept.
            wanted: Spec and seeds of each condition, by its name; 16 seeds are 0 to 15.
        """
        program = trained_by().program()
        lacking: dict[str, Lacking] = {}  # by digest: two conditions may share a Spec
        for name, (spec, seeds) in wanted.items():
            _, missing = store.blocks(spec, seeds, program)
            if missing:
                spec.task.files()  # raises where there are none that a worker could read
                same_spec = lacking.setdefault(spec.digest(), Lacking(name, spec, set()))
                same_spec.seeds.update(missing)
        if lacking:
            with _quiet():
                asyncio.run(_Session(self, store, list(lacking.values())).run())


@contextmanager
def _quiet() -> Iterator[None]:
    """Dask's own log would say the same again, in many lines."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


class _Session:
    """One call of `Cluster.train`: a queue of blocks, and a coroutine for each worker."""

    def __init__(self, cluster: Cluster, store: Store, lacking: list[Lacking]):
        self.cluster = cluster
        self.store = store
        self.lacking = lacking
        self.topic = f"mnemoscope-{uuid.uuid4().hex}"  # where workers give signs of life
        self.numbers = itertools.count()  # for blocks
        self.blocks: list[Block] = []  # empty until the first worker has said what it is
        self.queue: list[Block] = []  # blocks that wait for a worker
        self.attempts: dict[str, Attempt] = {}  # by worker
        self.workers: dict[str, asyncio.Task[None]] = {}  # by worker
        self.fit_workers: set[str] = set()  # workers that are fit to train
        self.refused: dict[str, str] = {}  # workers that are not, and why
        self.began = time.monotonic()
        self.over = False  # from then on nothing counts as a failure

    async def run(self) -> None:
        """Train what is lacking; a UserError at the end names the blocks that failed."""
        self.client = await self._connect()
        try:
            self.client.subscribe_topic(self.topic, self._on_sign_of_life)
            while not self._settled():
                await self._poll_workers()
                # a coroutine ends when everything is settled; until then this is how often deaths
                # and new workers are noticed
                pause = asyncio.ensure_future(asyncio.sleep(POLL_SECONDS))
                await asyncio.wait(
                    [pause, *self.workers.values()], return_when=asyncio.FIRST_COMPLETED
                )
        finally:
            self.over = True
            for task in self.workers.values():
                task.cancel()
            await asyncio.gather(*self.workers.values(), return_exceptions=True)
            await self.client.close()
        self._report()
        self._raise_if_lost()

    async def _connect(self) -> Any:
        """A Dask client."""
        address = self.cluster.address
        try:
            return await self.cluster.dask.Client(
                address, asynchronous=True, timeout=CONNECT_SECONDS, set_as_default=False
            )
        except (OSError, ValueError, TypeError) as error:
            raise UserError(
                f"no Dask scheduler answers at {address!r} ({in_a_line(error)}); "
                "start one with 'dask scheduler'"
            ) from error

    def _raise_if_lost(self) -> None:
        """A UserError that names the blocks that failed, if there are any."""
        lost = [block for block in self.blocks if not block.stored]
        if not lost:
            return
        named = "; ".join(f"{block}: {block.failures[-1]}" for block in lost[:4])
        more = f"; and {len(lost) - 4} more" if len(lost) > 4 else ""
        raise UserError(
            f"{len(lost)} of {len(self.blocks)} blocks failed {TRIES} times: {named}{more}; "
            "the others are stored, and the same command tries only these again"
        )

    def _settled(self) -> bool:
        return bool(self.blocks) and all(block.settled for block in self.blocks)

    async def _poll_workers(self) -> None:
        """Notice workers that came, went, or have been silent for too long."""
        present = await self._present_workers()
        self._forget_gone(present)
        for worker in present - self.workers.keys():
            self.workers[worker] = asyncio.create_task(self._serve(worker))
        timeout = self.cluster.block_timeout
        for worker, attempt in self.attempts.items():
            if time.monotonic() - attempt.seen > timeout:
                self._fail(worker, attempt, f"no step in {timeout:g} s on {worker}")
        if present and self.refused.keys() >= present:
            why = next(iter(self.refused.values()))
            raise UserError(f"no worker of {self.cluster.address!r} can be used: {why}")
        self._report()

    async def _present_workers(self) -> set[str]:
        """The workers that the scheduler knows now."""
        try:
            return set(await asyncio.wait_for(self.client.nthreads(), 60))
        except (OSError, TimeoutError, asyncio.CancelledError, RuntimeError) as error:
            if isinstance(error, asyncio.CancelledError) and self.client.status == "running":
                raise  # Ctrl-C
            raise UserError(
                f"the Dask scheduler at {self.cluster.address!r} is gone; what came back is "
                "stored, and the same command goes on from there"
            ) from error

    def _forget_gone(self, present: set[str]) -> None:
        """Forget workers that are gone or whose coroutine has ended."""
        for worker, task in list(self.workers.items()):
            if task.done() and not task.cancelled():
                task.result()  # a store that cannot be written ends everything
            if worker not in present or task.done():
                task.cancel()
                del self.workers[worker]
                self.fit_workers.discard(worker)
                self.refused.pop(worker, None)

    async def _serve(self, worker: str) -> None:
        """Give one worker block after block, until everything is settled or the worker is gone."""
        worker_info = await self._check_worker(worker)
        if not self.blocks:
            self._make_blocks(worker_info["devices"], worker_info["accelerator"])
        while not self._settled():
            block = self._next(worker)
            if block is None:
                await asyncio.sleep(0.2)
                continue
            attempt = self.attempts[worker] = Attempt(block, time.monotonic())
            try:
                spec_json = block.spec.canonical_json()
                answer = await self._ask(
                    worker,
                    train_block,
                    spec_json,
                    block.seeds,
                    self.topic,
                    block.number,
                    dict(block.spec.task.files()),
                )
                run = check_answer(block.spec, block.seeds, answer)
            except asyncio.CancelledError:
                self._fail(worker, attempt, f"its worker {worker} died")
                raise
            except Exception as error:
                if self.client.status != "running":
                    return  # the scheduler is gone, and nobody's block is to blame
                self._fail(worker, attempt, in_a_line(error).removeprefix("ValueError: "))
            else:
                self._store_block(block, run, answer)
            finally:
                del self.attempts[worker]

    async def _check_worker(self, worker: str) -> dict[str, Any]:
        """Ask a worker what it is.

        One that does not run what we run is never given a block, and the user is told.
        """
        worker_info: dict[str, Any] = {}
        differs = []
        try:
            from_outside = [each.spec for each in self.lacking if codes_in(each.spec)]
            specs = [spec.canonical_json() for spec in from_outside]
            worker_info = await self._ask(worker, describe_worker, self.cluster.sent, specs)
            if "error" in worker_info:
                raise ValueError(worker_info["error"])
            theirs = worker_info["agree"]
            for name, ours in must_agree().items():
                if theirs.get(name) != ours:
                    differs.append(f"it has {name} {theirs.get(name)}, we have {ours}")
        except Exception as error:
            differs = [in_a_line(error).removeprefix("ValueError: ").removeprefix("UserError: ")]
        if differs:
            self.refused[worker] = "; ".join(differs)
            self.cluster.say(f"  worker {worker} is given no work: {self.refused[worker]}")
            await asyncio.Event().wait()  # until the worker is gone or everything is over
        self.fit_workers.add(worker)
        return worker_info

    async def _ask(self, worker: str, task: Callable[..., Any], *args: Any) -> Any:
        """Have one worker do something.

        Bound to it: Dask moves nothing by itself, so that every failure is counted here.
        """
        return await self.client.submit(
            task, *args, workers=[worker], allow_other_workers=False, pure=False
        )

    def _make_blocks(self, devices: int, accelerator: bool) -> None:
        """Cut what is lacking into blocks, for workers like the first one that said what it is."""
        seeds = sum(len(lacking.seeds) for lacking in self.lacking)
        workers = len(self.workers.keys() - self.refused.keys())
        size = block_size(seeds, workers, devices, accelerator)
        self.blocks = []
        for name, spec, missing in self.lacking:
            for part in contiguous_blocks(sorted(missing), size):
                self.blocks.append(Block(next(self.numbers), name, spec, part))
        # the longest first: what is begun last should not be what everybody waits for
        self.queue = sorted(
            self.blocks, key=lambda block: -block.samples * block.spec.model.relative_cost
        )

    def _next(self, worker: str) -> Block | None:
        """The next block for a worker.

        One that it has failed goes to others first: one broken machine must not fail them all.
        """
        self.queue = [block for block in self.queue if not block.settled]
        # a worker that hangs will not ask again
        hanging = {name for name, attempt in self.attempts.items() if attempt.failed}
        asking = self.fit_workers - hanging
        for block in self.queue:
            if worker not in block.tried or block.tried >= asking:
                self.queue.remove(block)
                return block
        return None

    def _on_sign_of_life(self, event: tuple[float, Any]) -> None:
        """A worker's sign of life: it was at this step of this block just now."""
        worker, number, steps = event[1]
        attempt = self.attempts.get(worker)
        if attempt and attempt.block.number == number and steps >= attempt.steps:
            attempt.seen = time.monotonic()
            attempt.steps = steps

    def _store_block(self, block: Block, run: Run, answer: Mapping[str, Any]) -> None:
        """Store what the store does not hold yet: another process or try may have been faster."""
        program = trained_by().program()
        # two clients that look at once would both store it
        with self.store.lock(f"store {block.spec.digest()}"):
            _, missing = self.store.blocks(block.spec, block.seeds, program)
            for part in contiguous_blocks(missing, len(block.seeds)) if missing else []:
                seconds = answer["seconds"] * len(part) / len(block.seeds)
                self.store.save(select([run], tuple(part)), seconds, answer["machine"])
        block.stored = True
        if lost := run.diverged():
            self.cluster.say(f"  {block.name}: diverged and left out of what is judged: {lost}")
        self._report()

    def _fail(self, worker: str, attempt: Attempt, why: str) -> None:
        """Count a failure once, and let the block be tried again, by halves if memory was short."""
        block = attempt.block
        if attempt.failed or block.settled or self.over:
            return
        attempt.failed = True
        if OUT_OF_MEMORY in why and len(block.seeds) > 1:
            self._halve(block, worker)
            return
        block.failures.append(why)
        block.tried.add(worker)
        if len(block.failures) < TRIES:
            self.queue.append(block)
            self.cluster.say(f"  {block} will be tried again: {why}")
        else:
            self.cluster.say(f"  {block} failed {TRIES} times and is left out: {why}")

    def _halve(self, block: Block, worker: str) -> None:
        """Two blocks in place of one that did not fit a worker's memory."""
        half = len(block.seeds) // 2
        halves = [block.seeds[:half], block.seeds[half:]]
        parts = [Block(next(self.numbers), block.name, block.spec, seeds) for seeds in halves]
        self.blocks.remove(block)
        self.blocks += parts
        self.queue += parts
        self.cluster.say(
            f"  {block} does not fit the memory of {worker}; going on with {half} seeds at once"
        )

    def _report(self) -> None:
        """Say how far it is, to whoever asked to hear it."""
        if not self.cluster.on_progress:
            return
        stored = [block for block in self.blocks if block.stored]
        # a block that is tried on two workers counts once, where it is further
        furthest: dict[int, Attempt] = {}
        for attempt in sorted(self.attempts.values(), key=lambda attempt: attempt.steps):
            if not attempt.block.stored:
                furthest[attempt.block.number] = attempt
        done = sum(block.samples for block in stored)
        done += sum(attempt.samples for attempt in furthest.values())
        progress = ClusterProgress(
            stored=len(stored),
            blocks=len(self.blocks),
            workers=len(self.fit_workers),
            busy=len(self.attempts),
            samples=done,
            of_samples=sum(lacking.samples for lacking in self.lacking),
            per_second=done / max(time.monotonic() - self.began, 1e-9),
        )
        self.cluster.on_progress(progress)
