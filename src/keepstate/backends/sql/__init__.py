"""The SQL backend: one set of statements over SQLite (standard library) and PostgreSQL (SQLAlchemy)."""
