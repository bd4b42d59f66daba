"""A keepstate server as a backend: every verb is one request of its worker API."""
