"""RESULTS.md is what docs/results.py writes from the published ledgers."""

import copy
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
    assert (HOME / "RESULTS.md").read_text("utf-8") == results.page(results.read_ledgers())


def test_another_verdict_or_value_is_another_page():
    published = results.read_ledgers()
    changed = copy.deepcopy(published)
    changed[0]["claims"][0]["verdict"] = "refuted"
    assert results.page(changed) != results.page(published)
    changed = copy.deepcopy(published)
    changed[-1]["claims"][-1]["interval"][0] -= 0.01
    assert results.page(changed) != results.page(published)


def test_every_published_study_and_claim_is_on_the_page():
    names = {path.stem for path in (HOME / "results" / "full").glob("*.json")}
    assert {name for name in names if "." not in name} == set(results.STUDIES)
    text = (HOME / "RESULTS.md").read_text("utf-8")
    for ledger in results.read_ledgers():
        for claim in ledger["claims"]:
            assert len(re.findall(rf"^\| {claim['id']} \|", text, re.MULTILINE)) == 1


def test_papers_are_those_that_are_cited():
    cited = (HOME / "CITATION.cff").read_text("utf-8")
    found = re.findall(r"abs/([0-9.]+)", " ".join(results.STUDIES.values()))
    assert len(found) == 5
    assert all(f"arXiv:{paper}" in cited for paper in found)
