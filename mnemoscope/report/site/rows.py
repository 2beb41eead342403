"""Claims as the pages show them: what is claimed, what each scale found, and the figures of it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mnemoscope.report.claim_figures import claim_figures, load_drawings, svg
from mnemoscope.studies.ledger_files import find_folder, read_all_series, read_plots
from mnemoscope.studies.plot_data import Plots
from mnemoscope.studies.presentation import load_panels
from mnemoscope.studies.scales import LARGEST_FIRST, Scale
from mnemoscope.studies.study import Study
from mnemoscope.verdicts.claim import Claim
from mnemoscope.verdicts.ledger import Ledger
from mnemoscope.verdicts.record import Series


def claim_row(study: Study, claim: Claim, ledgers: Mapping[Scale, Ledger]) -> dict[str, Any]:
    """One claim for the pages: what is claimed, and what each scale found.

    Args:
        study: Whose claim it is.
        claim: The claim.
        ledgers: Of the study, by scale.
    """
    found = []
    for scale in LARGEST_FIRST:
        claims = ledgers[scale].claims if scale in ledgers else ()
        entry = next((each for each in claims if each.id == claim.id), None)
        if entry:
            found.append(
                {
                    "scale": scale,
                    "entry": entry,
                    "number": entry.number(),
                    "old": ledgers[scale].format == 1,
                    "figures": [],
                }
            )
    return {
        "study": study.name,
        "claim": claim,
        "found": found,
        "verdict": found[0]["entry"].verdict if found else "none",
    }


def rows_with_figures(
    study: Study, store: Path, ledgers: Mapping[Scale, Ledger]
) -> list[dict[str, Any]]:
    """The study's claims, each with its figures for every scale that has seeds to show.

    Args:
        study: Whose claims they are.
        store: The user's folder.
        ledgers: Of the study, by scale.
    """
    panels = load_panels(study)
    drawings = load_drawings(study)
    folders = {scale: find_folder(store, study.name, scale) for scale in ledgers}
    series = {scale: read_all_series(each, study.name) for scale, each in folders.items()}
    plots = {scale: read_plots(each, study.name) for scale, each in folders.items()}
    rows = [claim_row(study, test.claim, ledgers) for test in study.tests]
    for row in rows:
        claim = row["claim"].id
        for n, part in enumerate(row["found"]):
            scale = part["scale"]
            seeds = series[scale].get(claim, Series()).by_seed
            if n and not seeds:
                continue  # what is exact is drawn once
            figures = claim_figures(
                panels.get(claim, ()),
                seeds,
                plots[scale].get(claim, Plots()),
                drawings.get(claim),
            )
            for kind, figure in figures.items():
                label = f"{claim} at {scale} scale, {kind}: {part['entry'].sentence}"
                part["figures"].append(svg(figure, f"{claim}-{scale}-{kind}", label))
    return rows
