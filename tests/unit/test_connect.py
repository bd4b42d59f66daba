"""From a URL to a store, and what is said when there is none."""

from __future__ import annotations

import importlib
import stat
import subprocess
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy

from keepstate.errors import BackendUnavailableError, ConfigurationError
from keepstate.settings import Settings
from keepstate.testing import ManualClock

if TYPE_CHECKING:
    from pathlib import Path

    from keepstate.store import StateStore

connect = importlib.import_module("keepstate.connect").connect


def address(store: StateStore) -> str:
    """Return where a store is, and close it."""
    with store:
        return store.backend.address


# ------------------------------------------------------------------------------------------------- what works


def test_memory_is_each_callers_own() -> None:
    """Nothing is shared, and nothing is left."""
    with connect("memory:") as one, connect("memory:") as other:
        one.task("d", "r", "t").set("k", 1)
        assert other.task("d", "r", "t").get("k") is None
        assert repr(one) == "<StateStore memory:>"


def test_a_file_is_named_from_here_or_from_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three slashes and four, as SQLAlchemy has them; ``~`` is the home folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    for url, file in (
        ("sqlite:///relative.db", tmp_path / "relative.db"),
        (f"sqlite:///{tmp_path}/absolute.db", tmp_path / "absolute.db"),
        ("SQLite:///Upper.db", tmp_path / "Upper.db"),
        ("sqlite:///~/of_home.db", tmp_path / "home" / "of_home.db"),
    ):
        with connect(url, settings=Settings()) as store:
            store.task("d", "r", "t").set("k", url)
        assert file.is_file()


def test_entries_outlive_the_store_that_wrote_them(tmp_path: Path) -> None:
    """Another process, later, finds them."""
    url = f"sqlite:///{tmp_path}/state.db"
    with connect(url, settings=Settings()) as store:
        store.task("d", "r", "t", try_number=1).set("k", {"page": 7})
    code = f"import keepstate; print(keepstate.connect({url!r}).task('d', 'r', 't', try_number=2).get('k'))"
    found = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert found.stdout == "{'page': 7}\n"


def test_the_argument_comes_before_the_environment_and_that_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Argument, KEEPSTATE_URL, custom class, embedded file."""
    monkeypatch.setenv("KEEPSTATE_HOME", str(tmp_path / "home"))
    assert address(connect()) == f"sqlite:///{tmp_path}/home/keepstate.db"
    monkeypatch.setenv("AIRFLOW__STATE_STORE__BACKEND", "tests.support.custom_class.DictStore")
    assert address(connect()) == "custom:tests.support.custom_class.DictStore"
    monkeypatch.setenv("KEEPSTATE_URL", f"sqlite:///{tmp_path}/environment.db")
    assert address(connect()) == f"sqlite:///{tmp_path}/environment.db"
    assert address(connect(f"sqlite:///{tmp_path}/argument.db")) == f"sqlite:///{tmp_path}/argument.db"
    monkeypatch.setenv("KEEPSTATE_URL", "")
    assert address(connect("")) == "custom:tests.support.custom_class.DictStore"


@pytest.mark.parametrize(
    "named", ["airflow.state.metastore.MetastoreBackend", "keepstate.integrations.airflow.StoreBackend"]
)
def test_airflows_own_and_keepstates_own_class_are_no_custom_ones(named: str, tmp_path: Path) -> None:
    """Naming one of them means keepstate's store, and imports nothing."""
    settings = Settings(backend=named, home=str(tmp_path))
    assert address(connect(settings=settings)) == f"sqlite:///{tmp_path}/keepstate.db"


def test_the_folder_of_the_embedded_store_is_made_for_its_owner(tmp_path: Path) -> None:
    """Nobody else may look into it; a folder that is there is left as it is."""
    home = tmp_path / "a" / "b"
    connect(settings=Settings(home=str(home))).close()
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    home.chmod(0o755)
    connect(settings=Settings(home=str(home))).close()
    assert stat.S_IMODE(home.stat().st_mode) == 0o755


def test_without_a_home_the_platforms_folder_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That for user data."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    found = address(connect(settings=Settings()))
    assert found.startswith(f"sqlite:///{tmp_path}")
    assert found.endswith("keepstate/keepstate.db")


def test_opening_an_embedded_store_cleans_it_up(tmp_path: Path) -> None:
    """Expired entries don't pile up though nobody asks for a cleanup; unless opening is to change nothing."""
    url, clock = f"sqlite:///{tmp_path}/state.db", ManualClock()

    def expired() -> int:
        with connect(url, settings=Settings(), clock=clock, purge_on_open=False) as store:
            return store.cleanup(dry_run=True).entries

    with connect(url, settings=Settings(), clock=clock) as store:
        store.task("d", "r", "t").set_many({"a": 1, "b": 2}, retention=timedelta(hours=1))
    clock.advance(timedelta(hours=1))
    assert expired() == 2
    connect(url, settings=Settings(), clock=clock).close()
    assert expired() == 0


def test_an_engine_over_sqlite_stands_for_its_file(tmp_path: Path) -> None:
    """Both see the same entries; one over memory can't be shared."""
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/state.db")
    with connect(engine, settings=Settings()) as store:
        store.task("d", "r", "t").set("k", 1)
    with connect(f"sqlite:///{tmp_path}/state.db", settings=Settings()) as store:
        assert store.task("d", "r", "t").get("k") == 1
    engine.dispose()
    for url in ("sqlite://", "sqlite:///:memory:"):
        with pytest.raises(ConfigurationError, match="in memory"):
            connect(sqlalchemy.create_engine(url), settings=Settings())


def test_an_engine_stays_the_callers(postgres_url: str) -> None:
    """Closing the store leaves its pool open, and its connections as they were."""
    engine = sqlalchemy.create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as before:
        with connect(engine, settings=Settings()) as store:
            store.task("d", "r", "t", try_number=1).set("k", 1)
            assert store.task("d", "r", "t").get("k") == 1
        assert before.execute(sqlalchemy.text("SELECT 1")).scalar() == 1
    with engine.begin() as after:
        rows = after.execute(sqlalchemy.text("SELECT entry_key, value FROM keepstate_entry")).fetchall()
        assert [tuple(row) for row in rows] == [("k", "1")]
    engine.dispose()


def test_postgres_may_be_called_by_its_short_name(postgres_url: str) -> None:
    """As many platforms hand out their URLs; the address shows no password."""
    password = postgres_url.partition("postgres:")[2].partition("@")[0]
    with connect(postgres_url.replace("postgresql://", "postgres://"), settings=Settings()) as store:
        store.task("d", "r", "t").set("k", 1)
        assert password not in store.backend.address + repr(store)
        assert "***" in store.backend.address


# ------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("state.db", "has no scheme like sqlite:///; a file would be sqlite:///state.db"),
        ("/var/lib/state.db", "a file would be sqlite:////var/lib/state.db"),
        ("redis://localhost", "no store of the kind redis://; use sqlite:///FILE"),
        ("sqlite3:///state.db", "no store of the kind sqlite3://"),
        ("file:///state.db", "no store of the kind file://"),
        ("sqlite://state.db", "names no file"),
        ("sqlite:state.db", "names no file"),
        ("sqlite:///", "names no file"),
        ("sqlite:///:memory:", "memory: for a store that ends with the process"),
        ("sqlite:///?mode=ro", "names no file"),
        ("memory://x", "memory:"),
        ("http://u:secret@localhost:8484", "it asks for KEEPSTATE_TOKEN"),
        ("mysql://u:secret@h:port/d", "can't be read as mysql://"),
        ("mysql+nonsense://u:secret@h/d", "does not work with the driver 'nonsense'; write mysql://"),
        ("mysql+asyncmy://u:secret@h/d", "(or mysql+pymysql:// or mysql+mysqldb://)"),
        ("mysql+mysqldb://u:secret@h/d", "not installed: pip install mysqlclient, or write mysql://"),
        ("u:secret@h/d", "use sqlite:///FILE"),
        ("//u:secret@h/d", "has no scheme"),
        ("host=h user=u password=secret", "has no scheme"),
        ("sqlite://u:secret@h/d", "names no file"),
        ("postgresql://u:secret@h:port/d", "can't be read as postgresql://"),
        ("postgresql+nonsense://u:secret@h/d", "does not work with the driver 'nonsense'"),
        ("postgresql+asyncpg://u:secret@h/d", "(or postgresql+psycopg:// or postgresql+psycopg2://)"),
    ],
)
def test_a_url_that_cannot_be_used_says_what_can(
    url: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a ``ConfigurationError``, and never with the password; nothing is made."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError) as caught:
        connect(url, settings=Settings())
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("scheme", ["mysql", "mariadb+pymysql", "postgresql", "postgres", "http", "https"])
@pytest.mark.parametrize(
    "rest",
    [
        "keeper:sec@ret/1@127.0.0.1:1/jobs",
        "keeper:sec@ret@127.0.0.1:1/jobs",
        "keeper:sec@1/ret?x@127.0.0.1:1/jobs",
        "keeper:sec@1/ret#x@127.0.0.1:1/jobs",
        "keeper:1@sec?ret=1@127.0.0.1:1/jobs",
        "kee/per:sec-ret@127.0.0.1:1/jobs",
    ],
)
def test_a_password_that_is_not_encoded_is_not_shown_in_part(scheme: str, rest: str) -> None:
    """A URL that would be taken apart wrongly is refused; of it, no more than the scheme is repeated."""
    with pytest.raises(
        ConfigurationError, match=r"percent-encoding: @ is written %40|KEEPSTATE_TOKEN|https://HOST"
    ) as caught:
        connect(f"{scheme}://{rest}", settings=Settings(retry_timeout=0))
    said = f"{caught.value} {vars(caught.value)} {caught.value.__cause__} {caught.value.__context__}"
    assert not [
        word for word in ("sec", "ret", "per:", "127.0", "jobs") if word in said.replace("secret", "")
    ]


@pytest.mark.parametrize("wrong", [7, 1.5, b"memory:", object(), ["memory:"], True])
def test_what_is_neither_url_nor_engine_is_refused(wrong: Any) -> None:
    """By its type."""
    with pytest.raises(
        ConfigurationError, match=rf"URL or a SQLAlchemy Engine, not .*{type(wrong).__name__}"
    ):
        connect(wrong, settings=Settings())


def test_a_path_is_told_how_to_be_a_url(tmp_path: Path) -> None:
    """It is what people try first."""
    with pytest.raises(ConfigurationError, match=f"write 'sqlite:///{tmp_path}/state.db'"):
        connect(tmp_path / "state.db", settings=Settings())


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    """It is not made: the URL may be mistyped. A folder in the file's place is told too."""
    with pytest.raises(ConfigurationError, match=r"folder .*missing.* does not exist"):
        connect(f"sqlite:///{tmp_path}/missing/state.db", settings=Settings())
    with pytest.raises(ConfigurationError, match="names a folder"):
        connect(f"sqlite:///{tmp_path}", settings=Settings())


def test_a_home_that_cannot_be_made_names_the_setting(tmp_path: Path) -> None:
    """And the folder."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="KEEPSTATE_HOME") as caught:
        connect(settings=Settings(home=str(tmp_path / "file" / "home")))
    assert vars(caught.value)["variable"] == "KEEPSTATE_HOME"


def test_a_server_that_is_not_there_is_told_after_the_time_allowed() -> None:
    """With its address, without its password."""
    url = "postgresql://u:secret@127.0.0.1:1/d"
    with pytest.raises(BackendUnavailableError, match=r"127\.0\.0\.1:1") as caught:
        connect(url, settings=Settings(retry_timeout=0))
    text = f"{caught.value} {caught.value.address} {caught.value.__cause__}"
    assert "secret" not in text


def without(*modules: str) -> str:
    """Return code for an interpreter in which these modules are not installed."""
    return (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] in {modules!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "import keepstate\n"
    )


@pytest.mark.parametrize(
    "absent", [("sqlalchemy", "psycopg", "psycopg2"), ("sqlalchemy",), ("psycopg", "psycopg2")]
)
def test_a_missing_driver_names_the_extra(absent: tuple[str, ...]) -> None:
    """With a ``ConfigurationError`` that says what to install."""
    code = without(*absent) + (
        "try:\n"
        "    keepstate.connect('postgresql://u:secret@127.0.0.1:1/d')\n"
        "except keepstate.ConfigurationError as exc:\n"
        "    print(exc.extra, '|', exc)\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert found.stdout.startswith("postgres | ")
    assert 'pip install "keepstate[postgres]"' in found.stdout
    assert "secret" not in found.stdout


def test_the_embedded_store_needs_no_extra(tmp_path: Path) -> None:
    """Without SQLAlchemy, drivers, or anything of the command line's."""
    code = without("sqlalchemy", "psycopg", "rich", "typer", "jinja2") + (
        f"with keepstate.connect('sqlite:///{tmp_path}/state.db') as store:\n"
        "    store.task('d', 'r', 't', try_number=1).set('k', 1)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_bad_setting_is_refused_before_anything_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its variable."""
    monkeypatch.setenv("KEEPSTATE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KEEPSTATE_HISTORY_DAYS", "a week")
    with pytest.raises(ConfigurationError, match="KEEPSTATE_HISTORY_DAYS is 'a week'"):
        connect()
    assert list(tmp_path.iterdir()) == []
