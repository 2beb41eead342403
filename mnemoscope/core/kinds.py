"""Open kinds: a class with a `kind` of its own can stand in a Spec as soon as it is defined.

Tasks, models, optimizers, schedules, losses and metrics are families of kinds. What stands in a
Spec is written down as

    {"kind": ..., "code": ..., and its fields}

where `code` hashes what the class does (`mnemoscope.core.code_identity`), so that two programs
never have one identity. Kinds of this package have no `code`: what they do is part of the
fingerprint of every training.

A stored kind is looked up among the classes that this process has defined; nothing is ever imported
because a file names it. Whoever reads it loads what brings it (`mnemoscope.core.plugins`).
"""

import difflib
import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, ClassVar, TypeVar, cast

from pydantic import BeforeValidator, SerializeAsAny, model_serializer

from mnemoscope.core.code_identity import code_of, inner_function, is_installed
from mnemoscope.core.errors import UserError, short, unknown
from mnemoscope.core.kind_class import KindMeta, require_kind_class
from mnemoscope.core.source import remember_file
from mnemoscope.core.strict import Strict, configurations_in

OURS = "mnemoscope"
K = TypeVar("K", bound="Kind")
# by family, each kind's class; a kind of ours whose module is not loaded yet has that module's name
_known: dict[str, dict[str, "type[Kind] | str"]] = {}


class Kind(Strict, metaclass=KindMeta):
    """A configuration that says of which kind it is, for fields that take any kind of a family."""

    family: ClassVar[str] = ""
    """What all kinds of a family are: `task`."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        super().__pydantic_init_subclass__()
        if "family" in vars(cls):
            _known.setdefault(cls.family, {})
        if not is_ours(cls):
            _remember_files(cls)
        if "kind" in inspect.get_annotations(cls):
            _register(cls)

    @classmethod
    def kind_name(cls) -> str:
        """What this class is called in files; empty for one that is no kind by itself."""
        field = cls.model_fields.get("kind")
        return str(field.default if field else getattr(cls, "kind", ""))

    @classmethod
    def accepts(cls, value: Strict) -> bool:
        """Whether an object is of the very class that its kind stands for, and of this family."""
        return isinstance(value, cls) and _known[cls.family].get(value.kind_name()) is type(value)

    @classmethod
    def code(cls) -> str:
        """The hash of what the class does; empty for kinds of this package."""
        return "" if is_ours(cls) else code_of(cls, must_read=True)

    @model_serializer(mode="wrap")
    def _serialize(self, to_dict: Callable[[Any], dict[str, Any]], info: Any) -> dict[str, Any]:
        fields = self._write(to_dict(self), info)
        code = self.code()
        return {**fields, "code": code} if code else fields


def is_ours(cls: type) -> bool:
    """Whether a class is part of this package."""
    return cls.__module__.split(".")[0] == OURS


def known_kinds(family: str) -> tuple[str, ...]:
    """The names of all kinds of a family that this process knows."""
    return tuple(_known[family])


def announce_kinds(family: str, module: str, *kinds: str) -> None:
    """Say which kinds a module of this package defines, so that it is loaded when one is asked for.

    Args:
        family: of the kinds.
        module: its full name.
        *kinds: their names.
    """
    for kind in kinds:
        _known.setdefault(family, {}).setdefault(kind, module)


def find_kind(family: str, kind: object) -> type[Kind]:
    """The class of a kind; a ValueError says which ones there are."""
    there = _known[family].get(str(kind))
    if isinstance(there, str):
        import_module(there)
        there = _known[family][str(kind)]
    if there is None:
        raise ValueError(f"{unknown(f'kind of {family}', kind, _known[family])}{_bringing(kind)}")
    assert not isinstance(there, str)
    return there


def any_kind(
    root: type[K], default: str = "", hint: Callable[[object], str] | None = None
) -> tuple[Any, ...]:
    """What makes a field take every kind of a family, for `Annotated[Task, *any_kind(Task)]`.

    Args:
        root: the class that all of them extend.
        default: the kind of a dictionary that names none.
        hint: what else to say of something that is no kind; empty where there is nothing.
    """

    def check(came: Any) -> Any:
        if isinstance(came, root):
            _require_known(came)
            came.code()  # raises where it could not be told from another
            return came
        if isinstance(came, Mapping):
            return _from_fields(root.family, dict(cast(Mapping[str, Any], came)), default)
        meant = (hint and hint(came)) or _meant_by(root, came)
        article = "an" if root.__name__[0] in "AEIOU" else "a"
        raise ValueError(
            f"{root.family}: {article} {root.__name__} or its fields are needed, got {short(came)}"
            f"{meant and f'; allowed: {meant}'}"
        )

    return BeforeValidator(check), SerializeAsAny()  # pyright: ignore[reportCallIssue] (a type there)


def codes_in(configuration: Strict) -> tuple[str, ...]:
    """The codes of all kinds from outside that a configuration holds, however deep."""
    found = (configuration.code(),) if isinstance(configuration, Kind) else ()
    for name in type(configuration).model_fields:
        for inside in configurations_in(getattr(configuration, name)):
            found += codes_in(inside)
    return tuple(code for code in found if code)


def kinds_of(package: str) -> tuple[tuple[str, str], ...]:
    """The kinds that a package has defined, each with its family.

    Args:
        package: its name.
    """
    return tuple(
        (family, kind)
        for family, kinds in _known.items()
        for kind, there in kinds.items()
        if inspect.isclass(there) and there.__module__.split(".")[0] == package
    )


def forget_kinds(package: str) -> None:
    """Forget the kinds that a package has defined: it is refused.

    Args:
        package: its name.
    """
    for family, kind in kinds_of(package):
        del _known[family][kind]


# ---- what a field is given


def _meant_by(root: type[Kind], came: object) -> str:
    """The object that a class or a kind's name was given for; empty where there is none."""
    cls = came
    if isinstance(came, str):
        near = difflib.get_close_matches(came[:100], _known[root.family], n=1)
        cls = find_kind(root.family, near[0]) if near else None
    if not inspect.isclass(cls) or not issubclass(cls, root):
        return ""
    return f"ms.{cls.__name__}()" if is_ours(cls) else f"{cls.__name__}()"


def _require_known(came: Kind) -> None:
    """Raise for an object whose class is not the one that its kind stands for."""
    cls = type(came)
    kind = cls.kind_name()
    if type(came).accepts(came):
        return
    there = _known[cls.family].get(kind)
    if inspect.isclass(there) and _place(there) == _place(cls):
        raise ValueError(
            f"{cls.family}: {cls.__name__} was defined again since this object was made; allowed: "
            f"objects of the class as it is now, so make it again"
        )
    extends = f"the class that it extends ({_place(there)})" if inspect.isclass(there) else "others"
    raise ValueError(
        f"{cls.family}: {cls.__name__} is a class of its own, whose runs could not be told from "
        f"those of {extends}; allowed: a class with a kind of its own, such as "
        f"kind: Literal[{cls.__name__.lower()!r}] = {cls.__name__.lower()!r}"
    )


def _from_fields(family: str, fields: dict[str, Any], default: str) -> Kind:
    """A kind from what was written down."""
    kind = fields.get("kind", default)
    if not kind:
        raise ValueError(f"{family}: its kind is missing; allowed: {', '.join(_known[family])}")
    cls = find_kind(family, kind)
    wanted = fields.pop("code", "")
    code = cls.code()
    if wanted != code:
        raise ValueError(
            f"{family} {kind!r} was of code {wanted or 'built in'} and is of {code or 'built in'} "
            f"now: another {family}, or one that was edited"
        )
    return cls.model_validate(fields)


def _bringing(kind: object) -> str:
    """How to load what defines a kind."""
    package, slash, _ = str(kind).partition("/")
    if slash:
        return f"; package {package!r} would bring it: --plugin {package}"
    return "; or load what defines it: --plugin FILE or MODULE"


# ---- what a class brings


def _register(cls: type[Kind]) -> None:
    """Make a class known under its kind."""
    kind = cls.kind_name()
    there = _known[cls.family].get(kind)
    if inspect.isclass(there) and _place(there) != _place(cls):
        raise UserError(
            f"{_place(cls)} needs a kind of its own: {kind!r} is that of {_place(there)}"
        )
    package, slash, _ = kind.partition("/")
    if slash and cls.__module__.split(".")[0] != package:
        raise UserError(
            f"{_place(cls)}: the kind {kind!r} is for package {package!r} to define; allowed: a "
            "name without a slash, or one that begins with the package's own"
        )
    if not is_ours(cls):
        require_kind_class(cls)
    _known[cls.family][kind] = cls  # a cell that is run again replaces its class


def _place(cls: type) -> str:
    """Where a class is defined."""
    return f"{cls.__module__}.{cls.__qualname__}"


def _remember_files(cls: type) -> None:
    """Keep the texts that a class rests on as they are now, before somebody edits them."""
    members = [inner_function(value) for value in vars(cls).values()]
    functions = [each for each in members if inspect.isfunction(each)]
    reachable = functions.copy()
    for names in {id(each.__globals__): each.__globals__ for each in functions}.values():
        helpers = map(inner_function, names.copy().values())
        reachable += [each for each in helpers if inspect.isfunction(each)]
    read = [each for each in reachable if not is_installed(each.__module__ or "")]
    for file in {each.__code__.co_filename for each in read}:
        remember_file(file)
