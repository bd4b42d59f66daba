from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from keepstate import StateStore
from keepstate.connect import connect
from keepstate.settings import Settings
from tests.docs.pages import (
    DOCS,
    PAGES,
    ROOT,
    Story,
    commands_of,
    extras_named,
    is_for_elsewhere,
    matches,
    name_of,
    target_named,
)
from tests.docs.yarn import running_cluster
from tests.support.served import serving_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.ssh_server import SSHServer

_OPENING = re.compile(r"^[ \t]*(?P<fence>```+)(?P<info>[^`\n]*)$", re.MULTILINE)
_TITLED = re.compile(r'\w+ title="(?P<title>[^"]+)"')
_KNOWN = {"python", "py", "console", "sh", "text"}


def _blocks(page: Path) -> Iterator[tuple[str, str]]:
    """Yield (info, content) of each fenced block of a page."""
    text = page.read_text(encoding="utf-8")
    fences = list(_OPENING.finditer(text))
    for opening, closing in zip(fences[0::2], fences[1::2], strict=True):
        yield opening["info"].strip(), text[opening.end() + 1 : closing.start()]


def _lines_of_consoles(page: Path) -> list[str]:
    consoles = [commands_of(text) for info, text in _blocks(page) if info == "console"]
    return [command.line for commands in consoles for command in commands] + _lines_for_elsewhere(page)


def _lines_for_elsewhere(page: Path) -> list[str]:
    return [line for info, text in _blocks(page) if info == "sh" for line in text.splitlines()]


# What a page speaks of and a test has to bring. Each gives what the page's addresses are here.


@pytest.fixture
def postgresql(postgres_url: str) -> dict[str, str]:
    """The PostgreSQL of the pages."""
    return {
        "postgresql://keeper:secret@db.example.com/jobs": postgres_url,
        "postgresql://keeper@db.example.com/jobs": postgres_url,
        "postgresql+psycopg://keeper:secret@db.example.com/jobs": postgres_url.replace(
            "://", "+psycopg://", 1
        ),
    }


@pytest.fixture
def mysql_of_pages(mysql_url: str) -> dict[str, str]:
    """The MySQL of the pages."""
    return {
        "mysql://keeper:secret@mysql.example.com/jobs": mysql_url,
        "mysql+pymysql://keeper:secret@mysql.example.com/jobs": mysql_url.replace("://", "+pymysql://", 1),
    }


@pytest.fixture
def ssh_host(
    ssh_server: SSHServer, home: Path, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> dict[str, str]:
    """The host that the pages reach by SSH, and the hook that they have copied."""
    for name, value in ssh_server.environment().items():
        monkeypatch.setenv(name, value)
    shutil.copy(ROOT / "examples" / "ssh_hook.py", folder)
    return {}


@pytest.fixture
def yarn(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The cluster of the pages."""
    with running_cluster(folder / "bin") as (_, url):
        monkeypatch.setenv("PATH", str(folder / "bin"), prepend=os.pathsep)
        yield {"http://yarn.example.com:8088": url}


@pytest.fixture
def server(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The keepstate server of the pages, and the token that they have for it."""
    with (
        connect(f"sqlite:///{tmp_path / 'served.db'}", settings=Settings()) as store,
        serving_store(store) as served,
    ):
        token = served.token("admin")
        # code on a page runs in this process
        monkeypatch.setenv("KEEPSTATE_TOKEN", token)
        yield {"https://state.example.com": served.url, "kst_0123456789abcdef_and-so-on": token}


_NEEDS = {
    "db.example.com": "postgresql",
    "mysql.example.com": "mysql_of_pages",
    "AIRFLOW_CONN_SSH_DEFAULT": "ssh_host",
    "yarn.example.com": "yarn",
    "kst_0123456789abcdef_and-so-on": "server",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home for the embedded store, and no settings but that."""
    for name in list(os.environ):
        if name.startswith(("KEEPSTATE_", "AIRFLOW_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("KEEPSTATE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def folder(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which a reader tries a page out."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    return folder


_MARKED = [
    pytest.param(
        page, marks=pytest.mark.mysql if "mysql.example.com" in page.read_text(encoding="utf-8") else ()
    )
    for page in PAGES
]


@pytest.mark.parametrize("page", _MARKED, ids=name_of)
def test_page_runs(page: Path, folder: Path, request: pytest.FixtureRequest) -> None:
    """Every example of a page works, from top to bottom, as it is printed."""
    text = page.read_text(encoding="utf-8")
    replacing: dict[str, str] = {}
    for word, fixture in _NEEDS.items():
        if word in text:
            replacing |= request.getfixturevalue(fixture)
    namespace: dict[str, object] = {}
    try:
        for example in Story(page, folder, dict(os.environ), replacing).examples():
            namespace = example.namespace
            example.evaluate()
    finally:
        for value in namespace.values():
            if isinstance(value, StateStore):
                value.close()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_is_of_a_kind_that_is_checked(page: Path) -> None:
    """No block of code is only looked at: each has a language that is run, compared or written to a file."""
    unknown = [info for info, _ in _blocks(page) if info not in _KNOWN and not _TITLED.fullmatch(info)]
    assert unknown == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_file_of_a_page_is_used_on_it(page: Path) -> None:
    """A file that a page has its reader write is run or imported on that page; pytest finds its conftest.py by itself."""
    text = page.read_text(encoding="utf-8")
    titles = [titled["title"] for info, _ in _blocks(page) if (titled := _TITLED.fullmatch(info))]
    for name in set(titles) - {"conftest.py"}:
        module = name.removesuffix(".py")
        used = any(module in line for line in _lines_of_consoles(page))
        assert used or re.search(rf"^(?:import|from) {module}\b", text, re.MULTILINE), name


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_only_commands_for_elsewhere_are_not_run(page: Path) -> None:
    """A block that is not run installs or builds, and nothing else."""
    assert [line for line in _lines_for_elsewhere(page) if not is_for_elsewhere(line)] == []


def test_install_lines_name_extras_that_exist() -> None:
    """``pip install "keepstate[x]"`` on a page names an extra of the package."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = re.search(r"\[project.optional-dependencies\]\n(.*?)\n\[", project, re.DOTALL)
    assert extras is not None
    known = set(re.findall(r"^(\w+) = ", extras[1], re.MULTILINE))
    named = {extra for page in PAGES for line in _lines_of_consoles(page) for extra in extras_named(line)}
    assert named <= known


def test_make_lines_name_targets_that_exist() -> None:
    """``make x`` on a page names a target of the Makefile."""
    known = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {target_named(line) for page in PAGES for line in _lines_of_consoles(page)} - {None}
    assert named <= known


def test_readme_names_the_two_commands() -> None:
    """The README says how to see keepstate work, and how to test it."""
    assert {"make demo", "make test"} <= set(_lines_of_consoles(ROOT / "README.md"))


@pytest.mark.parametrize(
    ("expected", "got", "same"),
    [
        ("40\n", "40\n", True),
        ("40", "41", False),
        ("", "", True),
        ("", "something", False),
        ("begin ... end", "begin and\nend", False),
        ("begin ... end", "begin and\n go on to the end", True),
        ("a\n...\nz", "a\nb\nc\nz", True),
        ("trailing", "trailing   \n\n", True),
        ("a.c", "abc", False),
    ],
)
def test_outputs_are_compared(expected: str, got: str, same: bool) -> None:
    """Three dots stand for anything; all else is compared as it is."""
    assert matches(expected, got) is same


def test_a_wrong_output_fails(tmp_path: Path) -> None:
    """A console block whose output differs, or whose command fails unsaid, is reported with both."""
    page = tmp_path / "page.md"

    def failure(block: str) -> str:
        page.write_text(f"```console\n{block}\n```\n", encoding="utf-8")
        story = Story(page, tmp_path, dict(os.environ))
        try:
            for example in story.examples():
                example.evaluate()
        except AssertionError as error:
            return str(error)
        return ""

    assert failure("$ echo 41\n41\n$ echo 42\n42") == ""
    assert "--- expected\n40" in failure("$ echo 41\n40")
    assert "failed with 3" in failure("$ (exit 3)")
    assert failure("$ (exit 3)\n$ echo $?\n3") == ""
    assert failure("$ cat <<END\n> one\n> END\none") == ""


def test_pages_fetch_nothing() -> None:
    """The documentation works without a network: no page shows a picture or runs a script from elsewhere."""
    remote = re.compile(r"""!\[[^\]]*\]\(https?:|<(?:img|script|link|iframe)\b[^>]*https?:""")
    assert [name_of(page) for page in PAGES if remote.search(page.read_text(encoding="utf-8"))] == []
    configuration = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "font: false" in configuration
    assert "- offline" in configuration
    # the offline plugin brings a script from a public server, unless there is one of this name
    assert "polyfills: [assets/iframe-worker.js]" in configuration
    assert (DOCS / "assets" / "iframe-worker.js").is_file()


def test_navigation_is_in_the_order_of_each_folder() -> None:
    """The site's menu names every folder as such, so that the folder's own order counts; that names pages which are there."""
    folders = sorted(path.name for path in DOCS.iterdir() if any(path.glob("*.md")))
    root = (DOCS / ".nav.yml").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^  - [\w -]+: ([\w-]+)$", root, re.MULTILINE)) == folders
    for folder in set(folders) - {"tutorial"}:
        menu = (DOCS / folder / ".nav.yml").read_text(encoding="utf-8")
        named = re.findall(r"^ +- (\S+\.md)$", menu, re.MULTILINE)
        assert named
        assert set(named) <= {path.name for path in (DOCS / folder).glob("*.md")}, folder


def test_pages_name_no_machine() -> None:
    """Pages are for everybody: they hold no path of the machine that they were written on."""
    private = re.compile("|".join(re.escape(f"{place}/") for place in (ROOT, Path.home())))
    assert [name_of(page) for page in PAGES if private.search(page.read_text(encoding="utf-8"))] == []


_LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)|!\[[^\]]*\]\((?P<image>[^)\s]+)\)")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    """A relative link names a file that is there, and its anchor a heading or an id in it."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    broken = []
    for found in _LINK.finditer(text):
        target = found["target"] or found["image"]
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        if not path.exists() or (anchor and anchor not in _anchors(path)):
            broken.append(target)
    assert broken == []


def _anchors(page: Path) -> set[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    ids = set(re.findall(r'id="([^"]+)"', text)) | set(re.findall(r"\{ *#([\w-]+)", text))
    for heading in re.findall(r"^#+ +(.+)$", text, re.MULTILINE):
        plain = re.sub(r"[`*]|\{.*?\}", "", heading)
        ids.add(re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower()))
    return ids
