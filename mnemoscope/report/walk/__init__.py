"""A walk for eyes: as plain text, Markdown, a page, LaTeX and PDF, all made of the same cells."""

from collections.abc import Callable

from mnemoscope.probes.walk import Walk
from mnemoscope.report.walk.latex import render_latex, write_pdf
from mnemoscope.report.walk.page import render_page
from mnemoscope.report.walk.text import render_markdown, render_text

FORMATS: dict[str, Callable[[Walk, str, int], str]] = {
    "text": render_text,
    "md": render_markdown,
    "html": render_page,
    "latex": render_latex,
}

__all__ = [
    "FORMATS",
    "render_latex",
    "render_markdown",
    "render_page",
    "render_text",
    "write_pdf",
]
