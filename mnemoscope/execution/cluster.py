"""Where it runs, if one machine is not enough: blocks of (Spec, seeds) on the workers of a Dask cluster, into one store.

The client hands every worker one block at a time and keeps the books itself: a worker that dies, hangs or raises costs the block
one of three tries, and the block goes to another worker; a worker that joins late is given what is left. Whatever comes back is
checked, and stored here for the seeds that the store does not hold yet: so a block lands once, however often it returns.

A worker answers with safetensors bytes. It is given no work unless it runs the same Mnemoscope on the same JAX: a seed trains to
the same bits in any block on machines of one type, but not under another release.
"""

import asyncio
import hashlib
import itertools
import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import jax
from safetensors import SafetensorError
from safetensors.numpy import load, save

from mnemoscope.core.errors import UserError
from mnemoscope.core.fingerprint import TrainedBy, trained_by
from mnemoscope.core.seeds import OUT_OF_MEMORY
from mnemoscope.execution.local import ACCELERATOR_BLOCK, BLOCK, hardware, pieces, select, use_all_devices, versions
from mnemoscope.store import Store, arrays_of, check_arrays, run_of
from mnemoscope.training.loop import fit
from mnemoscope.training.metrics import watch_of
from mnemoscope.training.run import Run
from mnemoscope.training.spec import Spec

CONNECT_SECONDS = 10
TRIES = 3
BLOCK_TIMEOUT = 3600.0  # seconds without a step before a block is tried elsewhere as well
LOOK_SECONDS = 1.0  # how often the client looks for workers that came or went, and a worker says how far it is
SHARES = 4  # blocks cut for each worker: the last ones to finish then keep the others waiting for a quarter of the time
SMALLEST_ON_ACCELERATOR = 256  # fewer seeds leave an accelerator idle (BENCHMARKS.md)


def _line(error: Exception) -> str:
    """An exception in one line."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"


# ---- on a worker


def _must_agree() -> dict[str, str]:
    """What client and workers must have in common: everything that a trained number may depend on, but the machine."""
    ours = trained_by().model_dump(mode="json", exclude={"device"})
    return {"numpy": versions()["numpy"]} | {name: str(value) for name, value in ours.items()}


@cache
def _ready(cores: int) -> None:
    with suppress(RuntimeError):  # if something on this worker has used JAX before, its devices are what they are
        use_all_devices(at_most=cores)


def greet() -> dict[str, Any]:
    """A worker says what it is. Its Dask threads are the CPU cores that it may train on."""
    from distributed import get_worker

    try:
        _ready(get_worker().state.nthreads)
        accelerator = jax.default_backend() != "cpu"
        return {"agree": _must_agree(), "accelerator": accelerator, "devices": jax.device_count()}
    except Exception as error:  # in words: an exception that cannot be serialised leaves a Dask worker mute
        return {"error": _line(error)}


def train_block(spec_json: str, seeds: list[int], topic: str, number: int) -> dict[str, Any]:
    """Train a block on this worker, with a sign of life on `topic` now and then."""
    from distributed import get_worker

    worker, began, told = get_worker(), time.monotonic(), 0.0
    spec, origin = Spec.model_validate_json(spec_json), trained_by()

    def tell(steps: int, _: int) -> None:
        nonlocal told
        if time.monotonic() - told > LOOK_SECONDS:
            told = time.monotonic()
            worker.log_event(topic, [worker.address, number, steps])

    try:
        tell(0, spec.steps)
        run = fit(spec, seeds, observe=watch_of(spec), progress=tell)
    except Exception as error:  # in words, as above
        return {"error": _line(error)}
    data = save(arrays_of(run))
    return {
        "spec": spec.digest(), "seeds": list(run.seeds), "data": data, "sha256": hashlib.sha256(data).hexdigest(),
        "seconds": time.monotonic() - began, "machine": hardware(), "trained_by": origin.canonical_json(),
    }  # fmt: skip


# ---- on the client


@dataclass(eq=False)
class Block:
    """Consecutive seeds of one Spec, and what became of them."""

    number: int
    name: str  # of the setting, for people
    spec: Spec
    seeds: list[int]
    landed: bool = False
    failures: list[str] = field(default_factory=list)
    tried: set[str] = field(default_factory=set)  # workers that failed it

    @property
    def settled(self) -> bool:
        return self.landed or len(self.failures) >= TRIES

    @property
    def samples(self) -> int:
        return len(self.seeds) * self.spec.steps * self.spec.batch

    def __str__(self) -> str:
        return f"{self.name} (Spec {self.spec.digest()}), seeds {self.seeds[0]}-{self.seeds[-1]}"


@dataclass
class Attempt:
    """A block on a worker: when it last gave a sign of life, how far it is, and whether it counts as failed already."""

    block: Block
    seen: float
    steps: int = 0
    failed: bool = False


class Tally(NamedTuple):
    """How far a cluster is, all workers together."""

    landed: int
    blocks: int
    workers: int
    busy: int
    samples: int
    of_samples: int
    per_second: float


def block_size(seeds: int, workers: int, devices: int, accelerator: bool) -> int:
    """Seeds in a block: some blocks for every worker, none that leaves devices of a worker idle, none above the usual block."""
    least, most = (SMALLEST_ON_ACCELERATOR, ACCELERATOR_BLOCK) if accelerator else (devices, BLOCK)
    return min(max(-(-seeds // (SHARES * workers)), least), max(least, most))


def checked(spec: Spec, seeds: list[int], answer: Mapping[str, Any]) -> Run:
    """The run that a worker sent, if it is the one that was asked for and arrived whole; a ValueError says what is wrong."""
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
    origin, ours = TrainedBy.model_validate_json(answer["trained_by"]), trained_by()
    if origin.program() != ours.program():
        raise ValueError(f"an answer by another program ({origin}; ours is {ours})")
    return run_of(spec, seeds, arrays, (origin,))


class Cluster:
    """A Dask cluster that trains what a store lacks. `tell` hears how far it is, `say` what a person should know."""

    def __init__(
        self, address: str, block_timeout: float = BLOCK_TIMEOUT, tell: Callable[[Tally], None] | None = None,
        say: Callable[[str], None] = print,
    ):  # fmt: skip
        if block_timeout <= 0:
            raise UserError(f"--block-timeout must be more than 0 seconds, got {block_timeout:g}")
        try:
            import distributed
        except ModuleNotFoundError as error:
            raise UserError("--cluster needs Dask; install it with: pip install 'mnemoscope[cluster]'") from error
        self.dask, self.address, self.block_timeout = distributed, address, block_timeout
        self.tell, self.say = tell, say

    def train(self, store: Store, wanted: Mapping[str, tuple[Spec, Sequence[int]]]) -> None:
        """Train every seed that the store lacks, all settings at once. Raises for blocks that failed three times, at the end."""
        lacking: dict[str, tuple[str, Spec, set[int]]] = {}  # by digest: two settings may share a Spec
        for name, (spec, seeds) in wanted.items():
            missing = store.blocks(spec, seeds, trained_by().program())[1]
            if missing:
                lacking.setdefault(spec.digest(), (name, spec, set()))[2].update(missing)
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
    """One call of `Cluster.train`: a queue of blocks, and for each worker a coroutine that serves it."""

    def __init__(self, cluster: Cluster, store: Store, lacking: list[tuple[str, Spec, set[int]]]):
        self.cluster, self.store, self.lacking = cluster, store, lacking
        self.topic = f"mnemoscope-{uuid.uuid4().hex}"
        self.numbers = itertools.count()
        self.blocks: list[Block] = []  # empty until the first worker has said what it is
        self.queue: list[Block] = []
        self.doing: dict[str, Attempt] = {}
        self.serving: dict[str, asyncio.Task[None]] = {}
        self.met: set[str] = set()  # workers that are fit to train
        self.refused: dict[str, str] = {}
        self.began, self.over = time.monotonic(), False

    async def run(self) -> None:
        address = self.cluster.address
        try:
            client = self.cluster.dask.Client(address, asynchronous=True, timeout=CONNECT_SECONDS, set_as_default=False)
            self.client = await client
        except (OSError, ValueError, TypeError) as error:
            raise UserError(
                f"no Dask scheduler answers at {address!r} ({_line(error)}); start one with 'dask scheduler'"
            ) from error
        try:
            self.client.subscribe_topic(self.topic, self._hear)
            while not self._settled():
                await self._look_around()
                # a coroutine ends when everything is settled; until then this is how often deaths and new workers are noticed
                await asyncio.wait([asyncio.ensure_future(asyncio.sleep(LOOK_SECONDS)), *self.serving.values()],
                                   return_when=asyncio.FIRST_COMPLETED)  # fmt: skip
        finally:
            self.over = True
            for task in self.serving.values():
                task.cancel()
            await asyncio.gather(*self.serving.values(), return_exceptions=True)
            await self.client.close()
        self._tell()
        if lost := [block for block in self.blocks if not block.landed]:
            named = "; ".join(f"{block}: {block.failures[-1]}" for block in lost[:4])
            more = f"; and {len(lost) - 4} more" if len(lost) > 4 else ""
            raise UserError(f"{len(lost)} of {len(self.blocks)} blocks failed {TRIES} times: {named}{more}; the others are stored, "
                            "and the same command tries only these again")  # fmt: skip

    def _settled(self) -> bool:
        return bool(self.blocks) and all(block.settled for block in self.blocks)

    async def _look_around(self) -> None:
        """Notice workers that came, went, or have been silent for too long."""
        try:
            present = set(await asyncio.wait_for(self.client.nthreads(), 60))
        except (OSError, TimeoutError, asyncio.CancelledError, RuntimeError) as error:
            if isinstance(error, asyncio.CancelledError) and self.client.status == "running":
                raise  # Ctrl-C
            raise UserError(f"the Dask scheduler at {self.cluster.address!r} is gone; what came back is stored, and the same "
                            "command goes on from there") from error  # fmt: skip
        for worker, task in list(self.serving.items()):
            if task.done() and not task.cancelled():
                task.result()  # a store that cannot be written ends everything
            if worker not in present or task.done():
                task.cancel()
                del self.serving[worker]
                self.met.discard(worker)
                self.refused.pop(worker, None)
        for worker in present - self.serving.keys():
            self.serving[worker] = asyncio.create_task(self._serve(worker))
        for worker, attempt in self.doing.items():
            if time.monotonic() - attempt.seen > self.cluster.block_timeout:
                self._fail(worker, attempt, f"no step in {self.cluster.block_timeout:g} s on {worker}")
        if present and self.refused.keys() >= present:
            why = next(iter(self.refused.values()))
            raise UserError(f"no worker of {self.cluster.address!r} can be used: {why}")
        self._tell()

    async def _serve(self, worker: str) -> None:
        """Give one worker block after block, until everything is settled or the worker is gone."""
        about = await self._meet(worker)
        if not self.blocks:
            self._cut(about["devices"], about["accelerator"])
        while not self._settled():
            block = self._next(worker)
            if block is None:
                await asyncio.sleep(0.2)
                continue
            attempt = self.doing[worker] = Attempt(block, time.monotonic())
            try:
                answer = await self._ask(
                    worker, train_block, block.spec.canonical_json(), block.seeds, self.topic, block.number
                )
                run = checked(block.spec, block.seeds, answer)
            except asyncio.CancelledError:
                self._fail(worker, attempt, f"its worker {worker} died")
                raise
            except Exception as error:
                if self.client.status != "running":
                    return  # the scheduler is gone, and nobody's block is to blame
                self._fail(worker, attempt, _line(error).removeprefix("ValueError: "))
            else:
                self._land(block, run, answer)
            finally:
                del self.doing[worker]

    async def _meet(self, worker: str) -> dict[str, Any]:
        """Ask a worker what it is. One that does not run what we run is never given a block, and the user is told."""
        try:
            about = await self._ask(worker, greet)
            if "error" in about:
                raise ValueError(about["error"])
            ours, theirs = _must_agree(), about["agree"]
            differs = [f"it has {n} {theirs.get(n)}, we have {v}" for n, v in ours.items() if theirs.get(n) != v]
        except Exception as error:
            about, differs = {}, [_line(error).removeprefix("ValueError: ")]
        if differs:
            self.refused[worker] = "; ".join(differs)
            self.cluster.say(f"  worker {worker} is given no work: {self.refused[worker]}")
            await asyncio.Event().wait()  # until the worker is gone or everything is over
        self.met.add(worker)
        return about

    async def _ask(self, worker: str, task: Callable[..., Any], *args: Any) -> Any:
        """Have one worker do something. Bound to it: Dask moves nothing by itself, so that every failure is counted here."""
        return await self.client.submit(task, *args, workers=[worker], allow_other_workers=False, pure=False)

    def _cut(self, devices: int, accelerator: bool) -> None:
        seeds = sum(len(missing) for *_, missing in self.lacking)
        size = block_size(seeds, len(self.serving.keys() - self.refused.keys()), devices, accelerator)
        parts = [(name, spec, part) for name, spec, missing in self.lacking for part in pieces(sorted(missing), size)]
        self.blocks = [Block(next(self.numbers), *part) for part in parts]
        # the longest first: what is begun last should not be what everybody waits for
        self.queue = sorted(self.blocks, key=lambda block: -block.samples * block.spec.model.d_model)

    def _next(self, worker: str) -> Block | None:
        """The next block for a worker. One that it has failed goes to others first: one broken machine must not fail them all."""
        self.queue = [block for block in self.queue if not block.settled]
        # a worker that hangs will not ask again
        asking = self.met - {name for name, attempt in self.doing.items() if attempt.failed}
        for block in self.queue:
            if worker not in block.tried or block.tried >= asking:
                self.queue.remove(block)
                return block
        return None

    def _hear(self, event: tuple[float, Any]) -> None:
        worker, number, steps = event[1]
        attempt = self.doing.get(worker)
        if attempt and attempt.block.number == number and steps >= attempt.steps:
            attempt.seen, attempt.steps = time.monotonic(), steps

    def _land(self, block: Block, run: Run, answer: Mapping[str, Any]) -> None:
        """Store what the store does not hold yet: another process, or another try, may have been faster."""
        with self.store.alone(f"land {block.spec.digest()}"):  # two clients that look at once would both store it
            missing = self.store.blocks(block.spec, block.seeds, trained_by().program())[1]
            for part in pieces(missing, len(block.seeds)) if missing else []:
                self.store.save(
                    select([run], tuple(part)), answer["seconds"] * len(part) / len(block.seeds), answer["machine"]
                )
        block.landed = True
        if lost := run.diverged():
            self.cluster.say(f"  {block.name}: diverged and left out of what is judged: {lost}")
        self._tell()

    def _fail(self, worker: str, attempt: Attempt, why: str) -> None:
        """Count a failure once, and let the block be tried again, cut in two if it did not fit a worker's memory."""
        block = attempt.block
        if attempt.failed or block.settled or self.over:
            return
        attempt.failed = True
        if OUT_OF_MEMORY in why and len(block.seeds) > 1:
            half = len(block.seeds) // 2
            halves = block.seeds[:half], block.seeds[half:]
            parts = [Block(next(self.numbers), block.name, block.spec, part) for part in halves]
            self.blocks.remove(block)
            self.blocks += parts
            self.queue += parts
            self.cluster.say(f"  {block} does not fit the memory of {worker}; going on with {half} seeds at once")
            return
        block.failures.append(why)
        block.tried.add(worker)
        if len(block.failures) < TRIES:
            self.queue.append(block)
            self.cluster.say(f"  {block} will be tried again: {why}")
        else:
            self.cluster.say(f"  {block} failed {TRIES} times and is left out: {why}")

    def _tell(self) -> None:
        if not self.cluster.tell:
            return
        landed = [block for block in self.blocks if block.landed]
        whole = sum(len(missing) * spec.steps * spec.batch for _, spec, missing in self.lacking)
        at = {a.block.number: a for a in sorted(self.doing.values(), key=lambda a: a.steps) if not a.block.landed}
        done = sum(b.samples for b in landed)
        done += sum(a.steps * a.block.spec.batch * len(a.block.seeds) for a in at.values())
        rate = done / max(time.monotonic() - self.began, 1e-9)
        self.cluster.tell(Tally(len(landed), len(self.blocks), len(self.met), len(self.doing), done, whole, rate))
