"""The manifest of one save: which files it consists of, and what a buffer has to be built like to hold them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._base.frozen import Frozen
from .._base.nests import paths
from .._disk import json_files
from .._disk.files import Folder
from .._disk.json_files import damaged
from .._ring.lanes import sizes_in
from ..errors import ArgumentError, StorageError, message

# The second: lanes have more rows than they keep steps. The third: some fields are in compressed blocks.
FORMATS = ("relive.buffer.1", "relive.buffer.2", "relive.buffer.3")
DEVICE = "relive.device.1"  # of a `DeviceBuffer`, whose choices have `device`
MOST_FILES = 32  # of steps
COUNTS = ("drawn", "updates", "stale_updates", "slow_adds")
_MOST = 1 << 20
_DIGITS = 10


class File(Frozen):
    """A file of a save.

    Attributes:
        number: The save that wrote it.
        nbytes: Its size.
        checksum: The CRC-32 of its header and its table of checksums.
    """

    number: int
    nbytes: int
    checksum: int


class Manifest(Frozen, kw_only=True):
    """All of a save but its arrays.

    Attributes:
        number: Saves of a directory count up from 1.
        identity: Names the buffer; a directory has saves of one buffer only.
        token: Names this save.
        choices: `schema`, `num_envs`, `rows`, `steps`, `boundaries`, `item`, `sampler`, `storage`, `window` and
            `digest`, which decide what arrays mean. Older saves have no `steps` and `boundaries`.
        counts: Numbers of the buffer that are in no array.
        generator: The state of its generator.
        state: The file of the small arrays.
        steps: The files of the steps, the oldest first.
    """

    number: int
    identity: str
    token: str
    choices: dict[str, Any]
    counts: dict[str, int]
    generator: dict[str, Any]
    state: File
    steps: tuple[File, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all files of the save but the manifest."""
        return sum(file.nbytes for file in (self.state, *self.steps))

    @property
    def files(self) -> list[tuple[str, File]]:
        """The names of its files, the state's first."""
        return [(state_name(self.state.number), self.state)] + [(steps_name(f.number), f) for f in self.steps]

    def dumped(self) -> bytes:
        """Write the manifest as JSON, whose last entry is the CRC-32 of all before it.

        Raises:
            ArgumentError: It would be too long to be read again.
        """
        rows, steps, _ = sizes_in(self.choices)
        fields = (field for _, field in paths(self.choices["schema"]))
        compressed = any("compress" in option for _, _, *options in fields for option in options)
        form = DEVICE if "device" in self.choices else FORMATS[2 if compressed else rows > steps]
        facts = {"format": form, **vars(self), "state": vars(self.state), "steps": [vars(f) for f in self.steps]}
        text = json_files.dumped(facts)
        if len(text) > _MOST:
            raise ArgumentError(message("a schema of fewer fields", f"a manifest of {len(text)} bytes", "$"))
        return text


def manifest_name(number: int) -> str:
    """Return the name of a manifest."""
    return f"save-{number:0{_DIGITS}d}.json"


def state_name(number: int) -> str:
    """Return the name of a file of small arrays."""
    return f"state-{number:0{_DIGITS}d}.safetensors"


def steps_name(number: int) -> str:
    """Return the name of a file of steps."""
    return f"steps-{number:0{_DIGITS}d}.safetensors"


def number_of(name: str) -> int | None:
    """Parse the number in the name of a file that a save wrote; return None for other files."""
    digits = name.partition("-")[2][:_DIGITS]
    if not (digits.isascii() and digits.isdigit()):
        return None
    number = int(digits)
    return number if name in (manifest_name(number), state_name(number), steps_name(number)) else None


def numbers(folder: Folder) -> list[int]:
    """List the numbers of the complete saves of a directory, the newest first."""
    names = folder.sizes().keys()
    while True:
        ours = {name: n for name in names if (n := number_of(name)) is not None}
        found = sorted((n for name, n in ours.items() if name == manifest_name(n)), reverse=True)
        before = names
        # A listing that is made while one save takes the place of another may have neither.
        if found or not ours or (names := folder.sizes().keys()) == before:
            return found


def read(folder: Folder, number: int) -> Manifest:
    """Read a manifest; every value is checked before it is used.

    Raises:
        CorruptionError: It is damaged.
        StorageError: It is missing, cannot be read, or of a later format.
    """
    name = manifest_name(number)
    at = f"{folder.path}/{name}"
    facts = json_files.read(folder, name, _MOST)
    with damaged(at):
        if facts["format"] not in (*FORMATS, DEVICE):
            remedy = "a later version of relive wrote it"
            raise StorageError(message(f"the format `{FORMATS[-1]}`", f"`{str(facts['format'])[:40]}`", at, remedy))
        return _manifest(facts, number)


def _manifest(facts: dict[str, Any], number: int) -> Manifest:
    if (facts.pop("format") == DEVICE) != ("device" in facts["choices"]) or facts["number"] != number:
        raise ValueError("it has another number")
    facts["state"], facts["steps"] = _file(facts["state"]), tuple(_file(file) for file in facts["steps"])
    facts["counts"].setdefault("updates", 0)  # which older saves do not have
    manifest = Manifest(**facts)
    files = [0, *(file.number for file in manifest.steps), number + 1]
    if manifest.state.number != number or len(files) - 2 > MOST_FILES or any(np.diff(files) <= 0):
        raise ValueError("invalid files")
    lanes, (rows, _, _) = manifest.choices["num_envs"], sizes_in(manifest.choices)
    for value in (*(manifest.counts[name] for name in COUNTS), lanes):
        if type(value) is not int or not 0 <= value < 2**62:
            raise ValueError(f"invalid number {value!r}"[:60])
    if not 1 <= lanes * rows < 2**62:
        raise ValueError("invalid capacity")
    if not all(isinstance(text, str) for text in (manifest.identity, manifest.token, manifest.choices["digest"])):
        raise ValueError("invalid identity")
    return manifest


def _file(facts: dict[str, Any]) -> File:
    file = File(**facts)
    if not all(type(value) is int and 0 <= value < 2**60 for value in vars(file).values()) or not file.number:
        raise ValueError("invalid file")
    return file
