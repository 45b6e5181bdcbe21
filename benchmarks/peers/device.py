"""Buffers whose steps lie on a device: relive's, a class of tensors written by hand, TorchRL's, and a plain copy.

The device is PyTorch's GPU where there is one, else the CPU.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from itertools import cycle, islice
from typing import Any

from benchmarks.peers.base import Peer, Spec, Unsupported
from benchmarks.question import Run
from benchmarks.workload import ACTION_SIZE, ALPHA, BETA, Array, Step, lane_steps

TURNS = 16  # steps of all lanes that are added over and over, and turns of a captured graph
Work = Callable[[int], None]
"""Makes so many turns."""


def gpu() -> str | None:
    """Return the name of the GPU that PyTorch sees; None where there is none."""
    try:
        import torch
    except ImportError:
        return None
    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


class OnDevice(Peer):
    """The common part of buffers on a device: tensors go in and come out, and on a GPU its own clock counts."""

    output = "torch"
    no_graph = ""  # why its calls are not captured in a CUDA graph

    def __init__(self) -> None:
        super().__init__()
        self.torch: Any = importlib.import_module("torch")
        self.device = "cuda" if self.torch.cuda.is_available() else "cpu"

    def make(self, spec: Spec) -> None:
        self.lanes = spec.num_envs
        self.build(spec)
        self.steps = cycle(self.prepare_steps(lane_steps(self.lanes, TURNS, obs_size=spec.obs_size)))

    def build(self, spec: Spec) -> None:
        """Make the buffer itself."""
        raise NotImplementedError

    def drop(self) -> None:
        super().drop()
        self.steps = cycle([])

    def fill(self, count: int) -> None:
        self.add_lanes(islice(self.steps, count // self.lanes))

    def tensors(self, step: Step) -> Step:
        """Return one step of all lanes, on the device."""
        return Step(*(self.torch.from_numpy(column).to(self.device) for column in step))

    def prepare_steps(self, steps: Sequence[Step]) -> Sequence[Any]:
        return [self.tensors(step) for step in steps]

    def prepare_errors(self, errors: list[Array]) -> list[Any]:
        return [self.torch.from_numpy(error).to(self.device) for error in errors]

    def nbytes(self) -> int:
        """Count the bytes of the buffer's tensors, if it keeps steps."""
        return 0

    def on_clock(self, work: Work, *, captured: bool) -> Run:
        """Return work that a GPU times by events around all its turns; on a CPU the caller's clock counts.

        Args:
            work: Makes so many turns.
            captured: Time replays of a graph of several turns instead.
        """
        if self.device == "cpu":
            return lambda calls: work(calls)
        if captured and self.no_graph:
            raise Unsupported(self.no_graph)
        cuda, turns, each = self.torch.cuda, self.graph(work) if captured else work, TURNS if captured else 1

        def run(calls: int) -> tuple[float, float]:
            begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
            times = -(-calls // each)
            begin.record()
            turns(times)
            end.record()
            end.synchronize()
            seconds = begin.elapsed_time(end) * 1e-3 * calls / (times * each)
            return seconds, seconds  # nothing else has the GPU

        return run

    def graph(self, work: Work) -> Work:
        cuda = self.torch.cuda
        aside = cuda.Stream()
        aside.wait_stream(cuda.current_stream())
        with cuda.stream(aside):
            work(TURNS)  # kernels are compiled, and memory is there
        cuda.current_stream().wait_stream(aside)
        made = cuda.CUDAGraph()
        with cuda.graph(made):
            work(TURNS)

        def replays(times: int) -> None:
            for _ in range(times):
                made.replay()

        return replays


class ReliveOnDevice(OnDevice):
    """`DeviceBuffer`."""

    name = package = module = "relive"
    object_ = "DeviceBuffer"

    def build(self, spec: Spec) -> None:
        relive = self.lib
        schema = relive.Schema(obs=relive.Field((spec.obs_size,)), action=relive.Field((ACTION_SIZE,)))
        sampler = relive.Prioritized(alpha=ALPHA, beta=BETA) if spec.prioritized else relive.Uniform()
        # A generator of its own would have to be registered with each graph.
        choices = {"num_envs": spec.num_envs, "sampler": sampler, "device": self.device}
        self.buffer = relive.DeviceBuffer(schema, spec.capacity, **choices)

    def nbytes(self) -> int:
        return int(self.buffer.nbytes)

    def add_lanes(self, steps: Iterable[Step]) -> None:
        buffer = self.buffer
        for obs, action, reward, next_obs, terminated, truncated in steps:
            buffer.add(
                obs=obs, action=action, reward=reward, next_obs=next_obs, terminated=terminated, truncated=truncated,
                continues=True,
            )  # fmt: skip

    def sample(self, n: int, calls: int) -> None:
        for _ in range(calls):
            self.buffer.sample(n)

    def draw(self, n: int) -> Any:
        return self.buffer.sample(n)

    def update(self, drawn: Any, error: Any) -> None:
        self.buffer.update_priorities(drawn.ids, error)


class TensorsByHand(OnDevice):
    """Tensors `[lanes, rows, ...]` with both observations, as FastTD3's class has them, which is on no package index.

    Priorities are masses in float64, summed anew by `cumsum` for each draw and found by `searchsorted`.
    """

    name = package = module = "torch"
    object_ = "Tensor"

    def build(self, spec: Spec) -> None:
        torch, self.rows = self.torch, spec.capacity // self.lanes
        shapes = [(spec.obs_size,), (ACTION_SIZE,), (), (spec.obs_size,), (), ()]
        kinds = [torch.float32] * 4 + [torch.int64] * 2
        self.columns = [self._new(*shape, kind=kind) for shape, kind in zip(shapes, kinds, strict=True)]
        self.masses: Any = self._new(kind=torch.float64) if spec.prioritized else None
        self.largest = torch.ones((), dtype=torch.float64, device=self.device)
        self.row, self.row_there = 0, torch.zeros(1, dtype=torch.int64, device=self.device)

    def _new(self, *shape: int, kind: Any) -> Any:
        return self.torch.zeros(self.lanes, self.rows, *shape, dtype=kind, device=self.device)

    def drop(self) -> None:
        super().drop()
        self.columns, self.masses = [], None

    def nbytes(self) -> int:
        masses = [] if self.masses is None else [self.masses]
        return sum(column.nbytes for column in (*self.columns, *masses))

    def _next(self) -> Any:
        """Advance to the row that is written: a slice; in a graph, whose replays are alike, a number on the device."""
        if self.device == "cuda" and self.torch.cuda.is_current_stream_capturing():
            return self.row_there.add_(1).remainder_(self.rows)
        self.row = (self.row + 1) % self.rows
        return slice(self.row, self.row + 1)

    def add_lanes(self, steps: Iterable[Step]) -> None:
        for step in steps:
            row = self._next()
            for column, values in zip(self.columns, step, strict=True):
                column[:, row] = values[:, None].to(column.dtype)
            if self.masses is not None:
                self.masses[:, row] = self.largest

    def _take(self, index: Any) -> list[Any]:
        return [column.flatten(0, 1).index_select(0, index) for column in self.columns]

    def sample(self, n: int, calls: int) -> None:
        for _ in range(calls):
            self._take(self.torch.randint(self.lanes * self.rows, (n,), device=self.device))

    def draw(self, n: int) -> Any:
        torch, masses = self.torch, self.masses.flatten()
        sums = masses.cumsum(0)
        shares = torch.rand(n, dtype=torch.float64, device=self.device)
        index = torch.searchsorted(sums, shares * sums[-1], right=True).clamp_(max=len(sums) - 1)
        weights = (masses[index] / sums[-1] * len(sums)) ** -BETA
        return index, self._take(index), (weights / weights.max()).float()

    def update(self, drawn: Any, error: Any) -> None:
        given = (error.double().abs() + 1e-6) ** ALPHA
        self.masses.flatten()[drawn[0]] = given
        self.largest.copy_(self.torch.maximum(self.largest, given.max()))


class CopyOnDevice(OnDevice):
    """A `clone` of as many bytes as relive's batch has, from several places in turn, which no cache holds together."""

    name = package = module = "torch"
    prioritized = False
    places = 8

    def build(self, spec: Spec) -> None:
        relive = ReliveOnDevice()
        relive.device = "cpu"
        relive.ensure(Spec(1, obs_size=spec.obs_size), fill=1)
        self.each = sum(values.nbytes for values in relive.draw(1).values())
        self.source = self.torch.empty(0)

    def fill(self, count: int) -> None:
        pass

    def sample(self, n: int, calls: int) -> None:
        if self.source.shape[-1] != n * self.each:
            self.source = self.torch.ones((self.places, n * self.each), dtype=self.torch.uint8, device=self.device)
        for call in range(calls):
            self.source[call % self.places].clone()


class TorchrlOnDevice(OnDevice):
    """A `LazyTensorStorage` on the device, with its prioritized sampler; the version says where that keeps its tree."""

    name = package = "torchrl"
    module = "torchrl.data"
    object_ = "ReplayBuffer"
    no_graph = "not captured: its adds and updates pick rows by a mask, which waits for the device"

    def __init__(self) -> None:
        super().__init__()
        self.tensordict: Any = importlib.import_module("tensordict").TensorDict
        importlib.import_module("torchrl").logger.setLevel("ERROR")

    def version(self) -> str:
        try:
            sampler = self.prioritized_sampler(1)
        except Unsupported:
            return super().version()
        tree = str(sampler.device.type).upper()
        return f"{super().version()}, {tree} tree"

    def prioritized_sampler(self, capacity: int) -> Any:
        """Make a sampler on the GPU if its compiled part supports that, else on the CPU."""
        kind = importlib.import_module("torchrl.data.replay_buffers.samplers").PrioritizedSampler
        for device in dict.fromkeys((self.device, "cpu")):
            try:
                return kind(capacity, alpha=ALPHA, beta=BETA, device=device)
            except RuntimeError:
                continue
        raise Unsupported("its prioritized samplers need its compiled part, which does not load with this PyTorch")

    def build(self, spec: Spec) -> None:
        sampler = self.prioritized_sampler(spec.capacity) if spec.prioritized else self.lib.RandomSampler()
        storage = self.lib.LazyTensorStorage(spec.capacity, device=self.device)
        self.buffer = self.lib.ReplayBuffer(storage=storage, sampler=sampler)

    def nbytes(self) -> int:
        return sum(leaf.nbytes for leaf in self.buffer[:].values(include_nested=True, leaves_only=True))

    def prepare_steps(self, steps: Sequence[Step]) -> Sequence[Any]:
        """Convert steps to the layout of its environments."""
        return [self._packed(self.tensors(step)) for step in steps]

    def _packed(self, step: Step) -> Any:
        flags = {"terminated": step.terminated, "truncated": step.truncated, "done": step.terminated | step.truncated}
        after = {name: column[:, None] for name, column in {"reward": step.reward, **flags}.items()}
        rows = {"observation": step.obs, "action": step.action, "next": {"observation": step.next_obs, **after}}
        return self.tensordict(rows, [self.lanes], device=self.device)

    def add_lanes(self, steps: Iterable[Any]) -> None:
        for rows in steps:
            self.buffer.extend(rows)

    def sample(self, n: int, calls: int) -> None:
        for _ in range(calls):
            self.buffer.sample(n)

    def draw(self, n: int) -> Any:
        return self.buffer.sample(n, return_info=True)

    def update(self, drawn: Any, error: Any) -> None:
        self.buffer.update_priority(drawn[1]["index"], error)
