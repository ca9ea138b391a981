"""Where stages and chunks run."""
