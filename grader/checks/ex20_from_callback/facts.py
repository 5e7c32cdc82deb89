"""What happens in one call of `load` in ex20_from_callback: the blocks, and what is read."""

import msgspec

LIKE = "with a file like the one in"
"""What stands in the name of a call whose file has the shape and the dtype of another."""


STILL_HELD = "blocks that are still held"
"""The fact that says how many blocks of all files were still there in the end, without arrays."""


HIDES = "hides that nothing could be read"
"""The fact that says whether `load` returned though every read of its file failed."""


class Block(msgspec.Struct, frozen=True, order=True):
    """Some rows and columns of the file; `bottom` and `right` are not part of it."""

    top: int
    bottom: int
    left: int
    right: int

    def within(self, other: "Block") -> bool:
        """Whether all of it lies in the other."""
        rows = other.top <= self.top and self.bottom <= other.bottom
        return rows and other.left <= self.left and self.right <= other.right

    @property
    def size(self) -> int:
        """How many values it has."""
        return max(self.bottom - self.top, 0) * max(self.right - self.left, 0)

    def __str__(self) -> str:
        return f"[{self.top}:{self.bottom}, {self.left}:{self.right}]"


class Read(msgspec.Struct):
    """One read of the file, and the learner's line that made it."""

    block: Block
    """The smallest block that contains every value that was read."""
    size: int
    """How many values were read."""
    line: int = 0
    """0 if it is not known."""


class Case(msgspec.Struct):
    """One call of `load`."""

    blocks: list[Block]
    """The block of each device."""
    item: int
    """Bytes of one value."""
    reads: list[Read] = []
    as_asked: bool = False
    """Whether `load` returned an array with the sharding that it was asked for."""
    beyond: int = 0
    """The most bytes that the host held at one time beyond what had been read; 0 if not counted."""
    counted: bool = False
    """Whether they were counted."""
    kept: int = 0
    """The bytes of blocks that the host still held without their array; 0 if not counted."""
    largest: int = 0
    """The largest piece of memory that the host held between two reads; 0 if not counted."""
