"""Errors inside somebody's own code, called while a program is compiled.

Most of them keep their own traceback, and get a note that says what was being done. What JAX says
in thirty lines about Python that asks for the value of a traced array is one line: where, and what
to use instead.
"""

import inspect
import linecache
import sys
import traceback
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax

from mnemoscope.core.errors import UserError, unknown

# what was asked for, and what to use instead, by JAX's error; the first that fits
TRACED: tuple[tuple[type[Exception], str, str], ...] = (
    (
        jax.errors.TracerBoolConversionError,
        "decides in Python (if, while, and, or) by the value of an array",
        "jnp.where, jax.lax.cond, & and |",
    ),
    (
        jax.errors.TracerArrayConversionError,
        "hands an array to NumPy",
        "jax.numpy in its place",
    ),
    (
        jax.errors.TracerIntegerConversionError,
        "uses the value of an array as a number of Python, such as an index or a length",
        "jnp.take or an index into a jax array, and lengths from fields",
    ),
    (
        jax.errors.NonConcreteBooleanIndexError,
        "picks entries by a mask, so that their number is unknown",
        "jnp.where(mask, x, 0)",
    ),
    (
        jax.errors.ConcretizationTypeError,
        "turns an array into a number of Python (int, float, range, a shape)",
        "jax.numpy, and lengths from fields",
    ),
)
LIBRARIES = ("jax", "jaxlib", "jaxtyping", "beartype", "numpy", "optax", "pydantic", "mnemoscope")


@contextmanager
def calling(what: str, parameters: Collection[str] = ()) -> Generator[None]:
    """While somebody's own code runs: say what it was for if it raises.

    Args:
        what: whose code, and which: `task 'copy-back': sample`.
        parameters: the names by which it finds parameters, if it gets any.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        place = place_of(error)
        name = error.args[0] if isinstance(error, KeyError) and error.args else None
        if parameters and isinstance(name, str) and name not in parameters:
            asked = unknown(f"parameter in {what}", name, parameters)
            raise UserError(f"{asked}{place and f' ({place})'}") from error
        for kind, asked, instead in TRACED:
            if isinstance(error, kind):
                raise UserError(
                    f"{what} {asked}, which is known only when the compiled program runs"
                    f"{place and f' ({place})'}; use {instead}"
                ) from None
        error.add_note(f"while running {what}{place and f' ({place})'}")
        raise


def require_arguments(whose: str, method: Callable[..., Any], *wanted: str) -> None:
    """Raise unless somebody's own function can be called as the package calls it.

    Args:
        whose: it is: `task 'copy-back'`.
        method: the function.
        *wanted: its arguments, `key` by name and all others by place; `name=None` is one that is
            left out at times.
    """
    by_name = {"key": None} if "key" in wanted else {}
    by_place = [name for name in wanted if name != "key"]
    always = [name for name in by_place if "=" not in name]
    try:
        signature = inspect.signature(method)
    except ValueError:  # what is built in need not say
        return
    try:
        signature.bind(*by_place, **by_name)
        signature.bind(*always, **by_name)
    except TypeError:
        in_front = ["self"] if inspect.ismethod(method) else []
        shown = ", ".join([*in_front, *by_place, *(["*", "key"] if by_name else [])])
        name = method.__name__
        raise UserError(f"{whose}: {name}{signature} must be {name}({shown})") from None


def place_of(error: BaseException) -> str:
    """The innermost line of somebody's own code that an error went through; empty if none did."""
    frames = list(traceback.walk_tb(error.__traceback__))
    for frame, line in reversed(frames):
        root = str(frame.f_globals.get("__name__", "")).split(".")[0]
        if root in LIBRARIES or root in sys.stdlib_module_names - {"__main__"}:
            continue
        file = frame.f_code.co_filename
        text = linecache.getline(file, line).strip()
        return f"{Path(file).name}, line {line}{text and f': {text}'}"
    return ""
