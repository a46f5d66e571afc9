"""Checks the objects of a batch, and reports invalid ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeAlias, TypeVar

M = TypeVar("M")
Row: TypeAlias = Mapping[str, Any]
"""A dict with the fields of one object of a batch."""


def texts(name: str, values: Iterable[str]) -> list[str]:
    """Returns strings as a list. Refuses a single string, because its characters are never intended."""
    found = list(_iterable(name, values, "str"))
    for nth, each in enumerate(found):
        if not isinstance(each, str):
            raise TypeError(f"{name}[{nth}]: str is needed, not {type(each).__name__}")
    return found


def rows(name: str, values: Iterable[M | Row], model: type[M]) -> list[M]:
    """Returns the values as objects of a dataclass."""
    all_fields = [each for each in fields(model) if each.name != "raw"]  # type: ignore[arg-type]
    needed = [each.name for each in all_fields if each.default is MISSING and each.default_factory is MISSING]
    optional = [each.name for each in all_fields if each.name not in needed]
    names = ", ".join(needed) + (f" and optionally {', '.join(optional)}" if optional else "")
    shape = f"{model.__name__}, or a dict with {names}"

    def row(nth: int, each: M | Row) -> M:
        if isinstance(each, model):
            return each
        if not isinstance(each, Mapping):
            raise TypeError(f"{name}[{nth}]: {shape} is needed, not {type(each).__name__}")
        wrong = [f"lacks {field}" for field in needed if field not in each]
        wrong += [f"has {field!r}" for field in each if field not in needed and field not in optional]
        if wrong:
            raise TypeError(f"{name}[{nth}] {' and '.join(wrong)}: {shape} is needed")
        # None means the same as a missing field, as null does in JSON.
        return model(**{field: value for field, value in each.items() if value is not None or field in needed})

    return [row(nth, each) for nth, each in enumerate(_iterable(name, values, shape))]


def _iterable(name: str, values: Iterable[Any], shape: str) -> Iterable[Any]:
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise TypeError(f"{name}: an iterable, such as a list, is needed, each of it {shape}; not {type(values).__name__}")
    return values
