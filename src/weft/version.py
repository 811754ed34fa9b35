"""The version of weft, which is written into every folder it makes."""

VERSION = "0.1.0"
