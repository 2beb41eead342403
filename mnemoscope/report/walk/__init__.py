"""A walk for eyes: as plain text, Markdown, a page, LaTeX and PDF, all made of the same cells."""

from collections.abc import Callable

from mnemoscope.probes.walk import Walk
from mnemoscope.report.walk.latex import latex, write_pdf
from mnemoscope.report.walk.page import page
from mnemoscope.report.walk.text import markdown, text

FORMATS: dict[str, Callable[[Walk, str, int], str]] = {
    "text": text,
    "md": markdown,
    "html": page,
    "latex": latex,
}

__all__ = ["FORMATS", "latex", "markdown", "page", "text", "write_pdf"]
