"""Saving a buffer and loading it again: exact, incremental, and safe against kills and power loss.

FORMAT.md describes the files, ARCHITECTURE.md what each module here does.
"""
