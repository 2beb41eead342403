"""The site: an overview with the ledger, a page for each study, pages of their own, the explorer.

Nothing trains here. Pages are made of ledgers, stored runs, models that travel with the studies,
and the words of each; the same input gives the same bytes. They are opened from the disk and need
no network, and no JavaScript but for filtering, sorting and the explorer.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from mnemoscope.core.theme import VERDICTS, css_variables
from mnemoscope.explorer import build_page
from mnemoscope.explorer.featured import featured_runs, pack_all
from mnemoscope.explorer.shipped import shipped_runs
from mnemoscope.report.requested_files import writing
from mnemoscope.report.site.extra import ExtraPage, load_extra_pages, load_statements
from mnemoscope.report.site.rows import claim_row, rows_with_figures
from mnemoscope.store import Store
from mnemoscope.studies.discover import STUDIES, command_name
from mnemoscope.studies.ledger_files import file_stem, read_ledgers
from mnemoscope.studies.presentation import StudyPage, describe_conditions, load_page
from mnemoscope.studies.scales import ABOUT, LARGEST_FIRST
from mnemoscope.studies.study import Study
from mnemoscope.training.run import Run

if TYPE_CHECKING:
    from jinja2 import Environment


def write_site(
    out: Path,
    store: Store,
    tell: Callable[[str], None] = lambda _: None,
    studies: Mapping[str, Study] | None = None,
) -> list[Path]:
    """Write every page into a folder and say which.

    Args:
        out: The folder.
        store: Whose ledgers and runs are shown, besides the published ledgers.
        tell: Hears what is being written.
        studies: Those that have pages, by name; all if None.
    """
    studies = dict(STUDIES if studies is None else studies)
    ledgers = {name: read_ledgers(store.folder, name) for name in studies}
    featured = {name: featured_runs(study, store) for name, study in studies.items()}
    extra = _make_extra_pages(studies, featured, tell)
    tell("the explorer's models")
    explored = pack_all(studies, featured, store)
    counts = {
        name: {scale: Counter(e.verdict for e in each.claims) for scale, each in found.items()}
        for name, found in ledgers.items()
    }
    common = {
        # the address of each study's first model; a study without any has none
        "explorer": {
            name: f"explorer.html#{urlencode({'run': packed[0]['id']})}"
            for name, packed in explored.items()
        },
        "extra": list(extra),
        "studies": studies,
        "scales": LARGEST_FIRST,
        "about": ABOUT,
        "verdicts": list(VERDICTS),
        "colors": css_variables(),
    }
    templates = _load_templates()
    written: list[Path] = []

    def write(name: str, text: str) -> None:
        path = out / name
        with writing(path):
            out.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        written.append(path)

    rows = [
        claim_row(study, test.claim, ledgers[name])
        for name, study in studies.items()
        for test in study.tests
    ]
    ids = Counter(row["claim"].id for row in rows)
    for row in rows:  # two studies may call a claim the same
        claim = row["claim"].id
        row["anchor"] = claim if ids[claim] == 1 else f"{file_stem(row['study'])}-{claim}"
    words_of = {name: load_page(study) for name, study in studies.items()}
    figured: dict[str, list[dict[str, Any]]] = {}
    for name, study in studies.items():
        tell(f"the page of {name}")
        figured[name] = rows_with_figures(study, store.folder, ledgers[name])
    overview = templates.get_template("index.html").render(
        rows=rows, counts=counts, words=words_of, hero=_choose_hero(words_of, figured), **common
    )
    write("index.html", overview)
    for name, study in studies.items():
        words = words_of[name]
        page = templates.get_template("study.html").render(
            study=study,
            words=words,
            setup=words.setup or describe_conditions(study),
            rows=figured[name],
            ledgers=ledgers[name],
            counts=counts[name],
            statements=load_statements(study),
            **common,
        )
        write(f"{file_stem(name)}.html", page)
    for each, text in extra.items():
        write(each.file, text)
    if explored:
        tell("the explorer")
        packed = [run for runs in explored.values() for run in runs]
        write("explorer.html", build_page(packed, back="index.html"))
    return written


class Hero(NamedTuple):
    """The figure with which the overview opens."""

    study: str
    """The name of the study whose claim it is."""
    claim: str
    """The claim's id."""
    says: str
    """What is seen in it."""
    figure: str
    """An SVG."""


def _choose_hero(
    words: Mapping[str, StudyPage], rows: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Hero | None:
    """The first study's hero that has something to show, at the largest scale that was run."""
    for name, page in words.items():
        for row in rows[name]:
            if row["claim"].id != page.hero:
                continue
            figures = [figure for found in row["found"] for figure in found["figures"]]
            if figures:
                return Hero(name, page.hero, page.hero_says, figures[0])
    return None


def _load_templates() -> "Environment":
    """The pages with their gaps."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("mnemoscope.report", "site"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["file_stem"] = file_stem
    environment.filters["command_name"] = command_name
    return environment


def _make_extra_pages(
    studies: Mapping[str, Study],
    featured: dict[str, dict[str, Run]],
    tell: Callable[[str], None],
) -> dict[ExtraPage, str]:
    """The studies' own pages, those that have something to show."""
    made = {}
    for name, study in studies.items():
        for page in load_extra_pages(study):
            tell(page.title)
            text = page.make(shipped_runs(study) | featured[name])
            if text:
                made[page] = text
    return made
