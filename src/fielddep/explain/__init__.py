"""Explanations: numbers first (`dependencies`), drawing second (`plots`)."""
