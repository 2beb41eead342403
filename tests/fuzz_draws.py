"""What is drawn for each door."""

import json
import random
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fuzz_doors import (
    cli_door,
    config_door,
    corpus_door,
    index_door,
    language_door,
    ledger_door,
    prompt_door,
    python_door,
    rows_door,
    tensors_door,
)
from fuzz_good import LLAMA, SPEC, TOKENIZER, configurations, good, papers
from fuzz_inputs import CHANGES, TEXTS, bent, deep
from hypothesis import strategies as st

from mnemoscope.cli import main as command_line
from mnemoscope.store import RunRow

GOOD = """
remember walk birth memories language all R1 W1 B1 R1,W3 quick full text md html
latex svg grid sgd adam True 0 1 -1 8 1e3 nan inf 99999999999999999999 0,1 1;2 CAB d_model=4
steps=x = @STORE @ROOM/new @ROOM/x.svg @ROOM/x.gif .. - -- -h
"""
WORDS = (
    *GOOD.split(),
    SPEC.digest(),
    SPEC.digest()[:4],
    "1 2",
    "\udcff",
    "@ROOM/\udcff.svg",
    "[/x]",
    "@ROOM/[/x]",
    "@ROOM/no/x.html",
)
NAMES = """
scale seeds claims corpus model store json delete prompt run seed snapshot format out digits
condition no-open d lr batch samples optimizer norm learned trace open x repair
"""
OPTIONS = [f"--{name}" for name in NAMES.split()]
# no program can be given a zero byte
NO_ZERO = st.text(st.characters(blacklist_characters="\x00"), max_size=12)


@st.composite
def arguments(draw: Any) -> list[str]:
    """A command with arguments of its own and of others', good and bad,
    that keeps out of the way of other folders.
    """
    command = draw(st.sampled_from([*command_line.all_commands(), draw(NO_ZERO)]))
    word = st.one_of(
        st.sampled_from(WORDS),
        st.sampled_from([t for t in TEXTS if "\x00" not in t and "/" not in t]),
        NO_ZERO,
    )
    parts = [draw(word) for _ in range(draw(st.integers(0, 1)))]
    for _ in range(draw(st.integers(0, 4))):
        parts += [draw(st.sampled_from(OPTIONS)), draw(word)][: draw(st.integers(1, 2))]
    return [command, *parts, *([] if draw(st.integers(0, 3)) == 0 else ["--store", "@STORE"])]


CELLS = st.one_of(
    st.sampled_from([t for t in TEXTS if "\ud800" not in t]),
    st.integers(-(2**63), 2**63 - 1),
    st.none(),
    st.floats(),
    st.binary(max_size=8),
    st.sampled_from((0, 1, 2, -1, 10**9, 2**62)),
)


@st.composite
def cells(draw: Any) -> tuple[str, int, dict[str, Any], bool, bool]:
    """Other values for a row of the index."""
    fields = {
        "runs": RunRow._fields[:-1],
        "findings": ("key", "body"),
        "files": ("name", "sha256", "before"),
    }
    table = draw(st.sampled_from(("runs", "runs", "runs", "findings", "files")))
    specs = bent({"s": json.loads(SPEC.canonical_json())})
    values = {}
    for name in draw(st.lists(st.sampled_from(fields[table]), min_size=1, max_size=3, unique=True)):
        spec = name == "spec_json" and draw(st.booleans())
        values[name] = draw(specs)[1] if spec else draw(CELLS)
    return (
        table,
        draw(st.integers(0, 9)),
        values,
        draw(st.integers(0, 3)) > 0,
        draw(st.integers(0, 2)) == 0,
    )


COUNTING = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c)"  # without an end
SQL = st.lists(
    st.sampled_from(
        f"""
DROP TABLE runs
DROP TABLE findings
DROP TABLE files
ALTER TABLE runs RENAME TO x
ALTER TABLE x RENAME TO findings
ALTER TABLE findings RENAME TO runs
ALTER TABLE files RENAME TO findings
ALTER TABLE runs DROP COLUMN machine
ALTER TABLE runs RENAME COLUMN spec TO spic
ALTER TABLE runs ADD COLUMN more TEXT
DELETE FROM runs
PRAGMA user_version=1
PRAGMA user_version=0
PRAGMA user_version=-7
CREATE VIEW runs AS SELECT 1
CREATE TABLE runs (spec)
CREATE VIEW files AS {COUNTING} SELECT x,x,x,x FROM c
CREATE VIEW runs AS {COUNTING} SELECT * FROM c,c,c,c,c,c,c,c,c,c,c,c
CREATE TRIGGER t AFTER DELETE ON runs BEGIN DELETE FROM findings; END
CREATE TABLE findings AS SELECT * FROM runs
CREATE TABLE more AS SELECT * FROM runs
CREATE TABLE files (a,b,c,d)
INSERT INTO files VALUES (1,2,3,4)
CREATE TABLE runs AS SELECT * FROM more
INSERT INTO runs SELECT * FROM more
UPDATE runs SET last = 9000000000000000000
UPDATE runs SET spec_json = replace(spec_json, 'steps', 'stepz')
VACUUM
PRAGMA page_size=512
PRAGMA encoding='UTF-16'
UPDATE runs SET file = '../../outside/canary'
UPDATE files SET name = '../../outside/canary'
""".strip().splitlines()
    ),
    min_size=1,
    max_size=4,
).map(";\n".join)
LETTERS = st.text(st.sampled_from("ABC 0123456789\n<é"), max_size=9)
PROMPTS = st.one_of(
    st.tuples(
        st.sampled_from(("bigrams", "cycle", "permutation", "facts", "tokenizer")),
        st.one_of(st.text(), LETTERS, st.sampled_from(TEXTS)),
    ),
    st.tuples(
        st.sampled_from(("language", "model")),
        st.one_of(
            st.lists(st.integers(-1, 12), max_size=20),
            st.lists(st.integers(0, 2), min_size=1, max_size=4),
            st.lists(st.integers(), max_size=3),
            st.lists(st.floats(), max_size=3),
            st.text(max_size=5),
            st.none(),
            st.just(deep(70)),
            st.lists(st.text(max_size=3), max_size=3),
            st.lists(st.lists(st.integers(0, 2), max_size=3), max_size=3),
        ),
    ),
)
CORPORA = st.one_of(
    st.binary(max_size=200),
    st.text().map(lambda t: t.encode(errors="surrogatepass")),
    st.text("ab\r\n<é🙂", max_size=60).map(str.encode),
    st.tuples(st.integers(0, 2**31), st.sampled_from((50, 500, 20000))).map(
        lambda pair: "".join(
            chr(random.Random(pair[0]).randrange(1, 0xD000) + i % 3) for i in range(pair[1])
        ).encode()
    ),
)


@cache
def _header() -> dict[str, Any]:
    name = next(name for name in good() if SPEC.digest() in name)
    size = struct.unpack("<Q", good()[name][:8])[0]
    return {"h": json.loads(good()[name][8 : 8 + size])}


class Door(NamedTuple):
    """What is drawn, who is asked, and how many of a thousand inputs it gets."""

    ask: Callable[[Any, Path], bool]
    inputs: Callable[[], Any]
    share: int


DOORS = {
    "config": Door(
        config_door, lambda: bent({n: body for n, (_, body) in configurations().items()}), 300
    ),
    "python": Door(
        python_door, lambda: bent({n: body for n, (_, body) in configurations().items()}), 100
    ),
    "cli": Door(cli_door, arguments, 40),
    "rows": Door(rows_door, cells, 15),
    "prompt": Door(prompt_door, lambda: PROMPTS, 250),
    "corpus": Door(corpus_door, lambda: CORPORA, 120),
    "tensors": Door(
        tensors_door,
        lambda: st.tuples(st.one_of(CHANGES, bent(_header()).map(lambda x: x[1])), st.booleans()),
        10,
    ),
    "language": Door(
        language_door,
        lambda: st.one_of(
            st.tuples(
                st.sampled_from(
                    (
                        "model.gguf",
                        "model.gguf",
                        "model.safetensors",
                        "config.json",
                        "tokenizer.json",
                    )
                ),
                CHANGES,
            ),
            bent({"config.json": LLAMA, "tokenizer.json": TOKENIZER}),
        ),
        110,
    ),
    "index": Door(index_door, lambda: st.one_of(CHANGES, SQL), 50),
    "ledger": Door(ledger_door, lambda: bent(papers()), 5),
}
