"""Which results there are to show: the user's own ledgers in the store, and the full-scale ones that come with Mnemoscope."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from mnemoscope.config import UserError, parsed, short
from mnemoscope.studies.claims import SCALES, Ledger, Pictures, Scale, Series

T = TypeVar("T")


def published() -> Path:
    """The full-scale results that come with Mnemoscope: inside an installed package, or beside it in a clone."""
    home = Path(__file__).parent.parent
    return next((p for p in (home / "results", home.parent / "results") if p.is_dir()), home / "results")


def _folder(store: Path, study: str, scale: Scale) -> Path | None:
    """The user's own results come first."""
    places = (store / "ledger" / scale, published() / scale)
    return next((place for place in places if (place / f"{study}.json").is_file()), None)


def ledger(store: Path, study: str, scale: Scale) -> Ledger | None:
    """A study's ledger at a scale, if there is one."""
    folder = _folder(store, study, scale)
    if folder is None:
        return None
    found = _read(folder / f"{study}.json", Ledger.model_validate_json)
    if (found.study, found.scale) != (study, scale):
        raise UserError(f"{str(folder / study)!r} is the {found.scale} ledger of {short(found.study)}")
    return found


def _read(path: Path, read: Callable[[str], T]) -> T:
    """What a file says, or one line with its name."""
    try:
        return read(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{str(path)!r} cannot be read: {error}; move it away, and 'mnemoscope run' makes it again"
        ) from None


def _beside(store: Path, study: str, scale: Scale, part: str, read: Callable[[object], T]) -> dict[str, T]:
    """What stands beside the ledger, by claim, from the same place."""
    folder = _folder(store, study, scale)
    path = folder and folder / f"{study}.{part}.json"
    if not path or not path.is_file():
        return {}
    return _read(path, lambda text: {name: read(each) for name, each in parsed(text, "it").items()})


def evidence(store: Path, study: str, scale: Scale) -> dict[str, dict[str, tuple[float, ...]]]:
    """Each seed's outcome by claim."""
    return _beside(store, study, scale, "evidence", lambda each: Series.model_validate({"by_seed": each}).by_seed)


def pictures(store: Path, study: str, scale: Scale) -> dict[str, Pictures]:
    """Curves, attention maps and grids by claim, for the claims that have any."""
    return _beside(store, study, scale, "pictures", Pictures.model_validate)


def ledgers(store: Path, study: str) -> dict[Scale, Ledger]:
    """The ledgers of a study that there are, by scale."""
    return {scale: found for scale in SCALES if (found := ledger(store, study, scale))}
