"""Ways into hybridq: SQL, Substrait and the fluent builder, all of which make the same plan nodes."""
