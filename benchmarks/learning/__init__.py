"""Do DQN and SAC of other libraries learn the same with relive's buffer as with their own, and at what cost?

    python -m benchmarks.learning runs/learning.jsonl [--libraries sb3 cleanrl] [--tasks dqn sac] [--seeds 5]

Every run adds a line to the file; a run whose line is there is not made again. At the end, or with `--report` alone,
the tables are printed. `docs/stable-baselines3.md` and `docs/switch.md` show them.
"""
