"""MuZero's targets on tic-tac-toe: unrolled actions, policies of a search, rewards of n moves and a value after them.

    python examples/tic_tac_toe.py --games 200

Games are played at random; a stand-in for the search stores a policy and a value with every move. Rewards and values
are those of the first player, so that they add up over moves of both; `side` turns a target to the player to move.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import relive

LINES = np.array([[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]])
UNROLL, TD_STEPS, GAMMA = 5, 3, 0.997


def play(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Play one game; returns the arguments of `add` for each move."""
    board, moves, over = np.zeros(9, "int8"), list[dict[str, Any]](), False
    while not over:
        side, free = 1 - 2 * (len(moves) % 2), board == 0
        policy = free / free.sum()  # a search would count visits
        move = int(rng.choice(9, p=policy))
        after = board.copy()
        after[move] = side
        won = bool((after[LINES] == side).all(axis=1).any())
        over = won or not (after == 0).any()
        found = {"policy": policy.astype("float32"), "value": rng.uniform(-1, 1), "side": side}
        step = {"obs": board, "action": move, "reward": float(side * won), "next_obs": after}
        moves.append(step | found | {"terminated": over, "truncated": False})
        board = after
    return moves


def by_hand(moves: list[dict[str, Any]], at: int) -> float:
    """Compute the target of one move from the list of moves."""
    window = moves[at : at + TD_STEPS]
    target = sum(GAMMA**k * move["reward"] for k, move in enumerate(window))
    return target + (GAMMA**TD_STEPS * moves[at + TD_STEPS]["value"] if at + TD_STEPS < len(moves) else 0.0)


def main(games: int) -> None:
    """Play, draw, and compare the targets with those of the list of moves."""
    schema = relive.Schema(
        obs=relive.Field(9, "int8"), action=relive.Field((), "int64"), policy=relive.Field(9), value=relive.Field(),
        side=relive.Field((), "int8"),
    )  # fmt: skip
    item = relive.Sequences(UNROLL, n_step=TD_STEPS, gamma=GAMMA, ahead=("value",))
    buffer = relive.ReplayBuffer(schema, 10 * games, item=item, sampler=relive.Prioritized(), seed=0)
    rng, wanted = np.random.default_rng(0), dict[int, float]()
    for _ in range(games):
        moves = play(rng)
        wanted |= {int(buffer.add(**move)[0]): by_hand(moves, at) for at, move in enumerate(moves)}
    batch = buffer.sample(32)
    targets = batch.reward + batch.discount * batch.next_value  # [B, UNROLL]
    if not np.allclose(targets[:, 0], [wanted[key] for key in batch.ids.tolist()], atol=1e-5):
        raise SystemExit("the targets differ")
    buffer.update_priorities(batch.ids, np.abs(targets[:, 0] - batch.value[:, 0]))
    print(f"{games} games, {len(buffer)} moves: actions {batch.action.shape}, policies {batch.policy.shape}")
    print("targets of the player to move", (batch.side * targets)[0].round(2).tolist(), "mask", batch.mask[0].tolist())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--games", type=int, default=200)
    main(parser.parse_args().games)
