"""Running stages on a Dask cluster."""
