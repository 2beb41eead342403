"""The commands `runs` and `check`: what is stored, and whether it is still what was written."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from mnemoscope.cli.console import as_typed, make_console
from mnemoscope.cli.options import DEFAULT_STORE, StoreDir, open_store_there
from mnemoscope.core.errors import UserError, counted, unknown
from mnemoscope.core.legacy import SPEC_NAMES
from mnemoscope.core.limits import MAX_SEEDS

if TYPE_CHECKING:
    from mnemoscope.store import Damage, RunRow, Store
    from mnemoscope.studies.run_names import RunNames

# fields of tasks that hold thousands of values
FILLS_SCREENS = ("corpus", "names")
FEW = 8  # files that a line names
MOST_LISTED = 200  # runs, the newest; a sweep stores thousands
WIDE = 140  # columns from which the table of runs shows everything in columns of its own


def runs(
    pattern: Annotated[str, tyro.conf.Positional] = "",
    /,
    delete: bool = False,
    store: StoreDir = DEFAULT_STORE,
) -> None:
    """List stored runs with their names and sizes; filter them; delete those that match.

    Args:
        pattern: A run's name, such as walk/abc, or a study's; what its id must start with, such as
            3f2a or 3f2a90c1/0-7; or key=value that its Spec must hold, such as d_model=32. Nothing:
            all runs.
        delete: Delete every run that matches the pattern (which must then be given).
    """
    from mnemoscope.studies.run_names import matching_rows, read_run_names

    opened = open_store_there(store)
    names = read_run_names(opened)
    if "=" in pattern:
        found = [row for row in opened.rows() if _holds(row, pattern)]
        # a condition's name may have the sign too: hops/hard/k=1
        found = found or matching_rows(opened.rows(), names, pattern)
    else:
        found = matching_rows(opened.rows(), names, pattern)
    if delete:
        _delete(opened, found, pattern)
    else:
        _print_runs(opened.folder, found, names)


def merge(other: Annotated[Path, tyro.conf.Positional], /, store: StoreDir = DEFAULT_STORE) -> None:
    """Take over the runs, findings and ledgers of another store that this one lacks.

    So a study can be measured on several machines and in several sittings. Of a claim that both
    measured, what was measured last counts.

    Args:
        other: The folder of the other store; it is only read.
    """
    from mnemoscope.store import Store
    from mnemoscope.studies.merge import merge_store

    if not other.is_dir():
        raise UserError(f"there is no store at {str(other)!r}")
    merged = merge_store(Store(store), Store(other), "mnemoscope merge")
    n_runs = counted(merged.runs, "run")
    print(f"taken over: {n_runs}, {counted(merged.findings, 'finding')}")
    for claim in merged.claims:
        print(f"  {claim}")


def _holds(row: "RunRow", pattern: str) -> bool:
    """Whether a run's Spec holds the pattern's key=value."""
    key, value = pattern.split("=", 1)
    try:
        spec = json.loads(row.spec_json)
    except (ValueError, RecursionError):
        spec = None
    if not isinstance(spec, dict):
        return False  # what cannot be read holds nothing
    flat = _flatten(spec)
    if key not in flat:
        if "/" in key:  # a name, then
            return False
        raise UserError(unknown("key of a Spec", key, flat))
    return str(flat[key]) == value


def _flatten(spec: dict[str, Any]) -> dict[str, Any]:
    """A Spec's keys without their sections, but for `kind`, which every section has."""
    new_names = {old: new for new, old in SPEC_NAMES.items()}
    flat: dict[str, Any] = {}
    for stored_name, value in spec.items():
        section = new_names.get(stored_name, stored_name)
        if not isinstance(value, dict):
            flat[section] = value
            continue
        for key, setting in value.items():
            flat[f"{section}.kind" if key == "kind" else key] = setting
    return flat


def _delete(store: "Store", found: "list[RunRow]", pattern: str) -> None:
    """Delete the runs that match; without a pattern, or without a match, nothing."""
    if not pattern or not found:
        ids = ", ".join(row.id for row in store.rows()) or "none are stored"
        raise UserError(f"nothing to delete for {pattern!r}; runs: {ids}")
    deleted: list[RunRow] = []

    def refuse() -> None:
        raise UserError(
            f"run {found[len(deleted)].id} is being trained or read by another process, so it "
            f"stays; {counted(len(deleted), 'run')} deleted"
        )

    for row in found:
        with store.lock(row.spec, refuse):
            store.delete(row)
        deleted.append(row)
    print(f"deleted {counted(len(deleted), 'run')}, {_megabytes(deleted):.1f} MB")


def _megabytes(rows: "list[RunRow]") -> float:
    return sum(row.bytes for row in rows) / 1e6


def _print_runs(folder: Path, rows: "list[RunRow]", names: "RunNames") -> None:
    """A table of runs; on a narrow terminal what they are goes below their ids."""
    from rich.markup import escape
    from rich.table import Table

    console = make_console()
    title = f"{counted(len(rows), 'run')}, {_megabytes(rows):.1f} MB in {folder}"
    is_wide = console.width >= WIDE
    table = Table(title=escape(title), title_justify="left", show_lines=not is_wide)
    for name in ("run", "seeds", "MB", "made"):
        table.add_column(name, overflow="fold")
    if is_wide:
        for name in ("diverged", "seconds", "by", "what"):
            table.add_column(name)
    for row in rows[-MOST_LISTED:]:
        table.add_row(*map(escape, _cells(row, is_wide, names)))
    console.print(table)
    if len(rows) > MOST_LISTED:
        console.print(
            f"These are the newest {MOST_LISTED} of {len(rows):,}; "
            + as_typed("mnemoscope runs PATTERN lists those that match.")
        )


def _cells(row: "RunRow", is_wide: bool, names: "RunNames") -> list[str]:
    """What the table of runs says of one of them."""
    n_seeds = row.last - row.first + 1
    description = "; ".join(_describe(row))
    trained_by = _trained_by(row)
    called = "\n".join([*names.names_of(row.spec), row.id])
    cells = [called, str(n_seeds), f"{row.bytes / 1e6:.1f}", row.made[:10]]
    if is_wide:
        return [*cells, str(row.diverged), f"{row.seconds:.1f}", trained_by, description]
    cells[0] += f"\n{description}; {row.seconds:.1f} s; {row.diverged} diverged; by {trained_by}"
    return cells


def _trained_by(row: "RunRow") -> str:
    """Which Mnemoscope trained a run."""
    try:
        origin = row.origin
    except ValueError:
        return "?"
    if origin is not None:
        return origin.mnemoscope
    # 0.1 did not write down what trained a run, and nothing trained an imported model
    return "-" if '"imported"' in row.spec_json else "0.1"


def _describe(row: "RunRow") -> tuple[str, str, str]:
    """Model, task and training of a run in words; what cannot be read is not guessed at."""
    try:
        spec = json.loads(row.spec_json)
        shape = _describe_model(spec["model"])
        task = _describe_fields(spec["task"])
        optimizer = spec[SPEC_NAMES["optimizer"]]
        training = (
            "imported"
            if "imported" in spec
            else f"{spec['steps']:,} x {spec['batch']}, lr {optimizer['lr']:g}"
        )
        if "precision" in spec:
            training += f", {spec['precision']}"
        return shape, task, training
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return "?", "its Spec cannot be read", "see 'mnemoscope check'"


def _describe_model(model: dict[str, Any]) -> str:
    """A model's shape in words; one of somebody's own by its kind and its fields."""
    if "kind" in model:
        return _describe_fields(model)
    return f"d{model['d_model']} h{model['n_heads']} L{model['n_layers']} {model['norm']}"


def _describe_fields(section: dict[str, Any]) -> str:
    """A kind and its fields, without those that would fill a screen."""
    words = [str(section["kind"])]
    for key, value in section.items():
        if value is None or key in ("kind", *FILLS_SCREENS):
            continue
        is_hash = key in ("sha256", "code")
        words.append(f"{key}={str(value)[:8] if is_hash else value}")
    return " ".join(words)


def check(repair: bool = False, retrain: int = 0, store: StoreDir = DEFAULT_STORE) -> None:
    """Verify every stored run, finding and ledger against its checksum, and say what is damaged.

    Args:
        repair: Train damaged runs again and then replace them; delete damaged findings and
            ledgers, which the next 'mnemoscope run' makes again.
        retrain: Also train so many stored seeds again, chosen at random, and compare: to the bit
            with what the same kind of CPU trained; on other devices the start to 1e-5 and the
            first loss to 1e-3, since later numbers drift apart.
    """
    if retrain < 0:
        raise UserError(f"--retrain must be a number of seeds from 0 up, got {retrain}")
    opened = open_store_there(store)
    found = opened.check()
    _print_damage(opened, found)
    _print_orphans(opened)
    damaged = [damage for damage in found if damage.damaged]
    if damaged and not repair:
        raise UserError(
            f"{len(damaged)} damaged; 'mnemoscope check --repair' trains their runs again and "
            "deletes the rest"
        )
    if damaged:
        _repair(opened, damaged)
    n_unreadable = len(found) - len(damaged)
    if n_unreadable:
        raise UserError(
            f"{n_unreadable} cannot be read, which does not make them damaged: no repair touches "
            "them; ask whoever owns the files, or look at the disk"
        )
    if retrain:
        _retrain(opened, retrain)


def _print_damage(store: "Store", found: "list[Damage]") -> None:
    """A line for everything that is not, or may not be, what was written."""
    for damage in found:
        how = "damaged" if damage.damaged else "cannot be read:"
        # as an error's message: a damaged name may hold codes that a terminal would obey
        print(str(UserError(f"{how} {damage.kind} {damage.name[:60]}: {damage.why}")))
    if not found:
        n_runs = counted(len(store.rows()), "run")
        print(
            f"nothing is damaged: {n_runs} and all findings and ledgers in {store.folder} are as "
            "they were written"
        )


def _print_orphans(store: "Store") -> None:
    """A line for files among the runs that the index does not know: nothing reads them."""
    found = store.orphans()
    if not found:
        return
    size = sum((store.folder / name).lstat().st_size for name in found)
    named = ", ".join(found[:FEW])
    more = f" and {len(found) - FEW} more" if len(found) > FEW else ""
    # as an error's message: a name may hold codes that a terminal would obey
    print(
        str(
            UserError(
                f"{counted(len(found), 'file')} that the index does not know "
                f"({size / 1e6:.1f} MB), left by what was cut off or by an index that is no "
                f"longer there; nothing reads them, and they may be deleted: {named}{more}"
            )
        )
    )


def _repair(store: "Store", damaged: "list[Damage]") -> None:
    """Delete damaged findings and ledgers, then train damaged runs again."""
    from mnemoscope.execution.machine import compile_cache_dir, use_all_devices

    use_all_devices(cache=compile_cache_dir())
    rows = {row.id: row for row in store.rows()}
    files = [damage for damage in damaged if damage.kind != "run"]
    for damage in files:
        store.forget(damage)
    for damage in damaged:
        if damage.kind == "run":
            _repair_run(store, damage, rows[damage.name])
    if files:
        made_again = counted(len(files), "finding or file", "findings and files")
        print(as_typed(f"repaired; the next 'mnemoscope run' makes {made_again} again"))
    else:
        print("repaired")


def _repair_run(store: "Store", damage: "Damage", row: "RunRow") -> None:
    """Train a damaged run again; one that cannot be trained from its row is deleted."""
    from mnemoscope.core.working import Working
    from mnemoscope.execution.local import train_again
    from mnemoscope.training.spec import Spec

    try:
        spec = Spec.model_validate_json(row.spec_json)
    except ValueError as error:
        if row.intact:  # as it was written, so it is the kind that is missing
            print(
                str(
                    UserError(
                        f"run {row.id} is damaged and of a kind that is unknown here, so it "
                        f"stays as it is: {error}"
                    )
                )
            )
            return
        spec = None
    seeds_fit = 0 <= row.first <= row.last < row.first + MAX_SEEDS
    if spec is None or spec.digest() != row.spec or not seeds_fit:
        store.forget(damage)
        print(
            as_typed(
                f"run {row.id} was deleted; its row is damaged too, so the next 'mnemoscope run' "
                "of its study trains it"
            )
        )
        return
    if spec.imported:
        store.forget(damage)
        print(
            as_typed(
                f"run {row.id} was deleted; it was imported, so only its folder can bring it "
                "back: mnemoscope import"
            )
        )
        return
    with Working(make_console(stderr=True), f"training {row.id}") as working:
        # what is damaged stays known as that until it is replaced
        train_again(store, row, working.trained)
    print(f"run {row.id} was trained again")


def _retrain(store: "Store", n_seeds: int) -> None:
    """Train stored seeds again, chosen at random, and compare what comes out."""
    from mnemoscope.core.working import Working
    from mnemoscope.execution.machine import compile_cache_dir, use_all_devices
    from mnemoscope.execution.retrain import choose_seeds, retrain_seed

    use_all_devices(cache=compile_cache_dir())
    chosen, left_out = choose_seeds(store, n_seeds)
    if left_out:
        print(
            f"{counted(left_out, 'stored seed')} not compared: trained by another program, or "
            "imported"
        )
    if not chosen:
        raise UserError(
            "no stored seed was trained by this program, so there is nothing to compare"
        )
    n_different = 0
    for row, seed in chosen:
        name = f"run {row.id}, seed {seed}"
        with Working(make_console(stderr=True), f"training {name}") as working:
            found = retrain_seed(store, row, seed, working.trained)
        if not found.same:
            n_different += 1
        print(f"{'same' if found.same else 'OTHER NUMBERS'}: {name}: {found.words}")
    if n_different:
        raise UserError(
            f"{n_different} of {len(chosen)} seeds trained to other numbers than those stored: "
            "these runs cannot be reproduced here"
        )
