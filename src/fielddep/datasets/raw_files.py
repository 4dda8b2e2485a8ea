"""Raw files of a data set: which there are, and where they lie: in a folder, or within a zip archive of it.

A zip is read in place. Only small files are: large ones are read many times from the middle, so they must be unpacked.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fielddep.errors import TableError

_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


@dataclass(frozen=True, kw_only=True)
class RawFile:
    """A file as it is published.

    Attributes:
        name: its name.
        n_bytes: about its size, unpacked.
        other_names: other names that it has or is given.
    """

    name: str
    n_bytes: int
    other_names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{' or '.join((self.name, *self.other_names))} (about {shown_bytes(self.n_bytes)})"


@dataclass(frozen=True, kw_only=True)
class FoundFile:
    """A raw file at hand: a file of its own, or the member of a zip archive."""

    path: Path
    member: str | None = None

    def __str__(self) -> str:
        return str(self.path if self.member is None else self.path / self.member)

    def read(self) -> bytes:
        """All its bytes.

        Raises:
            TableError: it cannot be read.
        """
        try:
            if self.member is None:
                return self.path.read_bytes()
            with zipfile.ZipFile(self.path) as archive:
                return archive.read(self.member)
        except (OSError, zipfile.BadZipFile) as error:
            raise TableError(f"{self} cannot be read: {error}; download it again") from error


Found = Mapping[str, FoundFile]
"""Raw files at hand by their name in the recipe."""


def find_raw_files(
    wanted: Sequence[RawFile], folder: Path, *, subfolders: Sequence[str] = (), archives: Sequence[str] = ()
) -> dict[str, FoundFile]:
    """Those of the wanted files that are at hand.

    Args:
        wanted: the files.
        folder: where to look.
        subfolders: folders below it in which to look too.
        archives: zip archives in it whose members are looked at too, in whatever folder of the archive they are.

    Raises:
        TableError: an archive is damaged.
    """
    folders = [folder, *(folder / name for name in subfolders)]
    found: dict[str, FoundFile] = {}
    for file in wanted:
        names = (file.name, *file.other_names)
        places = [place / name for place in folders for name in names if (place / name).is_file()]
        if places:
            found[file.name] = FoundFile(path=places[0])
    for archive, members in _members([folder / name for name in archives]):
        for file in wanted:
            member = members.get(file.name)
            if member is not None:
                found.setdefault(file.name, FoundFile(path=archive, member=member))
    return found


def _members(archives: Sequence[Path]) -> Iterator[tuple[Path, dict[str, str]]]:
    """Every archive that is there, with the members by the last part of their names."""
    for archive in archives:
        if not archive.is_file():
            continue
        try:
            with zipfile.ZipFile(archive) as opened:
                names = [name for name in opened.namelist() if not name.startswith("__MACOSX")]
        except (OSError, zipfile.BadZipFile) as error:
            raise TableError(f"expected a zip archive at {archive}, but {error}; download it again") from error
        yield archive, {name.rpartition("/")[2]: name for name in names}


def shown_bytes(n_bytes: int) -> str:
    """A size for people.

    Example:
        >>> shown_bytes(6_313_241), shown_bytes(10_500_000_000), shown_bytes(12)
        ('6.3 MB', '10.5 GB', '12 bytes')
    """
    for unit, size in _UNITS:
        if n_bytes >= size:
            return f"{n_bytes / size:.1f} {unit}"
    return f"{n_bytes} bytes"
