"""The walk study: a model small enough to be followed number by number.

And the arithmetic that the paper prints about it.
"""
