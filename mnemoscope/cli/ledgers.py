"""The commands `ledger`, `show`, `compare`, `verify` and `figure`: what has been found."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from mnemoscope.cli.console import make_console
from mnemoscope.cli.options import DEFAULT_STORE, StoreDir
from mnemoscope.core.errors import UserError
from mnemoscope.studies.scales import Scale, pick_scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mnemoscope.report.compare import Pair, Results
    from mnemoscope.studies.study import Study


def ledger(
    study: Annotated[str, tyro.conf.Positional] = "all",
    /,
    scale: Scale = "quick",
    json_: Annotated[bool, tyro.conf.arg(name="json")] = False,
    store: StoreDir = DEFAULT_STORE,
) -> None:
    """Print what has been found: the ledger of a study, or of all.

    Args:
        study: The study's name or folder, or "all".
        scale: quick: your own runs. full: yours, or else the one that comes with Mnemoscope.
        json_: Print the ledger as data (one object for a study, a list for all).
    """
    from mnemoscope.report.ledger_tables import print_ledger
    from mnemoscope.studies.ledger_files import find_folder, read_ledger

    names = _study_names(study)
    read = [read_ledger(find_folder(store, name, scale), name, scale) for name in names]
    books = [book for book in read if book is not None]
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
    seeds: bool = False,
    store: StoreDir = DEFAULT_STORE,
) -> None:
    """Show one claim: criterion, value, interval, sentence, and how its seeds' outcomes are spread.

    Args:
        claim: The claim's id ('mnemoscope list' has them), in capitals or not; of a study by its
            folder ./my_study@ID.
        scale: quick or full; without it, every scale that has a verdict.
        seeds: Show every seed's outcome, one a line.
    """
    from mnemoscope.report.ledger_tables import print_claim
    from mnemoscope.studies.discover import command_name, find_claim
    from mnemoscope.studies.ledger_files import (
        find_folder,
        read_all_series,
        read_ledgers,
        read_records,
    )
    from mnemoscope.verdicts.planning import describe_what_would_decide
    from mnemoscope.verdicts.record import Series

    study, name = find_claim(claim)
    (test,) = study.pick((name,))
    shown = False
    for at, book in read_ledgers(store, study.name).items():
        entry = next((entry for entry in book.claims if entry.id == name), None)
        if entry is None or scale not in (None, at):
            continue
        folder = find_folder(store, study.name, at)
        by_seed = read_all_series(folder, study.name).get(name, Series()).by_seed
        record = read_records(folder, study.name).get(name)
        advice = describe_what_would_decide(test.claim, record) if record else ""
        print_claim(make_console(), book, entry, by_seed, advice, all_seeds=seeds)
        shown = True
    if not shown:
        asked = command_name(study.name)
        raise UserError(
            f"no verdict on {name} at the scale {scale or 'quick or full'}; make one with "
            f"'mnemoscope run {asked} --claims {name} --scale {scale or 'quick'}'"
        )


def compare(
    study: Annotated[str, tyro.conf.Positional] = "all",
    /,
    scale: Scale = "full",
    other: Path | None = None,
    store: StoreDir = DEFAULT_STORE,
) -> None:
    """Put your own ledger beside another: does another machine or device come to the same?
    Exit code 1 if verdicts at one scale differ.

    Args:
        study: The study's name or folder, or "all" of which there are two ledgers.
        scale: Of your own ledger. quick is put beside the published full results, whose training
            is longer; full beside the full ones.
        other: A folder with quick/STUDY.json or full/STUDY.json, such as another store's ledger/.
            Nothing: the results that come with Mnemoscope.
    """
    from mnemoscope.report.compare import count_answers
    from mnemoscope.studies.discover import STUDIES
    from mnemoscope.studies.ledger_files import file_stem, find_folder
    from mnemoscope.studies.published import published_folder

    other_scale = scale if other else "full"
    other_folder = (other or published_folder()) / other_scale
    own_folders: dict[str, Path] = {}
    for name in _study_names(study):
        own_folder = find_folder(store, name, scale)
        if own_folder is None or own_folder == other_folder:
            continue  # the published ledger is not put beside itself
        if (other_folder / f"{file_stem(name)}.json").is_file():
            own_folders[name] = own_folder
    if not own_folders:
        raise UserError(
            f"no two {scale} ledgers of {study}: one in {str(store / 'ledger' / scale)!r} and one "
            f"in {str(other_folder)!r}"
        )
    # every study is printed, also after one that differs
    found = {
        name: _print_comparison(
            STUDIES[name], _results(own, name, scale), _results(other_folder, name, other_scale)
        )
        for name, own in own_folders.items()
    }
    if scale != other_scale:
        n_claims = sum(len(STUDIES[name].tests) for name in found)
        every = [pair for pairs in found.values() for pair in pairs]
        print(f"In all: {count_answers(every, n_claims - len(every))}.")
    elif not all(pair.same for pairs in found.values() for pair in pairs):
        sys.exit(1)


def _results(folder: Path, study: str, scale: Scale) -> "Results":
    """A ledger with what lies beside it."""
    from mnemoscope.report.compare import Results
    from mnemoscope.studies.ledger_files import read_all_series, read_ledger, read_records

    ledger = read_ledger(folder, study, scale)
    assert ledger is not None
    return Results(ledger, read_records(folder, study), read_all_series(folder, study))


def _print_comparison(study: "Study", own: "Results", other: "Results") -> "list[Pair]":
    """Print two ledgers of a study side by side; the claims that both have."""
    from mnemoscope.report.compare import pair_entries, print_pairs

    claims = {test.claim.id: test.claim for test in study.tests}
    found = pair_entries(own, other, claims)
    if not found:
        raise UserError(
            f"the two {own.ledger.scale} ledgers of {study.name} have no claim in common"
        )
    print_pairs(make_console(), own.ledger, other.ledger, found)
    return found


def verify(
    folder: Annotated[Path | None, tyro.conf.Positional] = None,
    /,
    planted: int | None = None,
) -> None:
    """Derive every verdict again from its evidence and its criterion; exit code 1 if one differs.

    Nothing is trained, and nothing is measured again: a verdict, its value, its interval and its
    sentence must follow from the numbers in STUDY.evidence.json by the one rule.

    Args:
        folder: Has STUDY.json and STUDY.evidence.json, such as a store's ledger/ folder. Nothing:
            the results that come with Mnemoscope.
        planted: Instead, judge about so many claims whose truth is planted, and say how often the
            rule is wrong: 10000 take two minutes.
    """
    if planted is not None:
        _print_planted(planted)
        return
    from mnemoscope.studies.discover import all_claims
    from mnemoscope.studies.published import published_folder
    from mnemoscope.verdicts.verify import verify_folder

    checked = verify_folder(folder or published_folder(), all_claims())
    for each in checked:
        for difference in each.differences:
            print(f"{each.ledger.study} ({each.ledger.scale}), {difference}")
    n_differences = sum(len(each.differences) for each in checked)
    n_derived = sum(len(each.ledger.claims) - len(each.underivable) for each in checked)
    n_underivable = sum(len(each.underivable) for each in checked)
    print(f"{n_derived} verdicts derived again, {n_differences} differences.")
    if n_underivable:
        print(f"{n_underivable} verdicts of 0.1 cannot be derived: their evidence lacks numbers.")
    if n_differences:
        sys.exit(1)


def _print_planted(claims: int) -> None:
    """How often the rule is wrong about claims whose truth is known."""
    from rich.table import Table

    from mnemoscope.core.errors import short
    from mnemoscope.verdicts.simulate import UNITS, simulate_all

    if claims < 1:
        raise UserError(f"--planted must be at least 1, got {short(claims)}")
    console = make_console()
    with console.status("judging planted claims"):
        found = simulate_all(claims)
    table = Table("planted", title="share of wrong verdicts (of undecided ones)")
    for looking in found:
        table.add_column(f"{looking}, {UNITS[looking]}", justify="right")
    for rows in zip(*found.values(), strict=True):
        cells = [f"{row.share:.1%} ({row.undecided / row.trials:.0%})" for row in rows]
        table.add_row(rows[0].planted.name, *cells)
    console.print(table)
    for looking, rows in found.items():
        wrong = sum(row.wrong for row in rows)
        trials = sum(row.trials for row in rows)
        worst = max(rows, key=lambda row: row.share)
        print(
            f"looking {looking}: {wrong:,} of {trials:,} verdicts wrong; "
            f"most for {worst.planted.name}: {worst.share:.1%}"
        )


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
        claim: The claim's id ('mnemoscope list' has them), in capitals or not; of a study by its
            folder ./my_study@ID.
        out: The file: .svg, .pdf or .png; further figures go beside it, as NAME-curves.svg.
            Nothing: the claim's id as .svg.
        scale: quick or full; without it full where there is one.
    """
    from mnemoscope.report.claim_figures import write_figure
    from mnemoscope.studies.discover import command_name, find_claim
    from mnemoscope.studies.ledger_files import read_ledgers

    study, name = find_claim(claim)
    judged_at: list[Scale] = [
        at
        for at, book in read_ledgers(store, study.name).items()
        if any(entry.id == name for entry in book.claims)
    ]
    at = pick_scale(judged_at, scale)
    drawn = _draw(study, name, at, store) if at in judged_at else {}
    if not drawn:
        raise UserError(
            f"nothing to draw for {name} at the scale {at}; make it with "
            f"'mnemoscope run {command_name(study.name)} --claims {name} --scale {at}'"
        )
    first_path = out or Path(f"{name}.svg")
    for i, (kind, each) in enumerate(drawn.items()):
        path = first_path if i == 0 else first_path.with_stem(f"{first_path.stem}-{kind}")
        write_figure(each, path)
        print(f"Written: {path}")


def _draw(study: "Study", claim: str, scale: Scale, store: Path) -> "dict[str, Figure]":
    """The figures of a judged claim by kind, that of its seeds first."""
    from mnemoscope.report.claim_figures import claim_figures, load_drawings
    from mnemoscope.studies.ledger_files import find_folder, read_all_series, read_plots
    from mnemoscope.studies.plot_data import Plots
    from mnemoscope.studies.presentation import load_panels
    from mnemoscope.verdicts.record import Series

    folder = find_folder(store, study.name, scale)
    by_seed = read_all_series(folder, study.name).get(claim, Series()).by_seed
    plots = read_plots(folder, study.name).get(claim, Plots())
    panels = load_panels(study).get(claim, ())
    return claim_figures(panels, by_seed, plots, load_drawings(study).get(claim))


def _study_names(study: str) -> list[str]:
    """The names of all studies, or of the one that is meant."""
    from mnemoscope.studies.discover import STUDIES, find_study

    return list(STUDIES) if study == "all" else [find_study(study).name]
