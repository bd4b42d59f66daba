"""The server: REST under Airflow's paths, the worker API, and the pages, over one SQL store."""
