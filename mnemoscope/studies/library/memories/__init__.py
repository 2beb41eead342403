"""The memories study: what a matrix can store, and how it gets there.

What one gradient writes into it, and what an optimizer makes of it.
"""
