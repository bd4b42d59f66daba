"""keepstate inside Apache Airflow: the task state store of 3.3, on 2.11 and 3.0 to 3.2.

`policy` is loaded by Airflow itself (entry point ``airflow.policy``) and installs `hooks`; from there on, each module here
is loaded when Airflow loads the one that it extends. Nothing here imports Airflow before that.
"""
