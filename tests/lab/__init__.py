"""Tests of the lab: plumbing, runtime model, up and down."""
