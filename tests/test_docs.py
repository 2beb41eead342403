"""The pages that teach run as they are written, block by block, in an empty folder.

```python file=NAME       is written to a file       ```toml file=NAME    likewise
```python                 runs, in one process a page
```sh                     runs, line by line; what its lines begin with is on the path
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ("your_own_task.md", "your_own_claim.md", "your_own_model.md", "sweeps.md")
BLOCK = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(text):
    """Language, file name or nothing, and text of each block of a page."""
    return [(language, name, body) for language, name, body in BLOCK.findall(text)]


def script_of(page):
    """One Python program that does what a page says, in its order."""
    lines = ["import os, subprocess, sys", "sys.path.insert(0, os.getcwd())"]
    for language, name, body in blocks(page):
        if name:
            lines.append(f"os.makedirs(os.path.dirname({name!r}) or '.', exist_ok=True)")
            lines.append(f"open({name!r}, 'w').write({body!r})")
        elif language == "python":
            lines.append(body)
        elif language == "sh":
            for line in body.splitlines():
                lines.append(f"subprocess.run({line!r}, shell=True, check=True)")
    return "\n".join(lines)


def run_page(text, folder):
    """What a page prints; an AssertionError says what failed."""
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(DOCS.parent),
    }
    script = folder / "the_page.py"
    script.write_text(script_of(text))
    done = subprocess.run(
        [sys.executable, script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_a_block_that_fails_is_noticed(tmp_path):
    page = "```python file=a.py\nX = 2\n```\n\n```python\nimport a\nassert a.X == 3\n```\n"
    with pytest.raises(AssertionError, match=r"assert a\.X == 3"):
        run_page(page, tmp_path)
    printed = run_page(page.replace("3", "2") + "```sh\necho done\n```\n", tmp_path)
    assert printed == "done\n"
    with pytest.raises(AssertionError, match="returned non-zero exit status 7"):
        run_page("```sh\nexit 7\n```\n", tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES)
def test_a_page_runs_as_it_is_written(page, tmp_path):
    text = (DOCS / page).read_text()
    assert len(blocks(text)) >= 4
    run_page(text, tmp_path)
