"""The documentation's pages, and how their examples are run.

A page is a story: its blocks run from top to bottom, in an empty folder and with an empty store.

=========================  ========================================================================
a block of                 is
=========================  ========================================================================
``python``                 executed, in one namespace for the page; with ``>>>``, compared as well
``python title="a.py"``    written to a file of that name (so is every other language with a title)
``console``                each ``$`` line is run by bash, and what it prints is compared
``sh``                     for the reader's machine alone, as it installs or builds: what it names must exist
``py``                     a signature, compared with the code by `test_reference`
``text``                   a picture, or words of a terminal that is not this one
=========================  ========================================================================

``...`` in expected output stands for anything, and what the shell says of a killed job is left out. A command that fails must be followed by ``$ echo $?``.
What a reader kills after some seconds (``… & sleep 4; kill -9 $!``) is killed here once it has printed what the page says.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sybil import Document
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser
from sybil.parsers.markdown.lexers import RawFencedCodeBlockLexer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sybil import Example, Region

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.rglob("*.md")), ROOT / "README.md"]

# Not run, but looked at: what they name must exist.
_INSTALL = re.compile(
    r"""(?:python -m )?pip install (?:-[-\w]+ )*["']?(?:keepstate|\.)(?:\[(?P<extras>[\w,]+)\])?["']?"""
)
_MAKE = re.compile(r"make (?P<target>[\w-]+)")
_ELSEWHERE = re.compile(r"(?:git clone|cd|python3 -m venv|source) \S+")

_KILLED = re.compile(r"(?P<command>[^&]+) & sleep [\d.]+; kill -9 \$!")
_MARK = "\x1e"
# Each shell has words of its own for a job that was killed, and says them when it likes.
_SHELLS_OWN = re.compile(r"^bash: line \d+: +\d+ Killed .*\n", re.MULTILINE)


def name_of(page: Path) -> str:
    """Return how a page is called in test ids: its path from the root."""
    return page.relative_to(ROOT).as_posix()


@dataclass
class Story:
    """One page, to be run in a folder of its own. ``replacing`` puts addresses of here for those of the text."""

    page: Path
    folder: Path
    environ: dict[str, str]
    replacing: dict[str, str] = field(default_factory=dict)

    def examples(self) -> Iterator[Example]:
        """Yield the page's examples, top to bottom."""
        text = self.page.read_text(encoding="utf-8")
        for documented, real in self.replacing.items():
            text = text.replace(documented, real)
        document = Document(text, str(self.page))
        for parser in (PythonCodeBlockParser(), SkipParser(), self._files, self._consoles):
            for region in parser(document):
                document.add(region)
        return document.examples()

    def _files(self, document: Document) -> Iterator[Region]:
        for region in RawFencedCodeBlockLexer(re.compile(r'\w+ title="(?P<title>[^"\n]+)"\n'))(document):
            region.parsed = (region.lexemes["title"], region.lexemes["source"])
            region.evaluator = self._write_file
            yield region

    def _consoles(self, document: Document) -> Iterator[Region]:
        for region in RawFencedCodeBlockLexer(re.compile(r"console\n"))(document):
            region.parsed = commands_of(region.lexemes["source"])
            region.evaluator = self._run_commands
            yield region

    def _write_file(self, example: Example) -> None:
        name, source = example.parsed
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
        if source.startswith("#!"):
            path.chmod(0o755)

    def _run_commands(self, example: Example) -> str | None:
        commands = [command for command in example.parsed if not is_for_elsewhere(command.line)]
        if not commands:
            return None
        outcomes = self._run_in_bash([command.script for command in commands])
        for place, (command, (output, code)) in enumerate(zip(commands, outcomes, strict=True)):
            if not matches(command.output, output):
                return f"$ {command.line}\n--- expected\n{command.output}\n--- got\n{output}"
            followed = commands[place + 1].line if place + 1 < len(commands) else ""
            if code != "0" and followed != "echo $?":
                return f"$ {command.line}\nfailed with {code}: follow it by `$ echo $?`, or let it work\n{output}"
        return None

    def _run_in_bash(self, lines: list[str]) -> list[tuple[str, str]]:
        """Run the lines in one shell; return what each printed, and its exit code."""
        script = "exec 2>&1\n" + "".join(
            f'{line}\n__code=$?; printf \'\\036%s\\036\' "$__code"; (exit "$__code")\n' for line in lines
        )
        path = os.pathsep.join([str(Path(sys.executable).parent), self.environ.get("PATH", os.defpath)])
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env={**self.environ, "PATH": path, "COLUMNS": "110", "NO_COLOR": "1", "TERM": "dumb"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        parts = done.stdout.split(_MARK)
        found = list(zip(parts[0::2], parts[1::2], strict=False))
        if len(found) != len(lines):
            raise AssertionError(
                f"the shell ended early, with {done.returncode}:\n{done.stdout}\n{done.stderr}"
            )
        return found


@dataclass
class Command:
    """A ``$`` line of a console block (its continuation lines too), and what is said to come out."""

    line: str
    output: str = ""

    @property
    def script(self) -> str:
        """What the shell is given for it."""
        killed = _KILLED.fullmatch(self.line)
        if killed is None:
            return self.line
        printed = ".printed"
        until = shlex.join([sys.executable, "-m", "tests.docs.until", printed])
        return (
            f"{killed['command']} > {printed} 2>&1 & "
            f"PYTHONPATH={shlex.quote(str(ROOT))} {until} $! {shlex.quote(self.output)}; kill -9 $!; cat {printed}"
        )


def commands_of(source: str) -> list[Command]:
    """Read a console block: ``$ command``, ``> continued``, and expected output."""
    commands: list[Command] = []
    continues = False
    for line in source.splitlines():
        if line.startswith("$ "):
            commands.append(Command(line[2:]))
            continues = True
        elif not commands:
            raise ValueError(f"a console block begins with `$ `, not with {line!r}")
        elif continues and (line == ">" or line.startswith("> ")):
            commands[-1].line += "\n" + line[2:]
        else:
            continues = False
            commands[-1].output += line + "\n"
    return commands


def matches(expected: str, got: str) -> bool:
    """Compare a terminal's output: ``...`` stands for anything, and a moment ago or the width of columns may differ."""
    pattern = re.escape(_stripped(expected)).replace(re.escape("..."), ".*?")
    return re.fullmatch(pattern, _stripped(_SHELLS_OWN.sub("", got)), re.DOTALL) is not None


def _stripped(text: str) -> str:
    text = re.sub(r"\b\d+ s ago\b", "just now", text)
    return "\n".join(re.sub(r"(?<=\S) {2,}", " ", line.rstrip()) for line in text.strip("\n").splitlines())


def is_for_elsewhere(line: str) -> bool:
    """Whether a command is for the reader's machine alone; what it names is checked by `test_examples`."""
    return any(pattern.fullmatch(line) for pattern in (_INSTALL, _MAKE, _ELSEWHERE))


def extras_named(line: str) -> list[str]:
    """Return the extras that a ``pip install`` line asks for."""
    found = _INSTALL.fullmatch(line)
    return found["extras"].split(",") if found and found["extras"] else []


def target_named(line: str) -> str | None:
    """Return the target that a ``make`` line asks for."""
    found = _MAKE.fullmatch(line)
    return found["target"] if found else None
