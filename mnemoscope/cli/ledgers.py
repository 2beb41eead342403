"""The commands `ledger`, `show`, `compare` and `figure`: what has been found, printed and drawn."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from mnemoscope.cli.console import make_console
from mnemoscope.cli.options import DEFAULT_STORE, StoreDir
from mnemoscope.core.errors import UserError
from mnemoscope.studies.scales import Scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mnemoscope.studies.claims import Study


def ledger(
    study: Annotated[str, tyro.conf.Positional] = "all",
    /,
    scale: Scale = "quick",
    json_: Annotated[bool, tyro.conf.arg(name="json")] = False,
    store: StoreDir = DEFAULT_STORE,
) -> None:
    """Print what has been found: the ledger of a study, or of all.

    Args:
        study: The study's name, or "all".
        scale: quick: your own runs. full: yours, or else the one that comes with Mnemoscope.
        json_: Print the ledger as data (one object for a study, a list for all).
    """
    from mnemoscope.report.find_ledgers import ledger as read
    from mnemoscope.report.ledger_tables import print_ledger

    names = _study_names(study)
    books = [book for name in names if (book := read(store, name, scale))]
    if not books:
        raise UserError(
            f"no {scale} ledger of {', '.join(names)} in {str(store)!r}; make one with "
            f"'mnemoscope run {study} --scale {scale}'"
        )
    if json_:
        data = [book.model_dump(mode="json") for book in books]
        print(json.dumps(data if study == "all" else data[0], indent=1))
        return
    for book in books:
        print_ledger(make_console(), book)


def show(
    claim: Annotated[str, tyro.conf.Positional],
    /,
    scale: Scale | None = None,
    store: StoreDir = DEFAULT_STORE,
) -> None:
    """Show one claim: criterion, value, interval, sentence, and every seed's outcome.

    Args:
        claim: The claim's id ('mnemoscope list' has them).
        scale: quick or full; without it, every scale that has a verdict.
    """
    from mnemoscope.report.find_ledgers import evidence, ledgers
    from mnemoscope.report.ledger_tables import print_claim
    from mnemoscope.studies.discover import find_claim

    study, name = find_claim(claim)
    shown = False
    for at, book in ledgers(store, study.name).items():
        entry = next((entry for entry in book.claims if entry.id == name), None)
        if entry is None or scale not in (None, at):
            continue
        by_seed = evidence(store, study.name, at).get(name, {})
        print_claim(make_console(), book, entry, by_seed)
        shown = True
    if not shown:
        raise UserError(
            f"no verdict on {name} at the scale {scale or 'quick or full'}; make one with "
            f"'mnemoscope run {study.name} --claims {name} --scale {scale or 'quick'}'"
        )


def compare(
    study: Annotated[str, tyro.conf.Positional] = "all",
    /,
    scale: Scale = "full",
    other: Path | None = None,
    store: StoreDir = DEFAULT_STORE,
) -> None:
    """Put your own ledger beside another: does another machine or device come to the same verdicts?
    Exit code 1 if not.

    Args:
        study: The study's name, or "all" of which there are two ledgers.
        scale: The scale of both. full: yours, or else the one that comes with Mnemoscope.
        other: A folder with quick/STUDY.json or full/STUDY.json, such as another store's ledger/.
            Nothing: the results that come with Mnemoscope.
    """
    from mnemoscope.report.find_ledgers import folder_of, published

    other_folder = (other or published()) / scale
    own_folders: dict[str, Path] = {}
    for name in _study_names(study):
        own_folder = folder_of(store, name, scale)
        if own_folder is None or own_folder == other_folder:
            continue  # the published ledger is not put beside itself
        if (other_folder / f"{name}.json").is_file():
            own_folders[name] = own_folder
    if not own_folders:
        raise UserError(
            f"no two {scale} ledgers of {study}: one in {str(store / 'ledger' / scale)!r} and one "
            f"in {str(other_folder)!r}"
        )
    # every study is printed, also after one that differs
    agree = [
        _print_comparison(name, scale, own_folder, other_folder)
        for name, own_folder in own_folders.items()
    ]
    if not all(agree):
        sys.exit(1)


def _print_comparison(name: str, scale: Scale, own_folder: Path, other_folder: Path) -> bool:
    """Print two ledgers of a study side by side; whether all their verdicts are the same."""
    from mnemoscope.report.compare import pairs, print_pairs
    from mnemoscope.report.find_ledgers import evidence_in, ledger_in

    own = ledger_in(own_folder, name, scale)
    other = ledger_in(other_folder, name, scale)
    found = pairs(own, other, evidence_in(own_folder, name), evidence_in(other_folder, name))
    if not found:
        raise UserError(f"the two {scale} ledgers of {name} have no claim in common")
    print_pairs(make_console(), own, other, found)
    return all(pair.same for pair in found)


def figure(
    claim: Annotated[str, tyro.conf.Positional],
    /,
    out: Path | None = None,
    scale: Scale | None = None,
    store: StoreDir = DEFAULT_STORE,
) -> None:
    """Draw one claim: every seed of it, and its curves, attention maps and grids where there are
    any, each into a file.

    Args:
        claim: The claim's id ('mnemoscope list' has them).
        out: The file: .svg, .pdf or .png; further figures go beside it, as NAME-curves.svg.
            Nothing: the claim's id as .svg.
        scale: quick or full; without it full where there is one.
    """
    from mnemoscope.report.claim_figures import write_figure
    from mnemoscope.report.find_ledgers import ledgers
    from mnemoscope.studies.discover import find_claim

    study, name = find_claim(claim)
    judged_at = [
        at
        for at, book in ledgers(store, study.name).items()
        if any(entry.id == name for entry in book.claims)
    ]
    at = scale or ("full" if "full" in judged_at else "quick")
    drawn = _draw(study, name, at, store) if at in judged_at else {}
    if not drawn:
        raise UserError(
            f"nothing to draw for {name} at the scale {at}; make it with "
            f"'mnemoscope run {study.name} --claims {name} --scale {at}'"
        )
    first_path = out or Path(f"{name}.svg")
    for i, (kind, each) in enumerate(drawn.items()):
        path = first_path if i == 0 else first_path.with_stem(f"{first_path.stem}-{kind}")
        write_figure(each, path)
        print(f"Written: {path}")


def _draw(study: "Study", claim: str, scale: Scale, store: Path) -> "dict[str, Figure]":
    """The figures of a judged claim by kind, that of its seeds first."""
    from mnemoscope.report.claim_figures import claim_figures, load_drawings
    from mnemoscope.report.find_ledgers import evidence, read_plots
    from mnemoscope.studies.claims import Plots
    from mnemoscope.studies.presentation import load_panels

    by_seed = evidence(store, study.name, scale).get(claim, {})
    plots = read_plots(store, study.name, scale).get(claim, Plots())
    panels = load_panels(study).get(claim, ())
    return claim_figures(panels, by_seed, plots, load_drawings(study).get(claim))


def _study_names(study: str) -> list[str]:
    """The names of all studies, or of the one that is meant."""
    from mnemoscope.studies.discover import STUDIES, find_study

    return list(STUDIES) if study == "all" else [find_study(study).name]
