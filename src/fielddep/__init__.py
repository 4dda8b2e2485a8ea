"""fielddep: supervised learning on large categorical tables, with the dependencies between fields of every row."""
