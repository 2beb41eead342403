"""Multi-query associative recall, and two closed-form readers of it.

After Arora et al., "Zoology" (arXiv 2312.04927), whose generator it follows, drawn online. It
imports nothing but what is public.
"""

from mqar.readers import guess_from_row, guess_value
from mqar.recall import MultiQueryRecall

__all__ = ["MultiQueryRecall", "guess_from_row", "guess_value"]
