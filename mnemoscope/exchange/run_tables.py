"""Runs and ledgers as named tables of columns, for NumPy (.npz), CSV and Parquet.

A table is a dictionary of columns of one length: numbers, or text. A run has one of its seeds, one
of its losses and one of its metrics, with a row for each seed and step; NumPy gets the arrays
themselves, weights and all. A study has one of its claims and one of every seed's outcome.
"""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mnemoscope.core.axes import Shaped
from mnemoscope.core.errors import UserError
from mnemoscope.exchange.atomic_write import new_file, new_folder
from mnemoscope.store import arrays_of
from mnemoscope.training.run import Run
from mnemoscope.verdicts.ledger import Entry, Ledger

Column = Shaped[np.ndarray, "row"]
Tables = dict[str, dict[str, Column]]
ABOUT = "about.json"
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how a cell begins that a spreadsheet computes
# of an entry, besides its interval
COLUMNS = (
    "id",
    "statement",
    "published",
    "criterion",
    "ours",
    "verdict",
    "firm",
    "value",
    "unit",
    "units",
    "failed",
    "sentence",
    "criterion_hash",
)


def stored_arrays(
    arrays: Mapping[str, np.ndarray], seeds: Sequence[int], spec_json: str
) -> dict[str, Shaped[np.ndarray, "..."]]:
    """What a file in the store holds, of a run whose kind is unknown here: the same arrays as
    `run_arrays`, but for the steps, which only the kind can tell.

    Args:
        arrays: those of the file.
        seeds: along their first axis.
        spec_json: the Spec as it is stored.
    """
    return {**arrays, "seeds": np.array(seeds), "spec": np.array(spec_json)}


def run_arrays(run: Run) -> dict[str, Shaped[np.ndarray, "..."]]:
    """Everything a run holds, under the names that its file in the store has, with its seeds, its
    steps and its Spec as JSON."""
    arrays = arrays_of(run)
    arrays["seeds"] = np.array(run.seeds)
    arrays["snapshot_steps"] = np.array(run.spec.snapshot_steps())
    if run.metrics:
        arrays["eval_steps"] = np.array(run.spec.eval_steps())
    arrays["spec"] = np.array(run.spec.canonical_json())
    return arrays


def tabulate_run(run: Run) -> Tables:
    """How a run went: `seeds`, `losses`, and `metrics` if there are any; what is no single number
    has a column for each entry."""
    seeds = {
        "seed": np.array(run.seeds),
        "outcome": np.array([run.outcome(seed) for seed in run.seeds]),
        "finite_steps": run.finite_steps,
    }
    losses = _by_seed_and_step(run, run.loss_steps, {"loss": run.losses})
    tables = {"seeds": seeds, "losses": losses}
    if run.metrics:
        eval_steps = np.array(run.spec.eval_steps())
        tables["metrics"] = _by_seed_and_step(run, eval_steps, run.metrics)
    return tables


def _by_seed_and_step(
    run: Run,
    steps: Shaped[np.ndarray, "step"],
    values: Mapping[str, Shaped[np.ndarray, "seed step ..."]],
) -> dict[str, Column]:
    """A table with a row for each seed and step, and a column for each entry of each value."""
    n_seeds = len(run.seeds)
    table = {"seed": np.repeat(run.seeds, len(steps)), "step": np.tile(steps, n_seeds)}
    for name, value in values.items():
        for index in np.ndindex(value.shape[2:]):
            column = f"{name}[{','.join(map(str, index))}]" if index else name
            table[column] = value[:, :, *index].reshape(-1)
    return table


def tabulate_ledger(
    ledger: Ledger, evidence: Mapping[str, Mapping[str, Sequence[float | None]]]
) -> Tables:
    """A study's findings: `claims`, a row each, and `outcomes`, a row for each seed (counted from
    0) and what was read off it."""
    if not ledger.claims:
        raise UserError(f"the {ledger.scale} ledger of {ledger.study} has no claims")
    rows = [_claim_row(ledger, entry) for entry in ledger.claims]
    claims = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    known = {entry.id for entry in ledger.claims}
    judged = {claim: outcomes for claim, outcomes in evidence.items() if claim in known}
    return {"claims": claims, "outcomes": _outcomes(judged)}


def _claim_row(ledger: Ledger, entry: Entry) -> dict[str, Any]:
    """One claim with its verdict; NaN stands for numbers that there are not."""
    low, high = entry.interval or (np.nan, np.nan)
    row = {
        "study": ledger.study,
        "scale": ledger.scale,
        **entry.model_dump(include=set(COLUMNS)),
        "low": low,
        "high": high,
    }
    row["firm"] = "" if entry.firm is None else str(entry.firm)
    if entry.value is None:
        row["value"] = np.nan
    return row


def _outcomes(evidence: Mapping[str, Mapping[str, Sequence[float | None]]]) -> dict[str, Column]:
    """A row for each claim, what was read off its seeds, and seed."""
    rows = [
        (claim, name, seed, value)
        for claim, by_name in evidence.items()
        for name, values in by_name.items()
        for seed, value in enumerate(values)
    ]
    return {
        "claim": np.array([row[0] for row in rows], str),
        "name": np.array([row[1] for row in rows], str),
        "seed": np.array([row[2] for row in rows], int),
        "value": np.array([row[3] for row in rows], float),
    }


def as_arrays(tables: Tables) -> dict[str, Column]:
    """Tables for a .npz file: `claims/verdict` is the column `verdict` of the table `claims`."""
    return {
        f"{table}/{name}": column
        for table, columns in tables.items()
        for name, column in columns.items()
    }


def write_numpy(arrays: Mapping[str, np.ndarray], path: Path, force: bool) -> None:
    """One .npz file of plain arrays, text as unicode; it is read without `allow_pickle`.

    Args:
        arrays: The arrays by their names.
        path: The file, which ends in .npz.
        force: Write over a file that is there.
    """
    if path.suffix != ".npz":
        raise UserError(f"--to numpy writes a file that ends in .npz, got {str(path)!r}")
    for name, value in arrays.items():
        if value.dtype.hasobject:
            raise TypeError(f"{name} would need a pickle")
    with new_file(path, force) as unfinished, open(unfinished, "wb") as file:
        np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]


def write_csv(tables: Tables, about: Mapping[str, Any], folder: Path, force: bool) -> None:
    """A folder with a .csv file for each table, numbers in full, and about.json.

    A text that a spreadsheet would take for a formula gets an apostrophe in front: the words of a
    study that somebody handed over must not be run.

    Args:
        tables: The tables by their names.
        about: What they come from, for about.json.
        folder: The folder to write.
        force: Write into a folder that has files.
    """
    with new_folder(folder, force, ABOUT) as where:
        for name, table in tables.items():
            with open(where / f"{name}.csv", "w", encoding="utf-8", newline="") as file:
                rows = csv.writer(file, lineterminator="\n")
                rows.writerow(table)
                rows.writerows(zip(*map(_as_text, table.values()), strict=True))
        _write_about(where, about)


def _as_text(column: Column) -> Column | list[str]:
    """A column of which no text begins like a formula."""
    if column.dtype.kind != "U":
        return column
    return [f"'{text}" if text.startswith(FORMULA) and text != "-" else text for text in column]


def write_parquet(tables: Tables, about: Mapping[str, Any], folder: Path, force: bool) -> None:
    """The same folder with .parquet files, which keep the types; needs PyArrow.

    Args:
        tables: The tables by their names.
        about: What they come from, for about.json.
        folder: The folder to write.
        force: Write into a folder that has files.
    """
    try:
        import pyarrow  # pyright: ignore[reportMissingImports]
        from pyarrow import parquet  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise UserError(
            "--to parquet needs PyArrow: pip install 'mnemoscope[parquet]'; --to csv needs nothing"
        ) from None
    with new_folder(folder, force, ABOUT) as where:
        for name, columns in tables.items():
            plain = {key: _plain(column) for key, column in columns.items()}
            parquet.write_table(pyarrow.table(plain), where / f"{name}.parquet")
        _write_about(where, about)


def _plain(column: Column) -> Column | list[str]:
    """A column as PyArrow takes it: text of fixed width as a list."""
    return column.tolist() if column.dtype.kind == "U" else column


def _write_about(where: Path, about: Mapping[str, Any]) -> None:
    (where / ABOUT).write_text(json.dumps(about, indent=1), encoding="utf-8")
