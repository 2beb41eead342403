"""The commands `export` and `import`: they find what is meant and call `mnemoscope.exchange`."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from mnemoscope.cli.console import as_typed
from mnemoscope.cli.options import DEFAULT_STORE, StoreDir, open_store_there
from mnemoscope.core.errors import UserError
from mnemoscope.studies.scales import Scale, pick_scale

if TYPE_CHECKING:
    from mnemoscope.exchange.run_tables import Tables
    from mnemoscope.models import Transformer
    from mnemoscope.store import RunRow, Store
    from mnemoscope.training.run import Run

Kind = Literal["transformer-lens", "numpy", "csv", "parquet"]


def export(
    name: Annotated[str, tyro.conf.Positional],
    target: Annotated[Path, tyro.conf.Positional],
    /,
    to: Kind,
    seed: int | None = None,
    snapshot: int | None = None,
    scale: Scale | None = None,
    force: bool = False,
    store: StoreDir = DEFAULT_STORE,
) -> None:
    """Write a run or a study's ledger in a format of other tools.

    Args:
        name: A stored run, by its name (walk/abc) or how its id starts ('mnemoscope runs' lists
            them), or a study by its name or folder.
        target: The file (numpy: FILE.npz) or the folder (all others) to write.
        to: transformer-lens: one model, as model.safetensors and config.json of a
            HookedTransformer. numpy: everything a run holds, or a ledger. csv, parquet: how a run
            went (losses, metrics), or a ledger.
        seed: Only this seed of a run. Nothing: for transformer-lens its first, otherwise all.
        snapshot: Which stored moment of the training goes to transformer-lens, counted from 0.
            Nothing: the end.
        scale: Of a study's ledger. Nothing: the largest that there is.
        force: Write over what is there.
    """
    from mnemoscope.core.plugins import is_path
    from mnemoscope.store import UnknownKindError
    from mnemoscope.studies.discover import STUDIES, find_study

    is_study = is_path(name) or name in STUDIES
    if snapshot is not None and to != "transformer-lens":
        raise UserError(f"--snapshot goes with --to transformer-lens; --to {to} writes all of them")
    if is_study and seed is not None:
        raise UserError("--seed goes with a run")
    if not is_study and scale is not None:
        raise UserError("--scale goes with a study: " + ", ".join(STUDIES))
    if is_study:
        _export_study(find_study(name).name, target, to, scale, force, store)
    else:
        opened = open_store_there(store)
        row = _find_run(opened, name)
        try:
            run = opened.load(row)
        except UnknownKindError as error:
            if to != "numpy":
                raise UserError(f"{error}; --to numpy writes its arrays all the same") from None
            _export_unknown(opened, row, target, seed, force)
            print(f"Written: {target} ({error})")
            return
        if to == "transformer-lens":
            _export_model(run, target, seed, -1 if snapshot is None else snapshot, force)
        else:
            _export_run(run, row, target, to, seed, force)
    print(f"Written: {target}")


def _find_run(store: "Store", name: str) -> "RunRow":
    """The stored run that is meant; what is no run's name is no study's either."""
    from mnemoscope.studies.discover import STUDIES
    from mnemoscope.studies.run_names import find_run

    try:
        return find_run(store, name)
    except UserError as error:
        if "/" in name or any(row.starts_with(name) for row in store.rows()):
            raise
        raise UserError(f"{error}; or a study: {', '.join(STUDIES)}") from None


def _export_unknown(
    store: "Store", row: "RunRow", target: Path, seed: int | None, force: bool
) -> None:
    """Write the arrays of a run whose kind is unknown here, as its file has them."""
    from mnemoscope.exchange.run_tables import stored_arrays, write_numpy

    arrays = store.load_arrays(row)
    seeds = list(range(row.first, row.last + 1))
    if seed is not None:
        if seed not in seeds:
            raise UserError(f"no seed {seed} in run {row.id}; allowed: {row.first} to {row.last}")
        at = seeds.index(seed)
        # every array but this one has a seed axis in front
        arrays = {
            name: array if name == "loss_steps" else array[at : at + 1]
            for name, array in arrays.items()
        }
        seeds = [seed]
    write_numpy(stored_arrays(arrays, seeds, row.spec_json), target, force)


def _export_model(run: "Run", target: Path, seed: int | None, snapshot: int, force: bool) -> None:
    """Write one model of a run for TransformerLens; without a seed, the first."""
    from mnemoscope.exchange.lens import write_transformer_lens

    chosen_seed = run.seeds[0] if seed is None else seed
    step = run.step_of(snapshot)
    about = {
        "spec": run.spec.canonical_json(),
        "seed": str(chosen_seed),
        "step": str(step),
    }
    model = run.model(chosen_seed, snapshot)
    write_transformer_lens(model, target, force, about, n_ctx=run.spec.task.n_ctx)


def _export_run(
    run: "Run",
    row: "RunRow",
    target: Path,
    to: Kind,
    seed: int | None,
    force: bool,
) -> None:
    """Write a run, or one seed of it, as arrays or tables."""
    from mnemoscope.exchange.run_tables import run_arrays, tabulate_run, write_numpy
    from mnemoscope.execution.local import select

    if seed is not None:
        run.outcome(seed)  # says which seeds there are
        run = select([run], (seed,))
    if to == "numpy":
        write_numpy(run_arrays(run), target, force)
        return
    about = {
        "run": row.id,
        "spec": run.spec.model_dump(mode="json"),
        "made": row.made,
        "machine": row.machine,
    }
    _write_tables(tabulate_run(run), about, target, to, force)


def _export_study(
    name: str,
    target: Path,
    to: Kind,
    scale: Scale | None,
    force: bool,
    store: Path,
) -> None:
    """Write a study's ledger and each seed's outcome as arrays or tables."""
    from mnemoscope.exchange.run_tables import as_arrays, tabulate_ledger, write_numpy
    from mnemoscope.studies.ledger_files import find_folder, read_all_series, read_ledgers

    if to == "transformer-lens":
        raise UserError(
            f"{name!r} is a study, which has no weights; --to transformer-lens takes a stored run"
        )
    by_scale = read_ledgers(store, name)
    at = pick_scale(by_scale.keys(), scale)
    if at not in by_scale:
        raise UserError(
            f"no {at} ledger of {name} in {str(store)!r}; make one with "
            f"'mnemoscope run {name} --scale {at}'"
        )
    series = read_all_series(find_folder(store, name, at), name)
    by_claim = {claim: each.by_seed for claim, each in series.items()}
    tables = tabulate_ledger(by_scale[at], by_claim)
    if to == "numpy":
        write_numpy(as_arrays(tables), target, force)
        return
    about = by_scale[at].model_dump(mode="json", exclude={"claims"})
    _write_tables(tables, about, target, to, force)


def _write_tables(
    tables: "Tables",
    about: Mapping[str, Any],
    target: Path,
    to: Kind,
    force: bool,
) -> None:
    from mnemoscope.exchange.run_tables import write_csv, write_parquet

    write = write_csv if to == "csv" else write_parquet
    write(tables, about, target, force)


def import_(
    path: Annotated[Path, tyro.conf.Positional],
    /,
    like: str = "",
    seed: int = 0,
    store: StoreDir = DEFAULT_STORE,
) -> None:
    """Read a model from elsewhere, say what it is, and store it.

    It is one of these, and never a pickle (.pt, .bin):
    - a Hugging Face folder of a Llama, GPT-NeoX or GPT-2
    - a folder in TransformerLens's format, as 'mnemoscope export' writes it
    - a GGUF file of a Llama
    - a run that was trained in the explorer's page, as it was downloaded there: all of its seeds

    What is in such a folder, and how to write one: docs/language_models.md.

    Args:
        path: The folder or the file.
        like: A stored run whose task the model is shown with, by its name or how its id starts.
        seed: The number it is stored under, which also draws that task's world.
    """
    from mnemoscope.exchange.imported import as_run, keep, vocabulary_of
    from mnemoscope.exchange.model_files import load_model, longest_prompt
    from mnemoscope.exchange.run_files import is_run_file
    from mnemoscope.store import Store
    from mnemoscope.studies.run_names import find_run

    if is_run_file(path):
        _import_run(path, like, seed, store)
        return
    model = load_model(path)
    print(_describe(model))
    opened = Store(store)
    if like:
        task = opened.load(find_run(opened, like)).spec.task
    else:
        task = vocabulary_of(model, longest_prompt(model, path))
    run = as_run(model, task, seed)
    row = keep(opened, run)
    stored = f"Stored as {row.id}"
    if like:
        loss = f"{run.losses[0, 0]:.4f} on {run.spec.batch} sequences of {task.kind_name()}"
        stored = f"{stored}, loss {loss}"
    print(f"{stored}; {_how_to_look(run, row, path)}")


def _import_run(path: Path, like: str, seed: int, store: Path) -> None:
    """Store a run that was trained in the explorer's page."""
    from mnemoscope.exchange.imported import keep
    from mnemoscope.exchange.run_files import read_run_file
    from mnemoscope.store import Store

    if like or seed:
        raise UserError(
            f"{str(path)!r} is a run, which has a task and seeds of its own; "
            "--like and --seed go with a model"
        )
    run = read_run_file(path)
    print(f"{run!r}"[1:-1])
    row = keep(Store(store), run, advice="there is nothing to do")
    print(f"Stored as {row.id}, marked as imported; {_how_to_look(run, row, path)}")


def _how_to_look(run: "Run", row: "RunRow", path: Path) -> str:
    """What to do with an imported model: it may be too large for the explorer's page."""
    from mnemoscope.explorer import describe_run
    from mnemoscope.explorer.pack import require_shown

    try:
        require_shown(describe_run(run, row.id))
    except UserError as error:
        return f"in Python: mnemoscope.load_model({str(path)!r}), since {error}"
    return as_typed(f"look inside: mnemoscope explore {row.spec}")


def _describe(model: "Transformer") -> str:
    """A model's shape in words."""
    config = model.config
    n_parameters = sum(value.size for value in model.params.values())
    norm = config.norm if config.norm == "none" else f"{config.norm} ({config.norm_type})"
    parts = [
        f"d_model {config.d_model}",
        f"n_heads {config.n_heads}",
        f"n_layers {config.n_layers}",
        f"d_mlp {config.d_mlp}",
        f"act {config.act}",
        f"norm {norm}",
        f"{model.d_vocab} tokens",
        f"{model.n_ctx or 'any number of'} positions ({config.positions})",
    ]
    return f"{', '.join(parts)}: {n_parameters:,} parameters"
