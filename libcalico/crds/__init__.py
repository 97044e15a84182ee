"""CustomResourceDefinitions made of our own types; `./run crds` writes them to manifests/crds.

The structs of `libcalico.model` are the only description of the fields. `fields` and `parameters`
hold the validators' rules of single fields (ranges, words, patterns), `cel` those across fields,
both by struct type and with the validators' own constants. `table` holds names, columns and
stored defaults.

Invariants (tests/apiserver/test_crds.py, against a real kube-apiserver):
  CRD-1  What `libcalico.model.validation.validate` takes, the API server takes.
  CRD-2  What it refuses by the rules named here, the API server refuses and names the field.
"""
