"""A priority reaches its position, although other segments were removed since the draw; each position is drawn."""

import copy
import time
from abc import ABC, abstractmethod
from types import SimpleNamespace

import numpy as np
from source import method_of, names_of

FOLDER = "lzero/mcts/buffer/"
names = {"np": np, "time": time, "copy": copy, "ABC": ABC, "abstractmethod": abstractmethod}
names |= {"EasyDict": dict}
GameBuffer = names_of(FOLDER + "game_buffer.py", "GameBuffer", **names).GameBuffer
update = method_of(FOLDER + "game_buffer_muzero.py", "MuZeroGameBuffer", "update_priority", **names)


class Segment:
    def __init__(self, length):
        self.action_segment = [0] * length

    def __len__(self):
        return len(self.action_segment)


def made():
    methods = dict.fromkeys(GameBuffer.__abstractmethods__, lambda self: None) | {"update_priority": update}
    buffer = object.__new__(type("Buffer", (GameBuffer,), methods))
    choices = {"env_type": "not_board_games", "action_type": "fixed_action_space", "batch_size": 2}
    choices |= {"replay_buffer_size": 30, "priority_prob_alpha": 1, "priority_prob_beta": 1, "use_priority": True}
    choices |= {"game_segment_length": 10, "reanalyze_outdated": False}
    buffer.default_config = dict
    buffer.__init__(SimpleNamespace(**choices, keys=lambda: [], __getitem__=None))
    return buffer


def test_each_position_is_drawn_and_bad_priorities_are_left_out():
    buffer = made()
    buffer.push_game_segments([[Segment(10)], [{"done": True, "priorities": None, "unroll_plus_td_steps": 0}]])
    _, at, index, _, times = buffer._sample_orig_data(10)
    assert sorted(at) == list(range(10))
    buffer.update_priority([[None, index, None, times]], np.full(10, np.nan))
    buffer._sample_orig_data(10)


def test_priorities_of_a_batch_survive_a_removal():
    buffer = made()
    push = [[Segment(10)], [{"done": True, "priorities": None, "unroll_plus_td_steps": 0}]]
    for _ in range(3):
        buffer.push_game_segments(push)
    _, _, index, _, times = buffer._sample_orig_data(20)
    buffer.push_game_segments(push)
    buffer.remove_oldest_data_to_fit()
    removed = 40 - buffer.get_num_of_transitions()
    assert removed > 0
    buffer.update_priority([[None, index, None, times]], np.full(20, 7.0))
    expected = {i - removed for i in index.tolist() if i >= removed}
    assert set(np.flatnonzero(buffer.game_pos_priorities == 7.0).tolist()) == expected
