"""DAGs of the benchmark, which Airflow reads."""
