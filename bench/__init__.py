"""Side-by-side measurements of hybridq and its peers on the same files."""
