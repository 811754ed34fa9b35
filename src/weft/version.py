"""The version of weft, which is written into every folder."""

VERSION = "0.1.0"
