"""`ReplayBuffer.prefetch` and `Prefetch`: the batches of plain draws, in a thread that always ends."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from children import run_program
from depth import LONG, eventually
from forking import forked
from needs import needs

import relive
from relive.testing.agreement import assert_same_batch
from relive.trajectories import Prefetch

SAMPLERS = {
    "uniform": relive.Uniform(),
    "without replacement": relive.Uniform(replacement=False),
    "episodes": relive.Uniform(over="episodes"),
    "prioritized": relive.Prioritized(beta=relive.Anneal(0.4, 1.0, over=5)),
}
ITEMS = {
    "transitions": relive.Transitions(n_step=3),
    "sequences": relive.Sequences(5, burn_in=2, n_step=2),
}
WIDTH = 300  # floats: batches of leased memory


def make(steps: int = 300, **choices: object) -> relive.ReplayBuffer:
    schema = relive.Schema(obs=relive.Field((WIDTH,)), action=relive.Field())
    buffer = relive.ReplayBuffer(schema, 400, seed=3, **choices)
    if steps:
        extend(buffer, steps)
    return buffer


def extend(buffer: relive.ReplayBuffer, steps: int) -> None:
    t = np.arange(steps, dtype=np.float32)
    obs, ends = np.repeat(t[:, None], WIDTH, 1), t % 50 == 49
    step = {"obs": obs, "action": t, "reward": t, "next_obs": obs + 1, "terminated": ends, "truncated": ends & False}
    buffer.extend(**step)


class Numbers:
    """A source that counts its draws, and fails at one of them."""

    def __init__(self, error: type[Exception] | None = None) -> None:
        self.draws, self.error, self.may_go_on = 0, error, threading.Event()
        self.may_go_on.set()

    def sample(self, n: int) -> relive.Batch:
        self.may_go_on.wait(30)
        self.draws += 1
        if self.error and self.draws == 3:
            raise self.error("the third")
        return relive.Batch({"number": np.full(n, self.draws)})


def alive() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "relive-prefetch"]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> object:
    yield
    eventually(lambda: not alive())


@pytest.fixture
def _impatient_interpreter() -> object:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_it_draws_what_plain_draws_would(sampler: str, item: str) -> None:
    choices = {"sampler": SAMPLERS[sampler], "item": ITEMS[item]}
    ahead, plain = make(**choices), make(**choices)
    with ahead.prefetch(16, depth=3) as batches:
        drawn = [next(batches) for _ in range(12)]  # all are kept: none may be written over
        assert ahead.stats().drawn == 12 * 16
        eventually(lambda: batches._worker.ready.qsize() == 3)
    for batch in drawn:
        assert_same_batch(batch, plain.sample(16))
    assert ahead.stats().drawn == plain.stats().drawn == 12 * 16  # not those that were dropped
    for _ in range(3):
        plain.sample(16)
    assert_same_batch(ahead.sample(16), plain.sample(16))  # they moved the generator, and the clock of beta


def test_beta_is_that_of_the_draws() -> None:
    ahead, plain = make(sampler=relive.Prioritized()), make(sampler=relive.Prioritized())
    for buffer in (ahead, plain):
        buffer.update_priorities(np.arange(40), np.arange(40))
    with ahead.prefetch(16, beta=0.9) as batches:
        np.testing.assert_array_equal(next(batches).weights, plain.sample(16, beta=0.9).weights)


@pytest.mark.parametrize("to", ["torch", "jax"])
def test_batches_are_converted(to: str) -> None:
    library = needs(to)
    kind = library.Tensor if to == "torch" else library.Array
    for device in (None, "cpu" if to == "torch" else library.devices("cpu")[0]):
        with make().prefetch(32, to=to, device=device) as batches:
            batch = next(batches)
            assert isinstance(batch["obs"], kind)
            np.testing.assert_array_equal(np.asarray(batch["obs"]), make().sample(32).obs)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"batch_size": 0}, "Expected an integer >= 1, got `0` - at `ReplayBuffer.prefetch(batch_size)`"),
        ({"depth": 0}, "Expected an integer >= 1, got `0` - at `ReplayBuffer.prefetch(depth)`"),
        ({"to": "tf"}, "Expected one of `'numpy'`, `'torch'`, `'jax'`, got `'tf'` - at `ReplayBuffer.prefetch(to)`"),
        ({"beta": -1}, "Expected a finite number >= 0, got `-1` - at `ReplayBuffer.prefetch(beta)`"),
        ({"beta": 1}, "Expected a sampler with priorities, got `Uniform()` - at `ReplayBuffer.prefetch(beta)`: use "),
        ({"device": "cuda"}, 'Expected `to="torch"` or `to="jax"`, got a device, `\'cuda\'` - at '),
        ({"source": Numbers(), "batch_size": 0}, "Expected an integer >= 1, got `0` - at `Prefetch(batch_size)`"),
        ({"source": Numbers(), "batches": -1}, "Expected an integer >= 0, got `-1` - at `Prefetch(batches)`"),
        ({"source": Numbers(), "ahead": 0}, "Expected an integer >= 1, got `0` - at `Prefetch(ahead)`"),
        ({"source": []}, "Expected something with `sample`, got `list` - at `Prefetch(source)`"),
    ],
)
def test_wrong_arguments_are_refused_at_once(arguments: dict[str, Any], text: str) -> None:
    call = Prefetch if "source" in arguments else make().prefetch
    with pytest.raises(relive.ArgumentError) as caught:
        call(**{"batch_size": 4, **arguments})
    assert str(caught.value).startswith(text)


def test_a_missing_package_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(relive.MissingExtra, match="pip install"):
        make().prefetch(4, to="jax")


@pytest.mark.parametrize("number", [0, 5])
def test_it_ends_after_as_many_batches_as_asked_for(number: int) -> None:
    source = Numbers()
    assert [batch.number[0] for batch in Prefetch(source, 2, batches=number)] == [*range(1, number + 1)]
    assert source.draws == number
    assert not alive()


def test_it_draws_ahead_but_not_further() -> None:
    source = Numbers()
    with Prefetch(source, 1, ahead=3) as batches:
        eventually(lambda: source.draws == 3)
        time.sleep(0.05)
        assert source.draws == 3
        next(batches)
        eventually(lambda: source.draws == 4)
    assert not alive()


@pytest.mark.parametrize(
    ("error", "text"), [(relive.StorageError, "the third"), (StopIteration, "raised `StopIteration` - at `Prefetch`")]
)
def test_an_error_takes_the_place_of_its_batch_and_ends_it(error: type[Exception], text: str) -> None:
    batches = Prefetch(Numbers(error), 1, ahead=5)
    assert [next(batches).number[0], next(batches).number[0]] == [1, 2]
    with pytest.raises(relive.ReliveError, match=text):
        next(batches)
    assert list(batches) == []
    assert not alive()


def test_it_is_closed_twice_and_while_another_thread_waits() -> None:
    source = Numbers()
    source.may_go_on.clear()
    batches = Prefetch(source, 1)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(list, batches)
        eventually(alive)
        closing = pool.submit(batches.close)
        eventually(lambda: batches._worker.stopped)
        source.may_go_on.set()
        assert (waiting.result(30), closing.result(30)) == ([], None)
    batches.close()
    assert list(batches) == []
    assert not alive()


def test_it_starts_when_it_is_needed() -> None:
    buffer = make(steps=0)
    with pytest.raises(relive.NotEnoughData, match="Expected at least 1 drawable item, got 0"):
        next(buffer.prefetch(4))
    batches = buffer.prefetch(4)
    extend(buffer, 10)
    assert len(next(batches).ids) == 4
    batches.close()


def test_it_ends_with_whoever_has_it() -> None:
    buffer = make()
    batches = iter(buffer.prefetch(4))
    next(batches)
    assert alive()
    del batches
    gc.collect()
    eventually(lambda: not alive())
    assert buffer.stats().drawn == 4


def test_ctrl_c_ends_a_wait_for_a_batch() -> None:
    buffer = make(limiter=relive.RateLimiter(1, min_size=1000))
    handler = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt), buffer.prefetch(4) as batches:
            next(batches)
    finally:
        signal.signal(signal.SIGALRM, handler)
    assert buffer.stats().drawn == 0


def test_priorities_may_be_updated_meanwhile() -> None:
    buffer = make(sampler=relive.Prioritized())
    with buffer.prefetch(32) as batches:
        for number, batch in zip(range(50), batches, strict=False):
            assert buffer.update_priorities(batch.ids, np.full(32, float(number))) == 32
            assert buffer.priorities(batch.ids).tolist() == pytest.approx([number] * 32, abs=1e-5)
            extend(buffer, 1)


def test_a_limiter_holds_draws_ahead_back_and_does_not_count_what_is_dropped() -> None:
    buffer = make(steps=0, limiter=relive.RateLimiter(1, min_size=10, error_buffer=10))
    extend(buffer, 20)  # of these 20 items may be drawn now
    with buffer.prefetch(4, depth=9) as batches:
        eventually(lambda: not buffer.can_sample(1))  # 5 batches wait, for which nobody has asked
        assert buffer.stats().limiter.samples == 0
        next(batches), next(batches)
        assert buffer.stats().limiter.samples == buffer.stats().drawn == 8
    assert buffer.stats().limiter.samples == 8
    assert buffer.can_sample(12)
    assert not buffer.can_sample(13)


def test_a_wait_that_takes_too_long_is_raised_by_the_consumer() -> None:
    buffer = make(steps=20, limiter=relive.RateLimiter(1, min_size=30, timeout=0.05))
    with buffer.prefetch(4) as batches, pytest.raises(relive.RateLimitTimeout):
        next(batches)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
@pytest.mark.usefixtures("_impatient_interpreter")
@pytest.mark.filterwarnings("ignore:os.fork")  # JAX, where it is installed and was used before
def test_a_forked_child_has_the_buffer_but_not_the_thread() -> None:
    buffer = make(sampler=relive.Prioritized())
    with buffer.prefetch(64, depth=2) as batches:

        def child() -> None:
            signal.alarm(60)
            buffer.sample(4)
            with pytest.raises(relive.ReliveError, match="stayed in the process"):
                next(batches)
            batches.close()

        for number in range(30 if LONG else 8):
            next(batches)
            time.sleep(number * 30e-6)  # the thread is drawing, or about to
            with forked(child):
                pass
        assert len(next(batches).ids) == 64


def test_the_interpreter_ends_with_a_thread_that_draws() -> None:
    code = "from test_prefetch import make\nkept = make().prefetch(64)\nnext(kept)\nprint('end')"
    done = run_program(code, path=[*filter(None, sys.path)])  # with the folders of what tests share
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")
