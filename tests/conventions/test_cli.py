"""The pages and the command lines know the same commands and options."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
from pathlib import Path
from unittest import mock

import pytest
from markdown_pages import PAGES, read, shell_text
from source_tree import ROOT

import relive.cli
import relive_lab.cli

# The name of the program comes first.
Words = tuple[str, ...]
PROGRAMS = {"relive": relive.cli.main, "relive-lab": relive_lab.cli.main}
ELSEWHERE = [("relive", "train"), ("relive", "compare")]  # what `relive-lab` runs


@functools.cache
def help_of(words: Words) -> str:
    """Return the output of `WORDS --help`."""
    page = io.StringIO()
    settings = mock.patch.dict(os.environ, {"COLUMNS": "400", "NO_COLOR": "1"})
    with settings, contextlib.redirect_stdout(page), pytest.raises(SystemExit) as ended:
        PROGRAMS[words[0]]([*words[1:], "--help"])
    assert not ended.value.code
    return page.getvalue()


@functools.cache
def subcommands(words: Words) -> list[str]:
    """List the commands that may follow `WORDS`; none after a whole command."""
    if words in ELSEWHERE:
        return []
    usage = next(line for line in help_of(words).splitlines() if line.startswith("usage:"))
    found = re.search(r"\{([\w,-]+)\}$", usage.strip())
    return found[1].split(",") if found else []


def commands(words: Words) -> list[Words]:
    """List every whole command."""
    following = subcommands(words)
    return [command for name in following for command in commands((*words, name))] if following else [words]


def uses(text: str) -> list[tuple[Words, list[str]]]:
    """List every use of the command line in a page: its words without options, and its options."""
    found = []
    for line in shell_text(text):
        for name, use in re.findall(r"(?:^|[\s/;&|(])(relive(?:-lab)?)((?: [^|;&#]+)?)(?![\w.\]-])", line):
            words = (name, *re.split(r" (?=-)", use, maxsplit=1)[0].split())
            if words[:2] in ELSEWHERE:
                words = ("relive-lab", *words[1:])
            if len(words) > 1 or " --" in use:
                found.append((words, re.findall(r"(?<= )--([a-z][\w-]*)", use)))
    return found


def command_of(words: Words) -> tuple[Words, str | None]:
    """Return the longest command that words start with, and the first word that should have continued it."""
    known = words[:1]
    for word in words[1:]:
        if not subcommands(known) or word == "COMMAND":
            return known, None
        if word not in subcommands(known):
            return known, word
        known = (*known, word)
    return known, None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_on_a_page_exist(page: Path) -> None:
    faults = []
    for words, options in uses(read(page)):
        command, unknown = command_of(words)
        faults += [f"`{' '.join(words)}`: no command `{unknown}`"] if unknown else []
        known = {*re.findall(r"--([a-z][\w-]*)", help_of(command)), "help"}
        faults += [f"`{' '.join(command)}`: no option `--{name}`" for name in options if name not in known]
    assert not faults


def test_every_command_is_on_some_page_and_shows_an_example() -> None:
    named = {command_of(words)[0] for page in PAGES for words, _ in uses(read(page))}
    every = [command for program in PROGRAMS for command in commands((program,)) if command not in ELSEWHERE]
    assert set(every) <= named
    for command in {*every, *(command[:-1] for command in every)} - {("relive", "shm")}:
        assert "Example:" in help_of(command), command


def test_no_group_of_options_has_a_stuttering_name() -> None:
    for command in (command for program in PROGRAMS for command in commands((program,)) if command not in ELSEWHERE):
        groups = re.findall(r"^\W*((?:\w+ )*options)\W*$", help_of(command), re.MULTILINE)
        assert groups or command == ("relive", "doctor"), command
        assert not [name for name in groups if len(set(name.split())) < len(name.split())]


def test_the_script_for_the_evidence_runs_the_commands_of_the_page() -> None:
    script = re.findall(
        r"^compare \w+ (.+)$", (ROOT / "docs" / "evidence.sh").read_text(encoding="utf-8"), re.MULTILINE
    )
    page = {line.removeprefix("relive-lab compare ") for line in shell_text(read(ROOT / "docs" / "evidence.md"))}
    assert len(script) > 4
    assert set(script) <= page


def test_meta_uses_are_found() -> None:
    page = "`relive-lab compare pairs --quick` or\n\n```sh\n.venv/bin/relive shm list --env-id X # no --no\n```\n"
    page += "`import relive`\n"
    assert uses(page) == [(("relive", "shm", "list"), ["env-id"]), (("relive-lab", "compare", "pairs"), ["quick"])]
    assert command_of(("relive-lab", "train", "ppo")) == (("relive-lab", "train"), "ppo")
