"""Which results there are to show.

The user's own ledgers in the store, and the full-scale ones that come with Mnemoscope.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from mnemoscope.core.errors import UserError, parsed, short
from mnemoscope.core.legacy import PLOTS_FILE
from mnemoscope.store import integrity_error
from mnemoscope.studies.claims import Ledger, Plots, Scale, Series
from mnemoscope.studies.scales import SCALES

T = TypeVar("T")


def published() -> Path:
    """The full-scale results that come with Mnemoscope.

    They are inside an installed package, or beside it in a clone.
    """
    home = Path(__file__).parent.parent
    inside = home / "results"
    beside = home.parent / "results"
    return beside if beside.is_dir() and not inside.is_dir() else inside


def folder_of(store: Path, study: str, scale: Scale) -> Path | None:
    """Where a study's ledger is, if there is one; the user's own come first.

    Args:
        store: The user's folder.
        study: Its name.
        scale: At which it was run.
    """
    places = (store / "ledger" / scale, published() / scale)
    return next((place for place in places if (place / f"{study}.json").is_file()), None)


def ledger(store: Path, study: str, scale: Scale) -> Ledger | None:
    """A study's ledger at a scale, if there is one.

    Args:
        store: The user's folder.
        study: Its name.
        scale: At which it was run.
    """
    folder = folder_of(store, study, scale)
    return folder and ledger_in(folder, study, scale)


def ledger_in(folder: Path, study: str, scale: Scale) -> Ledger:
    """A study's ledger out of this folder.

    Args:
        folder: Where its file is.
        study: Its name.
        scale: At which it was run.
    """
    found = _read(folder / f"{study}.json", Ledger.model_validate_json)
    if (found.study, found.scale) != (study, scale):
        raise UserError(
            f"{str(folder / study)!r} is the {found.scale} ledger of {short(found.study)}"
        )
    return found


def _read(path: Path, read: Callable[[str], T]) -> T:
    """What a file says, or one line with its name. In a store it must be what was written there."""
    try:
        _check(path)
        return read(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{str(path)!r} cannot be read: {error}; "
            "move it away, and 'mnemoscope run' makes it again"
        ) from None


def _check(path: Path) -> None:
    """Where a ledger's file lies in a store, refuse one that is not what was written there."""
    scale = path.absolute().parent
    ledgers = scale.parent
    if ledgers.name == "ledger":
        why = integrity_error(ledgers.parent, f"ledger/{scale.name}/{path.name}")
        if why:
            raise ValueError(why)


def _beside(
    folder: Path | None, study: str, part: str, read: Callable[[object], T]
) -> dict[str, T]:
    """What stands beside the ledger, by claim, from the same place."""
    path = folder and folder / f"{study}.{part}.json"
    if not path or not path.is_file():
        return {}

    def by_claim(text: str) -> dict[str, T]:
        return {name: read(each) for name, each in parsed(text, "it").items()}

    return _read(path, by_claim)


def evidence(store: Path, study: str, scale: Scale) -> dict[str, dict[str, tuple[float, ...]]]:
    """Each seed's outcome by claim.

    Args:
        store: The user's folder.
        study: Its name.
        scale: At which it was run.
    """
    return evidence_in(folder_of(store, study, scale), study)


def evidence_in(folder: Path | None, study: str) -> dict[str, dict[str, tuple[float, ...]]]:
    """Each seed's outcome by claim, out of this folder."""

    def read(each: object) -> dict[str, tuple[float, ...]]:
        return Series.model_validate({"by_seed": each}).by_seed

    return _beside(folder, study, "evidence", read)


def read_plots(store: Path, study: str, scale: Scale) -> dict[str, Plots]:
    """Curves, attention maps and grids by claim, for the claims that have any.

    Args:
        store: The user's folder.
        study: Its name.
        scale: At which it was run.
    """
    return _beside(folder_of(store, study, scale), study, PLOTS_FILE, Plots.model_validate)


def ledgers(store: Path, study: str) -> dict[Scale, Ledger]:
    """The ledgers of a study that there are, by scale."""
    return {scale: found for scale in SCALES if (found := ledger(store, study, scale))}
