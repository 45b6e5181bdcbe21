"""Every storage that relive ships keeps the promises of a storage; a new one joins by one line in `STORAGES`."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import storages
from forked_storage import Forked
from mapped_storage import Mapped

import relive
from relive.testing import StorageContract


class TestRam(StorageContract):
    def storage(self) -> relive.Ram:
        return relive.Ram()


@pytest.mark.skipif(len(storages.NAMES) == 1, reason="only native kernels share")
class TestShared(StorageContract):
    def storage(self) -> relive.Shared:
        return relive.Shared()


@pytest.mark.skipif(len(storages.NAMES) == 1, reason="only native kernels share")
class TestMapped(StorageContract):
    def storage(self) -> relive.Mapped:
        return storages.Unnamed()


class TestOneOfOnesOwn(StorageContract):
    @pytest.fixture(autouse=True)
    def _paths(self, tmp_path: Path) -> None:
        self.paths = (tmp_path / str(number) for number in itertools.count())

    def storage(self) -> Mapped:
        return Mapped(next(self.paths))

    def reopen(self, buffer: relive.ReplayBuffer) -> Mapped:
        return Mapped(buffer.storage.path)


class TestForked(StorageContract):
    def storage(self) -> Forked:
        return Forked()

    def reopen(self, buffer: relive.ReplayBuffer) -> Forked:
        return buffer.storage


class Reopening(StorageContract):
    """A storage that can be opened again, seen from outside: the second buffer is the first one."""

    left: relive.ReplayBuffer | None = None

    def storage(self) -> relive.Ram:
        return relive.Ram()

    def reopen(self, buffer: relive.ReplayBuffer) -> relive.Ram:
        self.left = self.spoil(buffer)
        return relive.Ram()

    def spoil(self, buffer: relive.ReplayBuffer) -> relive.ReplayBuffer:
        return buffer

    def build(self, choice, storage) -> relive.ReplayBuffer:
        left, self.left = self.left, None
        return super().build(choice, storage) if left is None else left


def test_a_reopened_buffer_may_go_on() -> None:
    Reopening().test_a_reopened_buffer_goes_on()


@pytest.mark.parametrize("lost", ["everything", "a priority", "a step"])
def test_meta_what_a_reopened_buffer_lost_is_found(lost: str) -> None:
    class Losing(Reopening):
        def spoil(self, buffer):
            if lost == "everything":
                return None
            if lost == "a step":
                buffer.cut()
            elif not isinstance(buffer.sampler, relive.Uniform):
                buffer.update_priorities(buffer.sample(1).ids, [100.0])
            return buffer

    with pytest.raises((AssertionError, relive.NotEnoughData)):
        Losing().test_a_reopened_buffer_goes_on()


def test_meta_shared_and_wrong_memory_are_found() -> None:
    class Sharing(Reopening):
        def build(self, choice, storage):
            self.left = self.kept = getattr(self, "kept", None)
            self.kept = super().build(choice, storage)
            return self.kept

    class Wrong(StorageContract):
        def storage(self):
            return relive.Ram()

        def build(self, choice, storage):
            made = super().build(choice, storage)
            made.rng = np.random.default_rng(id(storage))
            return made

    with pytest.raises(AssertionError):
        Sharing().test_two_buffers_share_nothing()
    with pytest.raises(AssertionError):
        Sharing().test_a_new_buffer_is_empty()
    with pytest.raises(AssertionError):
        Wrong().test_a_buffer_draws_what_it_draws_in_memory()
