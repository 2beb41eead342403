"""What must not happen while a door is tried, and what watches for it."""

import os
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from mnemoscope.core.errors import UserError
from mnemoscope.execution import machine

LONGEST = 4000  # characters of a refusal


class Offense(Exception):  # noqa: N818 - it is the word for it here
    """Something that must not be, other than an exception of the product's own."""


def must(holds: bool, what: str) -> None:
    """Say what is wrong."""
    if not holds:
        raise Offense(what)


class Watch:
    """What Python does while a door is tried: files opened, made and removed, programs started,
    objects unpickled.
    """

    def __init__(self) -> None:
        self.room: Path | None = None
        self.seen: list[str] = []

    def hook(self, event: str, args: tuple[Any, ...]) -> None:
        """Python's audit hook; it cannot be taken off, so it looks away when no door is tried."""
        if self.room is None:
            return
        if event in (
            "pickle.find_class",
            "subprocess.Popen",
            "os.system",
            "os.exec",
            "os.posix_spawn",
        ):
            self.seen.append(f"{event} {args[:2]}")
        paths = args[:2] if event in ("os.rename", "os.link", "os.symlink") else args[:1]
        if event == "open" and args:
            writes = bool((args[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))
        elif event in (
            "os.remove",
            "os.rmdir",
            "os.mkdir",
            "os.rename",
            "os.link",
            "os.symlink",
            "os.truncate",
            "sqlite3.connect",
        ):
            writes = True
        else:
            return
        for path in paths:
            if not isinstance(path, str | bytes | os.PathLike):
                continue
            place = os.path.realpath(os.fsdecode(path))
            inside = Path(place).is_relative_to(self.room) or Path(place).is_relative_to(
                machine.compile_cache_dir().resolve()
            )
            secret = place.startswith((str(self.room.parent / "outside"), "/etc/passwd"))
            if secret or (writes and not inside and not place.startswith("/dev/")):
                self.seen.append(f"{event} {place}")


WATCH = Watch()
sys.addaudithook(WATCH.hook)


class Reader(HTMLParser):
    """Whether a page holds a tag or an attribute that only a hostile name can have brought."""

    hostile = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "fuzz" or any(name.startswith("onfuzz") for name, _ in attrs):
            self.hostile = self.get_starttag_text() or tag


def plain(page: str) -> None:
    """A page has no markup from a name."""
    reader = Reader()
    reader.feed(page)
    must(not reader.hostile, f"markup from a file in a page: {reader.hostile}")


def one_line(error: UserError) -> None:
    """A refusal is one line, not without an end, and can be written down."""
    text = str(error)
    must(bool(text.strip()), "the refusal says nothing")
    must(
        len(text.splitlines()) == 1 and "\x1b" not in text,
        f"the refusal is no line: {text[:300]!r}",
    )
    must(len(text) <= LONGEST, f"the refusal has {len(text)} characters")
