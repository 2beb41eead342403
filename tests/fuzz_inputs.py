"""Hostile values and texts, and good documents bent by them."""

import json
import struct
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

MARKUP = (
    "<fuzz>",
    "</script><fuzz>",
    '"onfuzz="x',
    "'><fuzz onfuzz=1>",
    "<!--<fuzz>",
    "]]><fuzz>",
    "</title></style><fuzz>",
)
PATHS = (
    "../../outside/canary",
    "../outside/canary",
    "/etc/passwd",
    "..",
    "a/../../../outside/canary",
    "~/x",
    "con",
    "\x00",
)
TEXTS = (
    *MARKUP,
    *PATHS,
    "",
    "\n",
    "a\nb",
    "[/]",
    "[bold]",
    "$x$",
    "$\\frac{$",
    "%s{0}",
    "\ud800",
    "\u202e",
    "e\u0301" * 9,
    "x" * 999,
    "self",
    "kind",
    "__class__",
    "*" * 40,
    "[a",
    "NaN",
    "\x1b[31m",
    "0",
    "-1",
    "\u0661",
)
NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    0.5,
    -0.5,
    1e-300,
    1e308,
    -1e308,
    1e400,
    -1e400,
    float("nan"),
    10**9,
    10**12,
    10**30,
    -(10**30),
    2**31,
    2**63,
    2**64,
    10**400,
    True,
    False,
    None,
)


def deep(n: int) -> Any:
    """A list in a list in a list."""
    found: Any = []
    for _ in range(n):
        found = [found]
    return found


VALUES = st.one_of(
    st.sampled_from(TEXTS),
    st.sampled_from(NUMBERS),
    st.text(max_size=12),
    st.integers(),
    st.floats(),
    st.sampled_from(
        ("[]", "{}", "[[]]", "[1, 2]", '{"kind": "cycle"}', '{"self": 1}', '["a", 1]')
    ).map(json.loads),
    st.just("deep"),
)


def written(text: str) -> str:
    """JSON with its mark for nesting carried out: deeper than Python's own reader goes."""
    return text.replace('"deep"', "[" * 3000 + "]" * 3000)


def spots(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value inside a document, and to the document itself."""
    yield path
    for key, inner in (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    ):
        yield from spots(inner, (*path, key))


def set_at(document: Any, path: tuple[Any, ...], change: Callable[[Any, Any], Any]) -> Any:
    """The document after change(container, key) at a spot; at its root,
    what change makes of [document] and 0.
    """
    around = [document]
    inner, key = around, 0
    for step in path:
        inner, key = inner[key], step
    change(inner, key)
    return around[0] if around else None


@st.composite
def bent(draw: Any, documents: dict[str, Any]) -> tuple[str, str]:
    """One of these JSON documents with a few values replaced, left out, added or renamed,
    and now and then its text cut about.
    """
    name = draw(st.sampled_from(sorted(documents)))
    document = deepcopy(documents[name])
    for _ in range(draw(st.integers(1, 3))):
        spot = draw(st.sampled_from(list(spots(document))))
        kind, value = (
            draw(st.sampled_from(("put", "put", "put", "drop", "add", "rename", "again"))),
            draw(VALUES),
        )

        def change(inner: Any, key: Any, kind: str = kind, value: Any = value) -> None:
            if kind == "put":
                inner[key] = value
            elif kind == "drop":
                del inner[key]
            elif kind == "again" and isinstance(inner, list):
                inner.append(deepcopy(inner[key]))
            elif kind == "rename" and isinstance(inner, dict):
                inner[str(value)] = inner.pop(key)
            elif isinstance(inner[key], dict):
                inner[key][str(value)] = value

        document = set_at(document, spot, change)
    text = json.dumps(document, ensure_ascii=draw(st.booleans()))
    if draw(st.integers(0, 9)) == 0:
        at = draw(st.integers(0, len(text)))
        instead = draw(st.sampled_from(("", "\x00", "]", "}", '"', ",", "1e999", "\ufeff")))
        text = text[:at] + instead + text[at + draw(st.integers(0, 9)) :]
    return name, text


AT = st.one_of(st.integers(0, 400), st.integers(0, 2**20))
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("flip"), AT, st.integers(0, 7)),
        st.tuples(st.just("put"), AT, st.binary(min_size=1, max_size=8)),
        st.tuples(
            st.just("put"),
            AT,
            st.sampled_from(
                [struct.pack("<Q", n) for n in (0, 2**20, 2**31, 2**40, 2**63, 2**64 - 1)]
            ),
        ),
        st.tuples(st.just("cut"), AT, st.just(0)),
        st.tuples(st.just("grow"), AT, st.binary(min_size=1, max_size=64)),
        st.tuples(st.just("lose"), AT, st.integers(1, 64)),
    ),
    min_size=1,
    max_size=4,
)


def mangled(data: bytes, changes: list[tuple[str, int, Any]]) -> bytes:
    """Bytes after these changes; places are counted round and round."""
    for kind, where, what in changes:
        at = where % max(1, len(data))
        if kind == "flip":
            data = data[:at] + bytes([data[at] ^ (1 << what)]) + data[at + 1 :] if data else data
        elif kind == "put":
            data = data[:at] + what + data[at + len(what) :]
        elif kind == "cut":
            data = data[:at]
        else:
            data = data[:at] + what + data[at:] if kind == "grow" else data[:at] + data[at + what :]
    return data
