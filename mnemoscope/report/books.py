"""Which results there are to show: the user's own ledgers in the store, and the full-scale ones that come with Mnemoscope."""

import json
from pathlib import Path
from typing import Any

from mnemoscope.studies.claims import SCALES, Ledger, Pictures, Scale


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
    return folder and Ledger.model_validate_json((folder / f"{study}.json").read_text(encoding="utf-8"))


def _beside(store: Path, study: str, scale: Scale, part: str) -> dict[str, Any]:
    """What stands beside the ledger, by claim, from the same place."""
    folder = _folder(store, study, scale)
    path = folder and folder / f"{study}.{part}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path and path.is_file() else {}


def evidence(store: Path, study: str, scale: Scale) -> dict[str, Any]:
    """Each seed's outcome by claim."""
    return _beside(store, study, scale, "evidence")


def pictures(store: Path, study: str, scale: Scale) -> dict[str, Pictures]:
    """Curves, attention maps and grids by claim, for the claims that have any."""
    return {name: Pictures.model_validate(each) for name, each in _beside(store, study, scale, "pictures").items()}


def ledgers(store: Path, study: str) -> dict[Scale, Ledger]:
    """The ledgers of a study that there are, by scale."""
    return {scale: found for scale in SCALES if (found := ledger(store, study, scale))}
