"""A run that is saved, ended or killed, and resumed is the run that was never ended, to the bit."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from depth import some
from gymnasium import wrappers
from needs import needs
from resumed_runs import KILLED_AT, RUNS, SAVE_EVERY, TOTAL, differences, killed, run, whole
from trainer_toys import Toy, small

from relive.errors import ArgumentError, CorruptionError, ReliveWarning, StorageError
from relive_lab import SACConfig, SACTrainer, saving
from relive_lab.environments import makers, vectorize
from relive_lab.state import Packer, Unpacker, Unrestorable


@cache
def unbroken(name: str) -> dict[str, Any]:
    trainer = run(name)
    trainer.train()
    return whole(trainer)


def resumed(name: str, out: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return RUNS[name][0].load(out)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_was_ended_goes_on_to_the_bit(name: str, tmp_path: Path) -> None:
    first = run(name)
    first.train(lambda now: now.step < 140, out=tmp_path)
    assert first.step == 140
    second = resumed(name, tmp_path)
    assert not differences(whole(first), whole(second))
    second = resumed(name, tmp_path)  # `whole` has drawn
    second.train(out=tmp_path)
    assert not differences(unbroken(name), whole(second))
    assert not differences(unbroken(name), whole(resumed(name, tmp_path)))


@pytest.mark.parametrize("name", some(RUNS, 1))
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_run_that_was_killed_goes_on_from_its_last_save(name: str, tmp_path: Path) -> None:
    # Autograd's threads of devices do not outlive a fork.
    context: Any = multiprocessing.get_context("spawn" if torch.cuda.is_available() else "fork")
    process = context.Process(target=killed, args=(name, tmp_path))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    trainer = resumed(name, tmp_path)
    # The last save may still have been under way.
    assert trainer.step in [KILLED_AT // SAVE_EVERY * SAVE_EVERY - back for back in (0, SAVE_EVERY)]
    trainer.train()
    assert not differences(unbroken(name), whole(trainer))


def test_kills_between_the_buffer_and_the_learner_leave_a_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("dqn").train(lambda now: now.step < 140, out=tmp_path)
    for _ in range(3):
        trainer = resumed("dqn", tmp_path)
        assert trainer.step == 140
        with monkeypatch.context() as patch:
            patch.setattr(saving, "write", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            for _ in range(2):  # the second one, where the process survives
                with pytest.raises(KeyboardInterrupt):
                    trainer.save(tmp_path)
    last = resumed("dqn", tmp_path)
    last.train(out=tmp_path)
    assert not differences(unbroken("dqn"), whole(last))
    assert len([*tmp_path.glob("buffer/save-*")]) == 2


def test_training_goes_on_while_a_save_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, steps, at_end = saving.write, [], threading.Event()
    trainer = run("dqn")

    def slow(path: Any, tensors: Any, text: str, buffer: int) -> None:
        if 0 < json.loads(text)["step"] < TOTAL:
            at_end.wait(60)
            steps.append((json.loads(text)["step"], trainer.run._collector.step))
        write(path, tensors, text, buffer)

    monkeypatch.setattr(saving, "write", slow)

    collect = trainer.run._collector.collect

    def stepping() -> int:
        done: int = collect()
        if trainer.run._collector.step >= 2 * SAVE_EVERY - 2:  # at the next step the second save waits for the first
            at_end.set()
        return done

    monkeypatch.setattr(trainer.run._collector, "collect", stepping)
    trainer.train(out=tmp_path)
    assert steps[0][0] == SAVE_EVERY
    assert steps[0][1] >= 2 * SAVE_EVERY - 2
    assert not differences(unbroken("dqn"), whole(resumed("dqn", tmp_path)))


def test_what_a_save_behind_the_training_could_not_write_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = run("dqn")
    trainer.save(tmp_path)
    before = (tmp_path / saving.LEARNER).read_bytes()
    trainer.train(lambda now: False)
    with monkeypatch.context() as patch:
        patch.setattr(saving, "write", lambda *_: (_ for _ in ()).throw(OSError("no room")))
        trainer.save(tmp_path, wait=False)
        with pytest.raises(OSError, match="no room"):
            trainer.close()
    assert (tmp_path / saving.LEARNER).read_bytes() == before
    trainer.save(tmp_path)
    assert resumed("dqn", tmp_path).step == trainer.step > 0


def test_another_call_of_train_goes_on_in_the_middle_of_episodes() -> None:
    trainer = run("sac")
    trainer.train(lambda now: False)
    trainer.train()
    assert not differences(unbroken("sac"), whole(trainer))


def test_a_run_can_go_on_in_another_folder_and_under_other_settings(tmp_path: Path) -> None:
    run("dqn").train(lambda now: now.step < 140, out=tmp_path / "a")
    changes = {"use_per": False, "n_step": 1, "buffer_capacity": 150, "total_steps": 200}
    trainer: Any = RUNS["dqn"][0].load(tmp_path / "a", **changes)
    assert len(trainer.buffer) > 100
    assert trainer.train(out=tmp_path / "b").steps == 200
    assert resumed("dqn", tmp_path / "a").step == 140
    assert resumed("dqn", tmp_path / "b").config.n_step == 1


class Telling(Toy):
    """A toy that says where it stands."""

    def state(self) -> dict[str, Any]:
        return {"rng": self.np_random, "bar": self.bar}

    def restore(self, state: dict[str, Any]) -> None:
        self.np_random, self.bar = state["rng"], state["bar"]


def test_an_environment_of_ones_own_is_restored_if_it_says_how(tmp_path: Path) -> None:
    results = []
    for make in (Telling, Toy):
        whole_run = SACTrainer(small(), make_env=make).train()
        out = tmp_path / make.__name__
        SACTrainer(small(eval_every=25), make_env=make).train(lambda now: now.step < 75, out=out)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            trainer = SACTrainer.load(out, make_env=make, eval_every=60)
        result = trainer.train()
        results.append((whole_run.episode_returns.tolist(), result.episode_returns.tolist(), said))
        cuts = trainer.buffer.stats().cuts
    (one, other, nothing), (before, after, said) = results
    assert one == other
    assert not nothing
    # Seven episodes of ten steps, and then new ones.
    assert before[:7] == after[:7]
    assert before != after
    assert (cuts, len(said), said[0].category) == (1, 1, ReliveWarning)
    text = (
        "New episodes begin: the environment cannot be put back into its state (`trainer_toys.Toy` has no `state()` and"
    )
    assert text in str(said[0].message)


def dressed(env: Any) -> Any:
    env = wrappers.NormalizeReward(wrappers.NormalizeObservation(env))
    return wrappers.FrameStackObservation(wrappers.RecordEpisodeStatistics(wrappers.StickyAction(env, 0.3)), 3)


ENVS = ["CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCarContinuous-v0", "relive/TMaze-v0",
        "relive/PairsTrading-v0", "Ant-v5", "Humanoid-v5", "Pusher-v5"]  # fmt: skip


# FrozenLake's observations are numbers of states, which the wrappers do not take.
@pytest.mark.parametrize(
    ("env_id", "wrap"), [("FrozenLake-v1", None), *((name, wrap) for name in ENVS for wrap in some((dressed, None), 1))]
)
def test_environments_are_put_back_to_the_bit(
    env_id: str, wrap: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where MuJoCo writes its warnings
    if env_id[:3] in ("Ant", "Hum", "Pus"):
        pytest.importorskip("mujoco")
    make = makers(SACConfig(env_id=env_id))[0]
    old, new = (vectorize(make if wrap is None else lambda: wrap(make()), 2) for _ in range(2))
    old.reset(seed=3)
    old.action_space.seed(0)
    for _ in range(45):
        old.step(old.action_space.sample())
    packer = Packer()
    text = json.dumps(packer.pack(old))
    Unpacker(lambda name: packer.arrays[name]).unpack(json.loads(text), new)
    for _ in range(100):
        actions = old.action_space.sample()
        for one, other in zip(old.step(actions)[:4], new.step(actions)[:4], strict=True):
            assert one.tobytes() == other.tobytes()


def test_what_cannot_be_put_back_is_named() -> None:
    class Holder(gymnasium.Wrapper[Any, Any, Any, Any]):
        thing: Any = None

    Holder.__module__ = "gymnasium.wrappers.holder"
    shared = np.zeros(4)
    for thing, text in (
        (object(), "`builtins.object` has no"),
        ([shared, shared[1:]], "two arrays that share memory"),
        ((gymnasium.spaces.Discrete(3),), "`gymnasium.spaces.discrete.Discrete` in a tuple"),
        (np.array([object()]), "an array of dtype `object`"),
        (lambda: shared, "`builtins.function` has no"),
    ):
        env = Holder(gymnasium.make("CartPole-v1"))
        env.thing = thing
        with pytest.raises(Unrestorable, match=text):
            Packer().pack(env)


@pytest.mark.parametrize(
    "packed",
    [
        ["object", {"step": 3}],
        ["object", {"num_envs": ["array", ["9", "<f8", [1]]]}],
        ["object", {"num_envs": ["array", ["0", "|O8", [1]]]}],
        ["object", {"num_envs": ["same", 7]}],
        ["object", {"num_envs": ["generator", {"bit_generator": "os"}]}],
        ["object", {"envs": ["list", [["object", {}]] * 5]}],
        ["own", {}],
        ["simulation", {}],
        ["what", 3],
        [],
    ],
)
def test_a_state_that_does_not_fit_is_refused(packed: Any) -> None:
    envs = vectorize(makers(SACConfig())[0], 1)
    with pytest.raises((ValueError, LookupError, TypeError, AttributeError)):
        Unpacker(lambda name: {"0": np.zeros(8, np.uint8)}[name]).unpack(packed, envs)


def test_what_cannot_be_resumed_is_refused(tmp_path: Path) -> None:
    SACTrainer(small(), make_env=Telling).train(out=tmp_path / "a")
    for changes, text in (({"seed": 1}, "Expected 0, as in the run, got `1`"), ({"num_envs": 2}, "Expected 1, as in")):
        with pytest.raises(ArgumentError, match=text):
            SACTrainer.load(tmp_path / "a", make_env=Telling, **changes)
    with pytest.raises(StorageError, match="saves of another buffer"):
        SACTrainer(small(), make_env=Telling).train(out=tmp_path / "a")
    (steps,) = (tmp_path / "a" / "buffer").glob("steps-*")
    data = bytearray(steps.read_bytes())
    data[len(data) // 2] ^= 1
    steps.write_bytes(data)
    with pytest.raises(CorruptionError, match=steps.name):
        SACTrainer.load(tmp_path / "a", make_env=Telling)


def test_a_resumed_run_hides_the_entries_of_the_killed_one(tmp_path: Path) -> None:
    EventAccumulator = needs("tensorboard.backend.event_processing.event_accumulator").EventAccumulator

    config = small(log_dir=str(tmp_path / "events"), log_every=10)
    first = SACTrainer(config, make_env=Telling)
    first.train(lambda now: now.step < 60, out=tmp_path)
    first.train()
    first.close()
    second = SACTrainer.load(tmp_path, make_env=Telling)
    second.train()
    second.close()
    events = EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    assert [event.step for event in events.Scalars("buffer/size")] == [*range(10, 121, 10)]
