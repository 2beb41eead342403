"""The commands `list` and `run`: which claims there are, and training and judging them."""

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import tyro

from mnemoscope.cli.console import as_typed, make_console
from mnemoscope.cli.options import (
    DEFAULT_STORE,
    StoreDir,
    TrainedScale,
    check_seeds,
    mention_unloaded,
)
from mnemoscope.core.errors import UserError
from mnemoscope.studies.scales import SCALES, Scale

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from mnemoscope.report.study_progress import Live
    from mnemoscope.store import Store
    from mnemoscope.studies.study import Study
    from mnemoscope.training.sinks import Sink
    from mnemoscope.verdicts.ledger import Ledger

Follow = Literal["tensorboard", "wandb"]
Keep = Literal["runs", "measures"]


def list_(
    study: Annotated[str, tyro.conf.Positional] = "all",
    /,
    store: StoreDir = DEFAULT_STORE,
) -> None:
    """List studies and their claims, with the verdict of each that has been judged.

    Args:
        study: The study's name or folder, or "all".
    """
    from mnemoscope.studies.discover import STUDIES, find_study

    console = make_console()
    chosen = STUDIES.values() if study == "all" else [find_study(study)]
    for each in chosen:
        console.print(_claims_table(each, store))
    if study == "all":
        mention_unloaded(store)


def _claims_table(study: "Study", store: Path) -> "Table":
    """A row for each claim of a study: its id, its verdict at both scales, what is claimed."""
    from rich.table import Table

    from mnemoscope.report.ledger_tables import styled
    from mnemoscope.studies.ledger_files import read_ledgers

    table = Table(
        "claim",
        *SCALES,
        "what is claimed",
        title=f"{study.name}: {study.title}",
        title_justify="left",
        caption=f"paper: {study.paper}" if study.paper else None,
        caption_justify="left",
    )
    judged = {
        (scale, entry.id): styled(entry.verdict, entry.verdict_in_words())
        for scale, book in read_ledgers(store, study.name).items()
        for entry in book.claims
    }
    for test in study.tests:
        cells = [judged.get((scale, test.claim.id), "-") for scale in SCALES]
        table.add_row(test.claim.id, *cells, test.claim.statement)
    return table


def run(
    study: Annotated[str, tyro.conf.Positional],
    /,
    scale: TrainedScale = "quick",
    seeds: int | None = None,
    claims: str = "",
    corpus: Path | None = None,
    model: Path | None = None,
    follow: Follow | None = None,
    cluster: str | None = None,
    block_timeout: float | None = None,
    until_decided: bool = False,
    max_seeds: int | None = None,
    keep: Keep = "runs",
    store: StoreDir = DEFAULT_STORE,
) -> None:
    """Run a study: train what is missing, judge its claims, write the ledger.

    Finished trainings and verdicts are kept in the store and never repeated, so a run that was
    interrupted goes on where it stopped.

    Args:
        study: The study's name, or "all"; or a folder or a file that has one: ./my_study, or
            ./my_studies.py@NAME.
        seeds: Seeds for every condition, instead of the study's own numbers (fewer than 35 settle
            nothing about shares, fewer than 8 nothing at all).
        claims: Judge only these, by their ids, separated by commas.
        corpus: A text file whose characters take the place of tiny Shakespeare's, for studies of
            text.
        model: A GGUF file or a safetensors folder of the Llama or GPT-NeoX type, for studies of a
            language model.
        follow: Write losses and metrics, while it trains, for TensorBoard or
            Weights & Biases (offline) into the folder "follow" of the store.
        cluster: The address of a Dask scheduler whose workers train, such as
            tcp://scheduler:8786 (docs/cluster.md).
        block_timeout: With --cluster: seconds in which a block makes no step before it is tried
            on another worker too (3600).
        until_decided: Double the seeds of what is undecided, up to four looks, with intervals that
            stay valid when one looks again.
        max_seeds: With --until-decided: no more seeds than this for a condition (8 times the most
            that the study has).
        keep: runs: weights stay in the store. measures: only the numbers that were measured, small
            enough to carry to another store (`mnemoscope merge`).
    """
    from mnemoscope.studies.presentation import require_presentable

    claim_ids = tuple(part.strip() for part in claims.split(",") if part.strip())
    chosen = _choose_studies(study, claim_ids, corpus, model)
    for each in chosen:  # all refuse here what would otherwise fail after hours of training
        each.pick(claim_ids)
        each.list_conditions(scale)
        require_presentable(each)
    _check_options(seeds, follow, cluster, block_timeout)
    if max_seeds is not None:
        check_seeds(max_seeds)
        if not until_decided:
            raise UserError("--max-seeds goes with --until-decided")

    from mnemoscope.execution.machine import compile_cache_dir, use_all_devices
    from mnemoscope.store import Store

    opened = Store(store)
    plan = _Plan(
        scale=scale,
        seeds=seeds,
        claim_ids=claim_ids,
        sink=_make_sink(follow, opened),
        cluster=cluster,
        block_timeout=block_timeout,
        until_decided=until_decided,
        max_seeds=max_seeds,
        keep_weights=keep == "runs",
    )
    use_all_devices(cache=compile_cache_dir())
    console = make_console()
    for each in chosen:
        ledger = _train_and_judge(console, each, opened, plan)
        # `show` reads the study's own ledger, not that of another text or model
        _report(console, opened, each.name, ledger, hint=not (corpus or model))


class _Plan(NamedTuple):
    """How `run` trains and judges the studies that were chosen."""

    scale: Scale
    """How much is trained."""
    seeds: int | None
    """Seeds for every condition; None leaves each its own number."""
    claim_ids: tuple[str, ...]
    """The claims to judge; empty for all of them."""
    sink: "Sink | None"
    """Where losses go while a training runs, if anywhere."""
    cluster: str | None
    """The address of a Dask scheduler, if its workers train."""
    block_timeout: float | None
    """Seconds without a step before a block is tried on another worker; None for the default."""
    until_decided: bool
    """Whether seeds are added to what is undecided."""
    max_seeds: int | None
    """Up to how many; None for eight times what there are."""
    keep_weights: bool
    """Whether what is trained stays in the store."""


def _choose_studies(
    name: str,
    claim_ids: tuple[str, ...],
    corpus: Path | None,
    model: Path | None,
) -> "list[Study]":
    """The studies that are meant, on the user's own text or language model where one is given."""
    from mnemoscope.studies.discover import STUDIES, find_study, on_corpus, on_model

    chosen = list(STUDIES.values()) if name == "all" else [find_study(name)]
    if name == "all" and claim_ids:
        raise UserError("--claims goes with one study; allowed: " + ", ".join(STUDIES))
    if corpus is not None:
        chosen = [on_corpus(each, corpus) for each in chosen]
    if model is not None:
        chosen = [on_model(each, model) for each in chosen]
    return chosen


def _check_options(
    seeds: int | None,
    follow: Follow | None,
    cluster: str | None,
    block_timeout: float | None,
) -> None:
    """Refuse options of `run` that make no sense, or not together."""
    if seeds is not None:
        check_seeds(seeds)
    if cluster is None and block_timeout is not None:
        raise UserError("--block-timeout goes with --cluster")
    if cluster is not None and follow:
        raise UserError(
            "--follow goes without --cluster: the numbers of a training stay with its worker until "
            "it is done"
        )


def _make_sink(follow: Follow | None, store: "Store") -> "Sink | None":
    """What writes down a training's numbers while it trains, if that was asked for."""
    if not follow:
        return None
    from mnemoscope.training.sinks import sink_of

    return sink_of(follow, store.folder / "follow")


# options of `run` that say where it ran and what was kept, and nothing of what was found
LEFT_OUT = ("--store", "--follow", "--cluster", "--block-timeout")


def portable_command(arguments: Sequence[str]) -> str:
    """A command as a ledger tells it, to be typed on any machine.

    Where something was kept and who trained it is left out; a path from the root is its last name.

    Args:
        arguments: what was typed after `mnemoscope`.
    """
    kept: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        option, has_value, value = argument.partition("=")
        if option in LEFT_OUT:
            if not has_value:
                next(rest, None)
        elif option.startswith("--") and has_value:
            kept.append(f"{option}={_last_name(value)}")
        else:
            kept.append(_last_name(argument))
    command = "mnemoscope " + shlex.join(kept)
    # a name in another encoding than the system's cannot be written down as it is
    return command.encode(errors="backslashreplace").decode()


def _last_name(value: str) -> str:
    """A value; of a path from the root its last name."""
    return Path(value).name if Path(value).is_absolute() else value


def _train_and_judge(
    console: "Console",
    study: "Study",
    store: "Store",
    plan: _Plan,
) -> "Ledger":
    """Train what the store lacks, judge the claims, and show on the console how far that is."""
    from mnemoscope.report.study_progress import Live
    from mnemoscope.studies.runner import run_study

    with Live(console, f"{study.name} ({plan.scale})") as live:
        return run_study(
            study,
            plan.scale,
            store,
            portable_command(sys.argv[1:]),
            seeds=plan.seeds,
            claims=plan.claim_ids,
            until_decided=_most_seeds(study, plan),
            keep_weights=plan.keep_weights,
            watcher=live,
            sink=plan.sink,
            train_elsewhere=_cluster_trainer(plan.cluster, plan.block_timeout, live),
        )


def _most_seeds(study: "Study", plan: _Plan) -> int | None:
    """Up to how many seeds are added to what is undecided; None if none are."""
    if not plan.until_decided:
        return None
    if plan.max_seeds is not None:
        return plan.max_seeds
    own = max((each.seeds for each in study.list_conditions(plan.scale).values()), default=0)
    return 8 * (plan.seeds or own)


def _cluster_trainer(
    address: str | None,
    block_timeout: float | None,
    live: "Live",
) -> Callable[..., None] | None:
    """What trains on the workers of a Dask cluster, where there is one."""
    if address is None:
        return None
    from mnemoscope.execution.cluster import BLOCK_TIMEOUT, Cluster
    from mnemoscope.execution.sent_plugins import pack_plugins

    timeout = BLOCK_TIMEOUT if block_timeout is None else block_timeout
    return Cluster(address, timeout, live.spread, live.say, pack_plugins()).train


def _report(console: "Console", store: "Store", name: str, ledger: "Ledger", hint: bool) -> None:
    """Write the ledger as Markdown beside its JSON, print it, and say where it is."""
    from mnemoscope.report.ledger_tables import markdown, print_ledger
    from mnemoscope.studies.ledger_files import file_stem

    stem = file_stem(name)
    store.write_text(f"ledger/{ledger.scale}/{stem}.md", markdown(ledger))
    print_ledger(console, ledger)
    where = store.folder / "ledger" / ledger.scale / stem
    show = as_typed(f"mnemoscope show {_claim_name(name, ledger)}")
    more = f"; one claim: {show}" if hint else ""
    console.print(f"Written: {where}.json and .md{more}", markup=False)


def _claim_name(study: str, ledger: "Ledger") -> str:
    """What `show` must be given to mean the first claim of a ledger."""
    from mnemoscope.studies.discover import command_name

    asked = command_name(study)
    claim = ledger.claims[0].id
    return claim if asked == study else f"{asked}@{claim}"
