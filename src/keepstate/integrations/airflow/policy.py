"""Where Airflow lets keepstate in: every Airflow process loads this module before any DAG file.

It imports nothing of Airflow, which is half loaded at that time, and lets nothing out: what went wrong is said in the
log, and Airflow starts as it would without keepstate.
"""

try:
    from keepstate.integrations.airflow import hooks

    hooks.install()
except Exception:
    import logging

    logging.getLogger("keepstate").exception(
        "keepstate can't be set up in this Airflow, which goes on without it"
    )
