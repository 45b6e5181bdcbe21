"""The zip archive that a `pt` file is, looked at before PyTorch reads it.

PyTorch compares no checksums where it maps a file, and unpacks whatever an archive says is packed. What it finds by a
name has to be what is looked at here, so an archive that two readers may read differently is refused.
"""

from __future__ import annotations

import io
import os
import struct
import zipfile

from ..._disk.files import read_at, size_of
from ._opcodes import scan

_MOST = 1 << 20  # bytes of the list of records, and of `data.pkl`
_PIECE = 1 << 20
_ENCRYPTED = 0x2041  # bits of a record's flags


def look(fd: int, *, compare: bool) -> None:
    """Check an open `pt` file; `compare`: its checksums, too, for which all of it is read.

    Raises:
        ValueError, zipfile.BadZipFile, EOFError, struct.error: It is damaged, or none that PyTorch writes.
    """
    _check_ends(fd)
    with os.fdopen(os.dup(fd), "rb") as file, zipfile.ZipFile(file) as archive:
        records = archive.infolist()
        folder = records[0].filename.partition("/")[0] if records else ""
        if len({record.filename.lower() for record in records}) != len(records):  # PyTorch ignores the case
            raise ValueError("two records have the same name")
        if sum(record.file_size for record in records) > size_of(fd):
            raise ValueError("records have more bytes than the file")  # so some overlap
        for record in records:
            _check(record, folder)
        head = archive.getinfo(f"{folder}/data.pkl")
        if head.file_size > _MOST:
            raise ValueError(f"header of {head.file_size} bytes is too large")
        if f"{folder}/constants.pkl" in archive.NameToInfo:
            raise ValueError("a program, and not data")
        if f"{folder}/byteorder" in archive.NameToInfo and archive.read(f"{folder}/byteorder") != b"little":
            raise ValueError("big-endian numbers")
        scan(io.BytesIO(archive.read(head)))
        for record in records if compare else ():
            with archive.open(record) as part:
                while part.read(_PIECE):
                    pass


def _check(record: zipfile.ZipInfo, folder: str) -> None:
    """Refuse a record that is not stored as it is, or whose name can be read in two ways."""
    name = record.filename
    if record.compress_type != zipfile.ZIP_STORED or record.compress_size != record.file_size:
        raise ValueError(f"record {name!r} is compressed"[:80])
    if record.flag_bits & _ENCRYPTED:
        raise ValueError(f"record {name!r} is encrypted"[:80])
    if record.orig_filename != name or not name.isascii() or not name.startswith(f"{folder}/"):
        raise ValueError(f"a record's name is {record.orig_filename!r}"[:80])


def _check_ends(fd: int) -> None:
    """Refuse a file whose list of records is large, or is not the last thing in it, where all readers look."""
    size = size_of(fd)
    limit, end = size - 22, read_at(fd, max(size - 22, 0), 22)
    if len(end) < 22 or end[:4] != b"PK\5\6" or end[-2:] != b"\0\0":
        raise ValueError("not a zip archive")
    count, start = struct.unpack("<II", end[12:20])
    locator = read_at(fd, max(size - 42, 0), 20)
    if locator[:4] == b"PK\6\7":  # the larger form, which PyTorch writes
        limit = size - 98
        more = read_at(fd, max(limit, 0), 56)
        if more[:4] != b"PK\6\6" or struct.unpack("<Q", locator[8:16]) != (limit,):
            raise ValueError("not a zip archive: its end is elsewhere")
        count, start = struct.unpack("<QQ", more[40:56])
    if count > _MOST or start + count != limit:
        raise ValueError("too many records, or not in one place")
