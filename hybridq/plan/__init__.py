"""The logical plan and its rewrites."""
