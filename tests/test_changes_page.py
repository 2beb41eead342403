"""docs/since-0.1.md is what docs/changes.py writes from both ledgers and the criteria."""

import importlib.util
import re
from pathlib import Path

from mnemoscope.studies.discover import all_claims

HOME = Path(__file__).parents[1]
_spec = importlib.util.spec_from_file_location("changes_page", HOME / "docs" / "changes.py")
assert _spec is not None
assert _spec.loader is not None
changes = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(changes)


def test_the_page_is_what_the_script_writes():
    assert (HOME / "docs/since-0.1.md").read_text("utf-8") == changes.page()


def test_every_claim_has_a_row():
    text = changes.page()
    for claims in all_claims().values():
        for name in claims:
            assert len(re.findall(rf"^\| {name} \|", text, re.MULTILINE)) == 1
