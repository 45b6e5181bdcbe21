"""Directories of a saved buffer that are meant to do harm: every checksum in them is right."""

from __future__ import annotations

import itertools
import json
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from relive._disk import json_files
from relive._disk.files import Folder
from relive._disk.tensor_writer import TensorWriter, portions_of
from relive._disk.tensors import TABLE, Tensor, TensorReader
from relive.checkpoints import _manifest

MANIFEST, STATE, STEPS = (make(2) for make in (_manifest.manifest_name, _manifest.state_name, _manifest.steps_name))
Arrays = dict[str, np.ndarray]
DEEP = 300_000
FAR = [-1, -(2**62), -(2**63), 1, 23, 24, 25, 2**31, 2**53, 2**61, 2**62, 2**63 - 1]


@dataclass(frozen=True)
class Lie:
    """An attack on the directory of a save."""

    name: str
    do: Callable[[Path], None]


def sealed(facts: Any, number: int = 2) -> bytes:
    """Write a manifest with a valid checksum."""
    text = (facts if isinstance(facts, str) else json.dumps(facts, indent=1)).encode().removesuffix(b"\n}")
    return text + json_files._last_of(text)


def facts_of(path: Path) -> dict[str, Any]:
    facts = json.loads((path / MANIFEST).read_bytes())
    del facts["checksum"]
    return facts


def told(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    """Write another manifest: the facts after a change of them, or the change's return value."""

    def do(path: Path) -> None:
        facts = facts_of(path)
        new = change(facts)
        (path / MANIFEST).write_bytes(sealed(facts if new is None else new))

    return do


def held(name: str, change: Callable[[Arrays], Any]) -> Callable[[Path], None]:
    """Write other arrays into the file of small arrays, or of steps."""

    def do(path: Path) -> None:
        folder, facts = Folder(path), facts_of(path)
        file = facts["state"] if name == STATE else facts["steps"][-1]
        with TensorReader(folder, name, file["nbytes"], file["checksum"]) as reader:
            arrays = {key: reader.rows(key) for key in reader.tensors}
            metadata = reader.metadata
        change(arrays)
        tensors = {key: Tensor(array.dtype, array.shape) for key, array in arrays.items()}
        portions = itertools.chain.from_iterable(portions_of(*each) for each in arrays.items())
        writer = TensorWriter(tensors, portions, metadata)
        folder.write(name, writer.parts())
        file |= {"nbytes": writer.nbytes, "checksum": writer.checksum}
        (path / MANIFEST).write_bytes(sealed(facts))
        folder.close()

    return do


def header(name: str, change: Callable[[dict[str, Any]], Any], size: int | None = None) -> Callable[[Path], None]:
    """Write another header, and perhaps a file that is mostly a hole."""

    def do(path: Path) -> None:
        data, facts = (path / name).read_bytes(), facts_of(path)
        count = int.from_bytes(data[:8], "little")
        entries = json.loads(data[8 : 8 + count])
        table = entries[TABLE]["data_offsets"]
        new = change(entries)
        text = (new if isinstance(new, str) else json.dumps(entries)).encode()
        head = len(text).to_bytes(8, "little") + text
        (path / name).write_bytes(head + data[8 + count :])
        if size is not None:
            os.truncate(path / name, len(head) + size)
        file = facts["state"] if name == STATE else facts["steps"][-1]
        checksum = zlib.crc32(data[8 + count + table[0] :], zlib.crc32(head))
        file |= {"nbytes": (path / name).stat().st_size, "checksum": checksum}
        (path / MANIFEST).write_bytes(sealed(facts))

    return do


def put(*keys: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(facts: dict[str, Any]) -> None:
        at: Any = facts
        for key in keys[:-1]:
            at = at[key]
        at[keys[-1]] = value

    return change


def leaves(facts: Any, keys: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the keys of every value, mappings and lists included."""
    if keys:
        yield keys
    children = facts.items() if isinstance(facts, dict) else enumerate(facts) if isinstance(facts, list) else ()
    for key, child in children:
        yield from leaves(child, (*keys, key))


def manifests(good: Path) -> Iterator[Lie]:
    """Yield evil JSON; every value in turn of another type."""
    evil = [None, -1, 2**62, 10**400, 1.5, "../../etc/passwd", [], {}, [[["x"]]], {"kind": "Ram"}, True]
    for i, keys in enumerate(leaves(facts_of(good))):
        for value in (evil[i % len(evil)], evil[(3 * i + 1) % len(evil)]):
            yield Lie(f"{keys} = {value!r:.30}", told(put(*keys, value=value)))
    yield from (
        Lie(f"a manifest: {text[:20]}", told(lambda _, text=text: text))
        for text in ("[" * DEEP, '{"a":' * DEEP, "", "5", "[]", "{\n}", '{"a": 1e999\n}', '{"a": NaN\n}', "9" * 10**5)
    )
    yield Lie("digits", told(put("counts", "drawn", value=10**4000)))
    yield Lie(
        "a key twice", told(lambda facts: json.dumps(facts, indent=1).replace('{\n "', '{\n "number": 2,\n "', 1))
    )
    yield Lie("a later format", told(put("format", value="relive.buffer.2")))
    yield Lie("many fields", told(put("choices", "schema", value={f"f{k}": ["bool", []] for k in range(30_000)})))
    yield Lie("numbers", told(put("more", value=list(range(150_000)))))
    file = {"number": 1, "nbytes": 1, "checksum": 0}
    yield Lie("many files", told(put("steps", value=[file] * 5000)))
    yield Lie("a file many times", told(lambda facts: facts.__setitem__("steps", facts["steps"][:1] * 9)))
    for rows in (0, 1, 10**6, 2**40, 2**61, 2**62):
        yield Lie(f"{rows} rows", told(put("choices", "rows", value=rows)))
    dtypes = [
        "object",
        "O",
        "f4,f4",
        "(((((2,)f4",
        "(2,)f4",
        "__import__('os').mkdir('canary')",
        "V8",
        "datetime64",
        "S",
    ]
    for dtype in dtypes:
        yield Lie(f"dtype {dtype}", told(put("choices", "schema", "action", value=[dtype, []])))
    for shape in ([-1], [0], [2**62, 2**62], [1] * 63, [1.0], ["x"], [2**40], 5):
        yield Lie(f"shape {shape!s:.20}", told(put("choices", "schema", "action", value=["int64", shape])))
    for name in ("__metadata__", "a.b", "../x", "", "next_obs", "\ud800", "relive/ranges", "x" * 10**5):
        yield Lie(f"a field {name!r:.20}", told(put("choices", "schema", name, value=["float32", []])))
    bits = [np.random.MT19937(1), np.random.Philox(1), np.random.SFC64(1), np.random.PCG64(1)]
    for bit in bits:
        state = json.loads(json.dumps(bit.state, default=np.ndarray.tolist))
        for keys in leaves(state):
            if len(keys) < 3:
                for value in (-1, 2**200, [0], "x", None):
                    changed = json.loads(json.dumps(state))
                    put(*keys, value=value)(changed)
                    yield Lie(
                        f"{keys} = {value!s:.9} of {state['bit_generator']}", told(put("generator", value=changed))
                    )


def numbers(good: Path) -> Iterator[Lie]:
    """Yield counters, marks, priorities and shapes that no buffer has."""
    for column in range(16):
        for value in FAR:
            for lane in {0, 2} if column in (0, 2, 3, 4, 5, 13) else {1}:
                put_in = lambda arrays, c=column, v=value, n=lane: arrays["lanes/counters"].__setitem__((n, c), v)  # noqa: E731
                yield Lie(f"counter {column} = {value}, lane {lane}", held(STATE, put_in))
    for seed in range(300):
        yield Lie(f"numbers, seed {seed}", held(STATE, lambda arrays, seed=seed: spoil(arrays, seed)))
    for name, dtype in (("rows/marks", np.int64), ("slots/priorities", np.float32), ("lanes/counters", np.float64)):
        change = lambda arrays, n=name, t=dtype: arrays.__setitem__(n, arrays[n].astype(t))  # noqa: E731
        yield Lie(f"{name} as {dtype.__name__}", held(STATE, change))
    state = ("lanes/counters", "lanes/clock", "rows/marks", "rows/given", "slots/priorities", "whole/priorities.state")
    for name in (*state, "next/reward", "next/state", "last/ids", "last/weights"):
        for how in ("gone", "flat", "longer", "empty", "wide"):
            yield Lie(f"{name}: {how}", held(STATE, lambda arrays, n=name, how=how: reshape(arrays, n, how)))
    for name in ("relive/ranges", "reward", "obs.pixels", "state"):
        for how in ("gone", "flat", "longer", "empty", "wide"):
            yield Lie(f"steps, {name}: {how}", held(STEPS, lambda arrays, n=name, how=how: reshape(arrays, n, how)))
    for value in FAR:
        for entry in ((0, 0), (0, 1), (1, 2)):
            put_in = lambda arrays, e=entry, v=value: arrays["relive/ranges"].__setitem__(e, v)  # noqa: E731
            yield Lie(f"range {entry} = {value}", held(STEPS, put_in))
    yield Lie(
        "a range twice", held(STEPS, lambda arrays: arrays["relive/ranges"].__setitem__(1, arrays["relive/ranges"][0]))
    )


def spoil(arrays: Arrays, seed: int) -> None:
    """Change some entries of some of the small arrays to values that none has."""
    rng = np.random.default_rng(seed)
    names = [name for name, array in sorted(arrays.items()) if array.size and not name.startswith("next/")]
    for name in rng.choice(names, int(rng.integers(1, 3)), replace=False):
        flat = arrays[name].reshape(-1)
        at = rng.integers(0, len(flat), int(rng.integers(1, 4)))
        if flat.dtype.kind == "f":
            with np.errstate(over="ignore"):
                flat[at] = rng.choice([np.nan, np.inf, -np.inf, -1.0, 1e308, 2.0**62, 5e-324], len(at))
        elif flat.dtype == np.uint8:
            flat[at] = rng.integers(0, 256, len(at))
        else:
            some = rng.choice([*FAR, *range(2, 23)], len(at))
            flat[at] = flat[at] + rng.integers(-3, 4, len(at)) if rng.random() < 0.5 else some


def reshape(arrays: Arrays, name: str, how: str) -> None:
    array = arrays.pop(name)
    if how != "gone":
        shapes = {"flat": array.reshape(-1), "longer": np.concatenate([array, array[:1]]), "empty": array[:0]}
        arrays[name] = shapes.get(how, np.repeat(array[..., None], 3, -1))


def headers() -> Iterator[Lie]:
    for name in (STATE, STEPS):
        for key, value in (
            ("dtype", "O"), ("dtype", ["F32"]), ("shape", [2**39] * 30), ("shape", [-1]), ("shape", [1] * 10**5),
            ("shape", {}), ("data_offsets", [0, 2**63]), ("data_offsets", [0]), ("data_offsets", [-8, 0]),
            ("shape", [0] * 66),
        ):  # fmt: skip
            for tensor in (TABLE, "lanes/clock" if name == STATE else "relive/ranges"):
                change = lambda told, t=tensor, k=key, v=value: told[t].__setitem__(k, v)  # noqa: E731
                yield Lie(f"{name}, {tensor}: {key} = {value!s:.20}", header(name, change))
        for text in ("[" * DEEP, '{"a":' * DEEP, "5", "{}"):
            yield Lie(f"{name}: {text[:9]}", header(name, lambda _, text=text: text))
        for size in (1 << 38, 1 << 42):
            shape = -(-size // (1 << 16))

            def vast(told: dict[str, Any], size: int = size, shape: int = shape) -> None:
                keep = {
                    "__metadata__": told["__metadata__"],
                    "x": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]},
                }
                told.clear()
                end = size + 4 * shape
                told |= keep | {TABLE: {"dtype": "U32", "shape": [shape], "data_offsets": [size, end]}}

            yield Lie(f"{name}: a hole of {size} bytes", header(name, vast, size + 4 * shape))


def special_files(special: Callable[[str, str], Callable[[Path], None]]) -> Iterator[Lie]:
    for what in ("link", "dangling", "pipe", "folder", "socket"):
        others = (
            "save-0000000003.json",
            "lock",
            ".tmp-" + STATE,
            ".tmp-save-0000000003.json",
            "steps-0000000003.safetensors",
        )
        for name in (MANIFEST, STATE, STEPS, *others):
            yield Lie(f"a {what} as {name}", special(name, what))
    for name in (STATE, STEPS, "lock", "steps-0000000003.safetensors"):
        yield Lie(f"{name} has a name elsewhere", lambda path, name=name: linked(path / name))


def linked(path: Path) -> None:
    path.touch()
    os.link(path, path.parent.parent / "outside")


def lies(good: Path, special: Callable[[str, str], Callable[[Path], None]]) -> list[Lie]:
    return [*manifests(good), *numbers(good), *headers(), *special_files(special)]
