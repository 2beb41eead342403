"""The site: an overview with the ledger, a page for each study, the walk and the explorer.

Nothing trains here. Pages are made of ledgers, stored runs and the words of each study; the same
input gives the same bytes. They are opened from the disk and need no network, and no JavaScript but
for filtering, sorting and the explorer.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mnemoscope.core.theme import VERDICTS, css_variables
from mnemoscope.execution.local import load_or_train
from mnemoscope.explorer import ExplorerRun, build_page, pack_run
from mnemoscope.report import results
from mnemoscope.report.figures import claim_figures, svg
from mnemoscope.report.output import writing
from mnemoscope.report.walk import page as walk_page
from mnemoscope.store import Store
from mnemoscope.studies.claims import Claim, Ledger, Plots, Study
from mnemoscope.studies.discover import STUDIES
from mnemoscope.studies.library.walk import published
from mnemoscope.studies.library.walk.chosen import Chosen, title, walked
from mnemoscope.studies.library.walk.conditions import ABC
from mnemoscope.studies.presentation import load_page, load_panels
from mnemoscope.studies.scales import SCALES
from mnemoscope.training.run import Run

SHOWN_SCALES = tuple(reversed(SCALES))  # what full scale found comes first
# seeds of a condition that the site's explorer carries with all snapshots: most of the site's bytes
CARRIED = 2


def write_site(out: Path, store: Store, tell: Callable[[str], None] = lambda _: None) -> list[Path]:
    """Write every page into a folder and say which."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(
        loader=PackageLoader("mnemoscope.report", "site"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    folder = store.folder
    all_books = {name: results.ledgers(folder, name) for name in STUDIES}
    written: list[Path] = []

    def write(name: str, text: str) -> None:
        path = out / name
        with writing(path):
            out.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        written.append(path)

    shown = pieces(store)
    walks = [piece for piece in shown if piece.name == f"walk: {ABC}"]
    common = {
        "explorer": bool(shown),
        "walk": bool(walks),
        "studies": STUDIES,
        "scales": SHOWN_SCALES,
        "verdicts": list(VERDICTS),
        "colors": css_variables(),
    }
    rows = [
        _row(study, test.claim, all_books[study.name])
        for study in STUDIES.values()
        for test in study.tests
    ]
    counts = {
        name: {scale: Counter(e.verdict for e in book.claims) for scale, book in found.items()}
        for name, found in all_books.items()
    }
    write(
        "index.html",
        templates.get_template("index.html").render(
            rows=rows, books=all_books, counts=counts, **common
        ),
    )
    for study in STUDIES.values():
        tell(f"the page of {study.name}")
        page = templates.get_template("study.html").render(
            study=study,
            words=load_page(study.name),
            rows=_with_figures(study, folder, all_books[study.name]),
            books=all_books[study.name],
            counts=counts[study.name],
            statements=[*published.inputs(), *published.readings()] if study.name == "walk" else [],
            **common,
        )
        write(f"{study.name}.html", page)
    if walks:
        tell("the walk")
        model = Chosen("the ABC model", walks[0].run, walks[0].carried[0], -1)
        found = walked(model, None)
        write("walk-through.html", walk_page(found, title(model, found), 4, back="index.html"))
    if shown:
        tell("the explorer")
        write(
            "explorer.html",
            build_page([pack_run(piece, store) for piece in shown], back="index.html"),
        )
    return written


def pieces(store: Store) -> list[ExplorerRun]:
    """What the site's explorer carries: each study's chosen quick runs, where they are stored."""
    found = []
    for study in STUDIES.values():
        conditions = study.conditions("quick")
        for name in study.explore:
            condition = conditions[name]
            seeds = range(condition.seeds)
            if not store.blocks(condition.spec, seeds)[
                1
            ]:  # all seeds are stored, so nothing trains
                run = load_or_train(store, condition.spec, seeds)
                found += [piece_of(run, f"{study.name}: {name}")] if run.finished.any() else []
    return found


def piece_of(run: Run, name: str, seeds: tuple[int, ...] = ()) -> ExplorerRun:
    """A stored run for the explorer, with as many seeds as the site carries."""
    spec = run.spec
    model = spec.model
    parts = [
        f"d={model.d_model}",
        f"{model.n_heads} head{'s' * (model.n_heads > 1)}",
        f"{model.n_layers} layer{'s' * (model.n_layers > 1)}",
        f"feed-forward {model.d_mlp}" if model.d_mlp else "no feed-forward",
        f"norm {model.norm}",
    ]
    task = ", ".join(
        f"{k} {v}"
        for k, v in spec.task.model_dump(exclude_none=True, exclude={"kind", "corpus"}).items()
    )
    made = (
        "imported, not trained here"
        if spec.imported
        else f"{spec.steps:,} steps of {spec.batch} sequences"
    )
    text = f"{', '.join(parts)}; {spec.task.kind}: {task}; {made}."
    finished = tuple(seed for seed in run.seeds if run.outcome(seed) == "finished")
    return ExplorerRun(spec.digest(), name, text, run, seeds or finished[:CARRIED] or run.seeds[:1])


def _row(study: Study, claim: Claim, found: dict[Any, Ledger]) -> dict[str, Any]:
    """One claim for the pages: what is claimed, and what each scale found."""
    entries = {
        scale: next((e for e in book.claims if e.id == claim.id), None)
        for scale, book in found.items()
    }
    shown = [
        {"scale": scale, "entry": entry, "number": entry.number(), "figures": []}
        for scale in SHOWN_SCALES
        if (entry := entries.get(scale))
    ]
    return {
        "study": study.name,
        "claim": claim,
        "found": shown,
        "verdict": shown[0]["entry"].verdict if shown else "none",
    }


def _with_figures(study: Study, folder: Path, found: dict[Any, Ledger]) -> list[dict[str, Any]]:
    """The study's claims, each with its figure for every scale that has seeds to show."""
    drawn = load_panels(study.name)
    seeds = {scale: results.evidence(folder, study.name, scale) for scale in found}
    plots = {scale: results.read_plots(folder, study.name, scale) for scale in found}
    rows = [_row(study, test.claim, found) for test in study.tests]
    for row in rows:
        claim: Claim = row["claim"]
        for n, part in enumerate(row["found"]):
            at, sentence = part["scale"], part["entry"].sentence
            by_seed = seeds[at].get(claim.id, {})
            if n and not by_seed:
                continue  # what is exact is drawn once
            figures = claim_figures(
                claim.id, drawn.get(claim.id, ()), by_seed, plots[at].get(claim.id, Plots())
            )
            labels = {kind: f"{claim.id} at {at} scale, {kind}: {sentence}" for kind in figures}
            part["figures"] = [
                svg(each, f"{claim.id}-{at}-{kind}", labels[kind]) for kind, each in figures.items()
            ]
    return rows
