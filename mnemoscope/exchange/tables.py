"""Runs and ledgers as named tables of columns, for NumPy (.npz), CSV and Parquet.

A table is a dictionary of columns of one length: numbers, or text. A run has one of its seeds, one of its losses and one of what
was observed, with a row for each seed and step; NumPy gets the arrays themselves, weights and all. A study has one of its claims
and one of every seed's outcome.
"""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mnemoscope.core.axes import Shaped
from mnemoscope.core.errors import UserError
from mnemoscope.exchange.files import new_file, new_folder
from mnemoscope.store import arrays_of
from mnemoscope.studies.claims import Ledger
from mnemoscope.training.run import Run

Column = Shaped[np.ndarray, "row"]
Tables = dict[str, dict[str, Column]]
ABOUT = "about.json"


def run_arrays(run: Run) -> dict[str, Shaped[np.ndarray, "..."]]:
    """Everything a run holds, under the names that its file in the store has, with its seeds, its steps and its Spec as JSON."""
    arrays = arrays_of(run)
    arrays |= {"seeds": np.array(run.seeds), "snapshot_steps": np.array(run.spec.snapshot_steps())}
    arrays |= {"look_steps": np.array(run.spec.look_steps())} if run.observed else {}
    return arrays | {"spec": np.array(run.spec.canonical_json())}


def run_tables(run: Run) -> Tables:
    """How a run went: `seeds`, `losses`, and `observed` if anything was; what is no single number has a column for each entry."""

    def by_step(steps: np.ndarray, values: Mapping[str, np.ndarray]) -> dict[str, Column]:
        table = {"seed": np.repeat(run.seeds, len(steps)), "step": np.tile(steps, len(run.seeds))}
        for name, value in values.items():
            for at in np.ndindex(value.shape[2:]):
                entry = f"{name}[{','.join(map(str, at))}]" if at else name
                table[entry] = value[:, :, *at].reshape(-1)
        return table

    tables = {
        "seeds": {
            "seed": np.array(run.seeds),
            "outcome": np.array([run.outcome(seed) for seed in run.seeds]),
            "good_steps": run.good_steps,
        },
        "losses": by_step(run.loss_steps, {"loss": run.losses}),
    }
    return tables | ({"observed": by_step(np.array(run.spec.look_steps()), run.observed)} if run.observed else {})


def ledger_tables(ledger: Ledger, evidence: Mapping[str, Mapping[str, Sequence[float]]]) -> Tables:
    """A study's findings: `claims`, a row each, and `outcomes`, a row for each seed (counted from 0) and what was read off it."""
    if not ledger.claims:
        raise UserError(f"the {ledger.scale} ledger of {ledger.study} has no claims")
    rows = [
        {"study": ledger.study, "scale": ledger.scale, **entry.model_dump(exclude={"interval"})}
        | dict(zip(("low", "high"), entry.interval or (np.nan, np.nan), strict=True))
        | {"value": np.nan if entry.value is None else entry.value}
        for entry in ledger.claims
    ]
    known = {entry.id for entry in ledger.claims}
    flat = [
        (claim, name, n, value)
        for claim, read in evidence.items()
        if claim in known
        for name, values in read.items()
        for n, value in enumerate(values)
    ]
    kinds = {"claim": str, "name": str, "seed": int, "value": float}
    outcomes = {name: np.array([row[i] for row in flat], kind) for i, (name, kind) in enumerate(kinds.items())}
    return {"claims": {name: np.array([row[name] for row in rows]) for name in rows[0]}, "outcomes": outcomes}


def as_arrays(tables: Tables) -> dict[str, Column]:
    """Tables for a .npz file: `claims/verdict` is the column `verdict` of the table `claims`."""
    return {f"{table}/{name}": column for table, columns in tables.items() for name, column in columns.items()}


def write_numpy(arrays: Mapping[str, np.ndarray], path: Path, force: bool) -> None:
    """One .npz file of plain arrays, text as unicode; it is read without `allow_pickle`."""
    if path.suffix != ".npz":
        raise UserError(f"--to numpy writes a file that ends in .npz, got {str(path)!r}")
    if objects := [name for name, value in arrays.items() if value.dtype.hasobject]:
        raise TypeError(f"{objects[0]} would need a pickle")
    with new_file(path, force) as unfinished, open(unfinished, "wb") as file:
        np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]


def write_csv(tables: Tables, about: Mapping[str, Any], folder: Path, force: bool) -> None:
    """A folder with a .csv file for each table, numbers in full, and what they come from in about.json."""
    with new_folder(folder, force, ABOUT) as where:
        for name, table in tables.items():
            with open(where / f"{name}.csv", "w", encoding="utf-8", newline="") as file:
                rows = csv.writer(file, lineterminator="\n")
                rows.writerow(table)
                rows.writerows(zip(*table.values(), strict=True))
        _write_about(where, about)


def write_parquet(tables: Tables, about: Mapping[str, Any], folder: Path, force: bool) -> None:
    """The same folder with .parquet files, which keep the types; needs PyArrow."""
    try:
        import pyarrow  # pyright: ignore[reportMissingImports]
        from pyarrow import parquet  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise UserError(
            "--to parquet needs PyArrow: pip install 'mnemoscope[parquet]'; --to csv needs nothing"
        ) from None
    with new_folder(folder, force, ABOUT) as where:
        for name, columns in tables.items():
            plain = {key: column.tolist() if column.dtype.kind == "U" else column for key, column in columns.items()}
            parquet.write_table(pyarrow.table(plain), where / f"{name}.parquet")
        _write_about(where, about)


def _write_about(where: Path, about: Mapping[str, Any]) -> None:
    (where / ABOUT).write_text(json.dumps(about, indent=1), encoding="utf-8")
