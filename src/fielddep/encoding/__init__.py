"""Encoding: from values to ids. Values, kinds, vocabularies, numbers, crosses, splits, and the encoder of them all."""
