"""The code that trains in the explorer's page, run by Node: modules joined as the page joins them
for a worker, and a script that uses them."""

import base64
import json
import shutil
import subprocess
from pathlib import Path

import pytest

import mnemoscope

STATIC = Path(mnemoscope.__file__).parent / "explorer" / "static"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="no Node on this machine: nothing was run")

JOIN = """
import fs from "node:fs";
const { script, entries, folder, names, given, doubles } = JSON.parse(fs.readFileSync(0, "utf8"));
const load = (text) =>
    import(`data:text/javascript;base64,${Buffer.from(text).toString("base64")}`);
const read = (name) => fs.readFileSync(`${folder}/${name}`, "utf8");
const { joinModules } = await load(read("worker_text.js"));
const known = new Set();
const joined = entries.map((entry) => joinModules(entry, read, known)).join("");
const text = doubles ? joined.replaceAll("Float32Array", "Float64Array") : joined;
const code = await load(`${text}\\nexport { ${names.join(", ")} };`);
const run = new Function("code", "given", script);
const found = run(code, given);
console.log(JSON.stringify(found));
"""


def run_page_code(entries, names, script, given, doubles=False):
    """What a script returns that uses some names of modules, as `code`, and what it is given.

    doubles: compute in float64, so that formulas can be compared and not their rounding.
    """
    task = {
        "script": script,
        "entries": entries.split(),
        "folder": str(STATIC),
        "names": names,
        "given": given,
        "doubles": doubles,
    }
    done = subprocess.run(
        [NODE, "--input-type=module", "-e", JOIN],
        input=json.dumps(task),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def decode(text):
    """Bytes that a script returned in base64."""
    return base64.b64decode(text)
