"""The noise study: what distracts a model, and which part of it is distracted.

And what truncation does about it.
"""
