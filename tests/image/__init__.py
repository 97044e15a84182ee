"""What `./run build` makes: images without a base image, and calicoctl as one file."""
