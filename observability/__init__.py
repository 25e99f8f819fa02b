"""What operators look at: the catalogue of metrics, dashboards and the tables of docs/operations.md."""
