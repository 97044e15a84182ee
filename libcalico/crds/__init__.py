"""CustomResourceDefinitions made of our own types: what `./run crds` writes to manifests/crds.

The structs of `libcalico.model` are the only description of the fields. What their validators
say of single fields stands in `fields` and `parameters` (ranges, words, patterns), what they
say across fields in `cel`, both by struct type and with the validators' own constants; names,
columns and stored defaults stand in `table`.

Invariants (tests/apiserver/test_crds.py, against a real kube-apiserver):
  CRD-1  What `libcalico.model.validation.validate` takes, the API server takes.
  CRD-2  What it refuses by the rules named here, the API server refuses and names the field.
"""
