"""The commands `export` and `import`: they find what is meant and call the room that writes or reads it."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from mnemoscope.cli.options import DEFAULT_STORE, Scale, StoreDir
from mnemoscope.core.errors import UserError

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
        name: A stored run, by its id or how it starts ('mnemoscope runs' lists them), or a study.
        target: The file (numpy: FILE.npz) or the folder (all others) to write.
        to: transformer-lens: one model, as model.safetensors and config.json of a HookedTransformer. numpy: everything a run holds,
            or a ledger. csv, parquet: how a run went (losses, what was observed), or a ledger.
        seed: Only this seed of a run. Nothing: for transformer-lens its first, otherwise all.
        snapshot: Which stored moment of the training goes to transformer-lens, counted from 0. Nothing: the end.
        scale: Of a study's ledger, quick or full. Nothing: full where there is one.
        force: Write over what is there.
    """
    from mnemoscope.studies.discover import STUDIES

    if snapshot is not None and to != "transformer-lens":
        raise UserError(f"--snapshot goes with --to transformer-lens; --to {to} writes all of them")
    if (seed if name in STUDIES else scale) is not None:
        raise UserError(
            "--seed goes with a run" if name in STUDIES else "--scale goes with a study: " + ", ".join(STUDIES)
        )
    if name in STUDIES:
        _export_study(name, target, to, scale, force, store)
    else:
        _export_run(name, target, to, seed, -1 if snapshot is None else snapshot, force, store)
    print(f"Written: {target}")


def _export_run(name: str, target: Path, to: Kind, seed: int | None, snapshot: int, force: bool, store: Path) -> None:
    from mnemoscope.exchange.lens import write_transformer_lens
    from mnemoscope.exchange.tables import run_arrays, run_tables, write_csv, write_numpy, write_parquet
    from mnemoscope.execution.local import select
    from mnemoscope.store import Store
    from mnemoscope.studies.discover import STUDIES

    kept = Store(store)
    if not any(row.id.startswith(name) for row in kept.rows()):
        ids = ", ".join(row.id for row in kept.rows()[:8]) or "none are stored"
        raise UserError(f"{name!r} is neither a run nor a study; runs: {ids}; studies: {', '.join(STUDIES)}")
    row = kept.find(name)
    run = kept.load(row)
    if to == "transformer-lens":
        picked, count = run.seeds[0] if seed is None else seed, len(run.spec.snapshot_steps())
        if not -count <= snapshot < count:
            raise UserError(f"no snapshot {snapshot} in this run; allowed: 0 to {count - 1}, or -1 for the end")
        step = run.spec.snapshot_steps()[snapshot]
        about = {"spec": run.spec.canonical_json(), "seed": str(picked), "step": str(step)}
        write_transformer_lens(run.model(picked, snapshot), target, force, about)
        return
    if seed is not None:
        run.outcome(seed)  # says which seeds there are
        run = select([run], (seed,))
    if to == "numpy":
        write_numpy(run_arrays(run), target, force)
    else:
        about = {"run": row.id, "spec": run.spec.model_dump(mode="json"), "made": row.made, "machine": row.machine}
        (write_csv if to == "csv" else write_parquet)(run_tables(run), about, target, force)


def _export_study(name: str, target: Path, to: Kind, scale: Scale | None, force: bool, store: Path) -> None:
    from mnemoscope.exchange.tables import as_arrays, ledger_tables, write_csv, write_numpy, write_parquet
    from mnemoscope.report.results import evidence, ledgers

    if to == "transformer-lens":
        raise UserError(f"{name!r} is a study, which has no weights; --to transformer-lens takes a stored run")
    books = ledgers(store, name)
    at = scale or ("full" if "full" in books else "quick")
    if at not in books:
        raise UserError(
            f"no {at} ledger of {name} in {str(store)!r}; make one with 'mnemoscope run {name} --scale {at}'"
        )
    tables = ledger_tables(books[at], evidence(store, name, at))
    if to == "numpy":
        write_numpy(as_arrays(tables), target, force)
    else:
        about = books[at].model_dump(mode="json", exclude={"claims"})
        (write_csv if to == "csv" else write_parquet)(tables, about, target, force)


def import_(
    folder: Annotated[Path, tyro.conf.Positional],
    /,
    like: str = "",
    seed: int = 0,
    store: StoreDir = DEFAULT_STORE,
) -> None:
    """Read a model in TransformerLens's format, say what it is, and store it to be walked and explored.

    The folder holds model.safetensors and config.json, as 'mnemoscope export --to transformer-lens' writes them; the docstring of
    mnemoscope.exchange.lens has the three lines that write one from a HookedTransformer.

    Args:
        folder: The folder.
        like: A stored run whose task the model is shown with, by its id or how it starts. Nothing: the model is not stored.
        seed: The number it is stored under, which also draws the task's world (of permutations: which were held out).
    """
    from mnemoscope.exchange.imported import as_run, keep
    from mnemoscope.exchange.lens import read_transformer_lens
    from mnemoscope.store import Store

    model = read_transformer_lens(folder)
    config, embed, places = model.config, model.params["embed.W_E"], model.params["pos_embed.W_pos"]
    parts = [f"d_model {config.d_model}", f"n_heads {config.n_heads}", f"n_layers {config.n_layers}", f"d_mlp {config.d_mlp}",
             f"norm {config.norm}", f"{embed.shape[0]} tokens", f"{places.shape[0]} positions"]  # fmt: skip
    print(f"{', '.join(parts)}: {sum(value.size for value in model.params.values()):,} parameters")
    if not like:
        print(
            "Not stored; --like RUN stores it with the task of a stored run, for 'mnemoscope walk' and 'mnemoscope explore'"
        )
        return
    run = as_run(model, (kept := Store(store)).load(kept.find(like)).spec, seed)
    row = keep(kept, run)
    print(f"Stored as {row.id}, loss {run.losses[0, 0]:.4f} on {run.spec.batch} sequences of {run.spec.task.kind}; "
          f"look inside: mnemoscope explore {row.spec}")  # fmt: skip
