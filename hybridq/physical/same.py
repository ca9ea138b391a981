"""Parts of a plan as keys, told apart by what they are and not by what they are made of."""

from __future__ import annotations

from typing import Generic, TypeVar

Part = TypeVar("Part")


class Same(Generic[Part]):
    """A key that is equal to no other part's, even to that of an equal one: finding that out takes too long.

    A part that is asked about again and again, since its plan is kept, can so be looked up at once. As long as the key
    is kept, the part is.

    Attributes
    ----------
    part : object
        Immutable.
    """

    __slots__ = ("part",)

    def __init__(self, part: Part) -> None:
        self.part = part

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.part is self.part

    def __hash__(self) -> int:
        return id(self.part)
