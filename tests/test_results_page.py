"""RESULTS.md is what docs/results.py writes from the published ledgers."""

import importlib.util
import re
from pathlib import Path

HOME = Path(__file__).parents[1]
_spec = importlib.util.spec_from_file_location("results_page", HOME / "docs" / "results.py")
assert _spec is not None
assert _spec.loader is not None
results = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(results)


def test_the_page_is_what_the_script_writes():
    assert (HOME / "RESULTS.md").read_text("utf-8") == results.page(results.read_all())


def test_another_verdict_or_value_is_another_page():
    published = results.read_all()
    first = published[0].claims[0]
    for change in ({"verdict": "refuted"}, {"interval": (first.value - 0.01, first.value)}):
        changed = first.model_copy(update=change)
        claims = (changed, *published[0].claims[1:])
        other = [published[0].model_copy(update={"claims": claims}), *published[1:]]
        assert results.page(other) != results.page(published)


def test_every_published_study_and_claim_is_on_the_page():
    names = {path.stem for path in (HOME / "results" / "full").glob("*.json")}
    assert {name for name in names if "." not in name} == set(results.STUDIES)
    text = (HOME / "RESULTS.md").read_text("utf-8")
    for ledger in results.read_all():
        for entry in ledger.claims:
            assert len(re.findall(rf"^\| {entry.id} \|", text, re.MULTILINE)) == 1


def test_papers_are_those_that_are_cited():
    cited = (HOME / "CITATION.cff").read_text("utf-8")
    found = re.findall(r"abs/([0-9.]+)", " ".join(results.STUDIES.values()))
    assert len(found) == 5
    assert all(f"arXiv:{paper}" in cited for paper in found)
