"""`keepstate demo`, as `make demo` runs it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import httpx
import pytest

if TYPE_CHECKING:
    from pathlib import Path

_TELL = "import sys; from pathlib import Path; from keepstate.demo import main; sys.exit(main(svg=Path(sys.argv[1])))"


@pytest.mark.timeout(60)
def test_three_killed_tasks_carry_on_and_the_figures_say_so(tmp_path: Path) -> None:
    """Each story has two attempts and one submission or every page; the demo's exit code is its verdict."""
    picture = tmp_path / "demo.svg"
    environment = {**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "100"}
    told = subprocess.run(
        [sys.executable, "-c", _TELL, str(picture)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    rows = {
        match[1]: match[2].split()
        for match in re.finditer(r"^ *(\S.*?\S)  +(2 .*)$", told.stdout, re.MULTILINE)
    }
    assert rows["report over SSH"] == ["2", "1", "-", "-", "✓"]
    assert rows["300 pages"][:3] == ["2", "-", "300"]
    assert int(rows["300 pages"][3]) <= 1
    assert rows["killed while submitting"] == ["2", "1", "-", "-", "✓"]
    assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", picture.read_text(encoding="utf-8")).replace(
        "<!-- Generated with Rich https://www.textualize.io -->", ""
    )


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_pages_show_what_the_stories_left_behind(tmp_path: Path) -> None:
    """The link logs in once, and the three stories are there; Ctrl-C ends it well."""
    environment = {**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "100", "BROWSER": "true"}
    command = [sys.executable, "-u", "-m", "keepstate", "demo", "--serve"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        link = next(line.strip() for line in process.stdout if "/login?code=" in line)
        with httpx.Client(base_url=link.partition("/login")[0], timeout=20) as client:
            assert client.get(link).status_code == 303
            listed = client.get("/dags").text
            for dag in ("ssh_job", "pages", "submit_window"):
                assert f'href="/dags/{dag}"' in listed
            task = client.get("/dags/pages/runs/night/tasks/read_pages").text
            assert "300 of 300, finished" in task
            assert "Attempt 2" in task
        process.send_signal(signal.SIGINT)
        assert process.wait(40) == 0
