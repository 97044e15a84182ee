"""Calico's selector language: parsed, compiled, matched."""
