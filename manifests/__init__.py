"""What a cluster is given: manifests, and the programs that make images and single files."""
