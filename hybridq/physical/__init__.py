"""From the logical plan to stages, units and chunks."""
