"""Schemathesis makes requests from the OpenAPI document, good and bad, and holds the answers to it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from keepstate.retention import NEVER_EXPIRE
from tests.server.rest.places import DAG, RUN, TASK
from tests.server.rest.test_roles import RIGHTS

if TYPE_CHECKING:
    from keepstate.store import StateStore
    from tests.support.served import Served

ROOT = Path(__file__).parents[3]

CONFIG = """
[checks]
# most of what it names is not there, and a condition need not hold
positive_data_acceptance.expected-statuses = ["2xx", "404", "412"]
"""


@pytest.mark.parametrize(
    ("examples", "seed"),
    [
        pytest.param(8, 1, id="short"),
        *(pytest.param(200, seed, marks=[pytest.mark.slow, pytest.mark.timeout(1800)]) for seed in range(3)),
    ],
)
def test_schemathesis_finds_nothing(
    monkeypatch: pytest.MonkeyPatch,
    store: StateStore,
    served: Served,
    tmp_path: Path,
    examples: int,
    seed: int,
) -> None:
    """No answer that the document does not have, no 500, no bad request that is taken and no good one that is refused."""
    # it tries wrong tokens for each operation, which after some would be 429
    monkeypatch.setattr("keepstate.server.failures.ALLOWED", 1_000_000)
    for index in (-1, 0):
        store.task(DAG, RUN, TASK, map_index=index, try_number=1).set("k", 1, retention=NEVER_EXPIRE)
    store.asset("orders", uri="s3://orders").set("k", 1)
    config = tmp_path / "schemathesis.toml"
    config.write_text(CONFIG)
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run"]
    options = {
        "--header": f"Authorization: Bearer {served.token()}",
        "--include-path-regex": "^/api/v2/",
        "--phases": "coverage,fuzzing",
        "--max-examples": str(examples),
        "--seed": str(seed),
        # more than one meets a fault of Python's own parser under threads
        "--workers": "1",
    }
    arguments = [argument for pair in options.items() for argument in pair]
    environment = {
        **os.environ,
        "SCHEMATHESIS_HOOKS": "tests.server.rest.schemathesis_hooks",
        "KNOWN_ASSET": str(store.assets()[0].id),
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "160",
        "NO_COLOR": "1",
    }
    done = subprocess.run(
        [*command, f"{served.url}/openapi.json", *arguments],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
    )
    assert done.returncode == 0, f"{done.stdout[:20_000]}\n{done.stderr[-5_000:]}"
    assert f"Tested: {len(RIGHTS)}" in done.stdout
