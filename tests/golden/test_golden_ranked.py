"""Files of buffers whose draws went by rank: their sampler is gone, and they are opened with another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recorded_draws as lives
from ranked_files import DATA, LANES, STEPS, live, priority_of
from ranked_sampler import Ranked
from recorded import copied, unpacked

import relive
from relive._ring import kernels as _kernels
from relive.checkpoints.inspection import inspect, verify
from relive.checkpoints.salvage import salvage
from relive.cli import main
from relive.testing._lives import BACK_ENDS

GONE = "has one of `Ranked`.*it is gone: give `relive.Prioritized`, or .* of `examples/ranked_sampler.py`"
KNOWN = "Ranked(alpha=0.7, beta=0.4, eps=0.0, "
NEW = [27, 29, 30, 32]  # items that came after priorities were given


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return copied(DATA, tmp_path / "saved")


@pytest.fixture
def mapped(tmp_path: Path) -> Path:
    return unpacked(DATA / "mapped.gz", tmp_path / "steps.buf")


def assert_priorities(buffer: relive.ReplayBuffer) -> None:
    """Items have what they were given, and those that came later the largest of all, as further ones have."""
    ids = np.unique(buffer.sample(2000).ids)
    assert set(NEW) < set(ids.tolist())
    wanted = np.where(np.isin(ids, NEW), 4.5, priority_of(ids))
    np.testing.assert_allclose(buffer.priorities(ids), wanted, rtol=1e-12)
    live(buffer, STEPS + 2, STEPS + 3)
    new = np.setdiff1d(buffer.sample(2000).ids, ids)
    assert len(new) > 0
    assert buffer.priorities(new).tolist() == pytest.approx([4.5] * len(new))


@pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")
def test_an_example_draws_what_was_recorded() -> None:
    """In the last life, whose buffer has one lane: there the order of equal priorities is that of the calls."""
    batches = lives.live(lives.build("prioritized", 11, sampler=Ranked()), 11)
    drawn, weights = (np.concatenate([batch[field] for batch in batches]) for field in ("ids", "weights"))
    with np.load(DATA.parent / "draws.npz", allow_pickle=False) as recorded:
        np.testing.assert_array_equal(drawn, recorded["ranked/ids"][-len(drawn) :])
        np.testing.assert_allclose(weights, recorded["ranked/weights"][-len(drawn) :], rtol=1e-6)


@pytest.mark.parametrize("kernels", BACK_ENDS)
@pytest.mark.parametrize("sampler", [relive.Prioritized(), relive.Prioritized(newest="stored"), Ranked()], ids=repr)
def test_a_save_is_loaded_with_another_sampler(sampler: Any, kernels: str, saved: Path) -> None:
    with pytest.raises(relive.ArgumentError, match=f"`sampler=`.*save {GONE}"):
        relive.load(saved)
    assert (relive.load(saved, sampler=relive.Uniform()).sample(9).weights == 1).all()
    with _kernels.use(kernels):
        loaded = relive.load(saved, sampler=sampler)
    assert loaded.save(saved).number == 2
    assert relive.load(saved).sampler == sampler
    assert_priorities(relive.load(saved))
    assert_priorities(loaded)


def test_a_save_is_inspected_verified_and_salvaged(saved: Path, tmp_path: Path, capsys: Any) -> None:
    found = inspect(saved)
    assert found.choices["sampler"].startswith(KNOWN)
    assert sorted(set(found.priorities)) == [0.5, 1.5, 2.5, 3.5, 4.5]
    assert not found.shares.size  # how it drew is not known any more
    assert main(["inspect", str(saved)]) == 0
    assert KNOWN in capsys.readouterr().out.replace("\n", "")
    assert verify(saved) == []
    result = salvage(saved, tmp_path / "sound")
    assert result.lost == (0, 0)
    assert "`Ranked` is gone: what is written draws by `Prioritized()`" in result.problems[0]
    loaded = relive.load(tmp_path / "sound")
    assert loaded.sampler == relive.Prioritized()
    assert_priorities(loaded)
    assert salvage(saved, tmp_path / "own", sampler=relive.Uniform()).problems == ()


def test_a_mapped_file_is_opened_with_another_sampler(mapped: Path, capsys: Any) -> None:
    """Its priorities are those of a sampler of its own, as wherever a file is opened with another one."""
    with pytest.raises(relive.ArgumentError, match=f"`sampler=`.*buffer {GONE}"):
        relive.open(mapped)
    assert main(["top", str(mapped), "--json", "--interval", "0.05"]) == 0
    assert '"stored": 20' in capsys.readouterr().out
    with relive.open(mapped, sampler=relive.Prioritized()) as buffer:
        assert len(buffer) == LANES * 10
        live(buffer, STEPS + 2, STEPS + 4)
        batch = buffer.sample(50)
        np.testing.assert_array_equal(batch.action, batch.ids % LANES)
        assert buffer.update_priorities(batch.ids, np.ones(50)) == 50
